"""Keys and values beside int8, which are kept in half precision."""

import random

import pytest
import torch

from dragoman_model.inference import InferenceModel
from dragoman_model.native.build import library
from dragoman_model.native.model import NativeModel
from tests.model.native.small import int8_kernel, make_transformer

pytestmark = pytest.mark.skipif(library() is None, reason="no C compiler here")

VOCABULARY = {"source_vocab_size": 96, "target_vocab_size": 96}
# Vectors are 8 or 16 numbers wide: heads that fill none, one, two, four and eight of them.
HEADS = [(16, 4), (64, 4), (64, 2), (128, 2), (128, 1), (256, 1)]


@pytest.mark.parametrize(("d_model", "num_heads"), HEADS)
def test_steps_and_caches_are_those_of_the_operators_in_heads_of_all_widths(kernels, d_model, num_heads):
    transformer = make_transformer(kernels, int8=True, d_model=d_model, num_heads=num_heads, **VOCABULARY)
    native, operators = NativeModel(transformer, kernels), InferenceModel(transformer)
    rng, generator = random.Random(0), torch.Generator().manual_seed(0)
    sources = [[*(rng.randrange(4, 96) for _ in range(length)), 2] for length in (3, 17, 1)]
    encoded = operators.encode(sources)
    caches = [model.start(encoded, range(3), 2) for model in (native, operators)]
    for _ in range(18):  # past a block of columns
        token_ids = torch.randint(4, 96, (6,), generator=generator)
        actual, expected = (model.step(token_ids, cache) for model, cache in zip((native, operators), caches))
        # A number at the edge of two integers may be rounded either way; the fewer there are, the more each counts.
        assert (actual - expected).norm() < 0.1 * expected.norm()
    for part in ("sentences", "rows"):
        (keys, values), others = (getattr(cache, part).layer(0) for cache in caches)
        for half, rounded in zip((keys.transpose(1, 2), values), (others[0].transpose(1, 2), others[1])):
            assert half.dtype == torch.float16
            assert rounded.half().float().equal(rounded)
            used = rounded.abs().sum(2) > 0
            assert (half[used].float() - rounded[used]).norm() < 0.02 * rounded.norm()


def test_numbers_too_large_for_it_become_its_largest(kernels):
    transformer = make_transformer(kernels, int8=False, **VOCABULARY)
    for layer in transformer.decoder:
        layer.cross_attention.v_proj.bias.fill_(1e6)
        layer.self_attention.k_proj.bias.fill_(-1e6)
    transformer.quantize(int8_kernel(kernels))
    for model in (NativeModel(transformer, kernels), InferenceModel(transformer)):
        cache = model.prefill([[5, 6, 2]])
        logits = model.step(torch.tensor([2]), cache)
        assert logits.isfinite().all()
        assert cache.sentences.layer(0)[1][:, :3].eq(65504).all()
        assert cache.rows.layer(0)[0][..., :1].eq(-65504).all()
