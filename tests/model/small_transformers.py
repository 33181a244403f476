"""Transformers of every kind, small enough for a test, and what goes in: seeded, of odd sizes."""

import torch

from dragoman_model.transformer import Transformer
from tests.models import VARIANTS, tiny_config

LENGTHS = (7, 3, 5)  # of the sources: B = 3, S = 7
T = 6

KINDS = {
    "pre": {},
    "post": {"norm": "post", "activation": "gelu", "sinusoid_layout": "concatenated"},
    "tied": {"tie_output": True, "output_bias": False, "num_decoder_layers": 2},
    "separate": {"shared_vocabulary": False, "source_vocab_size": 41, "target_vocab_size": 53},
    "separate tied": {
        "shared_vocabulary": False,
        "tie_output": True,
        "source_vocab_size": 53,
        "target_vocab_size": 41,
        "activation": "swish",
        "scale_embeddings": False,
    },
    "tall": {"num_encoder_layers": 1, "num_decoder_layers": 3, "num_heads": 4, "layer_norm_eps": 1e-3},
    **VARIANTS,
}
PRECISIONS = {torch.float32: 1e-5, torch.float64: 1e-10}  # largest difference, relative to max |logit|


def make_transformer(dtype=torch.float64, seed=0, **changes):
    torch.manual_seed(seed)
    transformer = Transformer(tiny_config(**changes))
    with torch.no_grad():
        for name, parameter in transformer.named_parameters():
            if "norm" in name or "bias" in name:
                parameter.add_(torch.randn_like(parameter) * 0.1)
    return transformer.to(dtype).eval()


def make_sources(transformer, lengths=LENGTHS, seed=1):
    """Returns source ids, padded, and their mask."""
    generator = torch.Generator().manual_seed(seed)
    config = transformer.config
    src_ids = torch.randint(4, config.source_vocab_size, (len(lengths), max(lengths)), generator=generator)
    for row, length in enumerate(lengths):
        src_ids[row, length - 1] = config.eos_id
        src_ids[row, length:] = config.pad_id
    return src_ids, transformer.source_mask(src_ids)


def make_targets(transformer, num_rows=3, length=T, seed=2):
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(4, transformer.config.target_vocab_size, (num_rows, length), generator=generator)
    ids[:, 0] = transformer.config.decoder_start_id
    return ids


def assert_logits_close(actual, expected):
    tolerance = PRECISIONS[expected.dtype] * expected.abs().max().item()
    torch.testing.assert_close(actual, expected, rtol=0, atol=tolerance)
