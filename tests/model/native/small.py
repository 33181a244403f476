"""Models of many shapes, small ones, with weights of chance."""

from dataclasses import replace

import torch

from dragoman_model.checkpoint import BUNDLED_MODEL
from dragoman_model.config_file import read_config
from dragoman_model.quantization import _FloatKernel, best_kernel
from dragoman_model.transformer import Transformer


def make_transformer(kernels, *, int8, scale=30.0, **changes):
    """Returns a transformer whose output embedding is ``scale`` times as large as usual, so that some tokens are far better than others."""
    torch.manual_seed(0)
    sizes = {"d_model": 64, "d_ff": 128, "num_heads": 2, "num_encoder_layers": 1, "alignment": None}
    config = replace(read_config(BUNDLED_MODEL / "config.json"), **(sizes | changes))
    transformer = Transformer(config).eval().requires_grad_(False)
    transformer.target_embedding.weight.mul_(scale)
    if int8:
        transformer.quantize(int8_kernel(kernels))
    return transformer


def int8_kernel(kernels):
    """Returns one that quantises as the kernels do, for the operators."""
    kernel = best_kernel()
    if kernel.levels != kernels.levels():
        kernel = _FloatKernel()
        kernel.levels = kernels.levels()
    return kernel
