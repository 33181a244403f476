"""What a step says of the next tokens, against what plain sorts of its logits say, in the vocabularies of several models."""

import random

import pytest
import torch

from dragoman_model.constraints import FREE
from dragoman_model.native.build import library
from dragoman_model.native.model import NativeModel
from dragoman_model.predictions import Expansion
from tests.model.native.small import make_transformer

pytestmark = pytest.mark.skipif(library() is None, reason="no C compiler here")


def make_model(kernels, vocab_size, **changes):
    sizes = {"source_vocab_size": vocab_size, "target_vocab_size": vocab_size}
    return NativeModel(make_transformer(kernels, **sizes, **changes), kernels)


def steps(model, num_sentences, width):
    """Yields some steps' predictions of all rows and, of the same rows, those for what beams ask."""
    rng, generator = random.Random(0), torch.Generator().manual_seed(0)
    vocab_size = model.config.target_vocab_size
    sources = [[rng.randrange(4, vocab_size) for _ in range(1 + index % 7)] for index in range(num_sentences)]
    plain, asked = model.prefill(sources, width), model.prefill(sources, width)
    for _ in range(3):
        token_ids = torch.randint(4, vocab_size, (num_sentences * width,), generator=generator)
        sums = -4 * torch.rand((num_sentences, width), generator=generator)
        (best,) = model.predict(token_ids, plain)
        (expanded,) = model.predict(token_ids, asked, expansions=[Expansion(sums, 2 * width)])
        yield best, expanded, sums


# Blocks of logits that are whole and one that isn't; more rows than are computed at a time.
SHAPES = [(96, 3, 4, True), (8000, 29, 4, True), (1040, 30, 1, True), (96, 60, 4, False), (1040, 7, 2, False)]


@pytest.mark.parametrize(("vocab_size", "num_sentences", "width", "int8"), SHAPES)
def test_best_tokens_and_continuations_are_those_of_the_logits(
    kernels, vocab_size, num_sentences, width, int8
):
    model = make_model(kernels, vocab_size, int8=int8)
    for best, expanded, sums in steps(model, num_sentences, width):
        logits = best.logits()
        assert logits.equal(expanded.logits())
        log_probs = logits.double().log_softmax(-1)
        tokens, values = best.best()
        assert tokens.equal(logits.argmax(-1))
        torch.testing.assert_close(
            values.double(), log_probs.gather(1, tokens[:, None])[:, 0], rtol=0, atol=1e-5
        )
        totals = log_probs.view(num_sentences, width, -1) + sums[..., None]
        expected = totals.flatten(1).topk(2 * width).values
        parents, tokens, ranks, told = expanded.expand(())
        assert ranks is told
        found = totals[torch.arange(num_sentences)[:, None], parents, tokens]
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-5)
        torch.testing.assert_close(ranks + sums.gather(1, parents), expected, rtol=0, atol=1e-5)
        places = parents * vocab_size + tokens
        assert all(len(set(row)) == len(row) for row in places.tolist())


@pytest.mark.parametrize(("vocab_size", "num_sentences", "width", "int8"), SHAPES)
def test_continuations_under_constraints_hold_no_token_that_is_never_written(
    kernels, vocab_size, num_sentences, width, int8
):
    model = make_model(kernels, vocab_size, int8=int8)
    for best, expanded, sums in steps(model, num_sentences, width):
        log_probs = best.logits().double().log_softmax(-1)
        log_probs[:, [0, 1]] = -torch.inf
        totals = log_probs.view(num_sentences, width, -1) + sums[..., None]
        expected = totals.flatten(1).topk(2 * width).values
        parents, tokens, ranks, told = expanded.expand([FREE] * (num_sentences * width))
        assert ranks.equal(told)
        assert tokens.min() > 1
        found = totals[torch.arange(num_sentences)[:, None], parents, tokens]
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-5)
        torch.testing.assert_close(ranks + sums.gather(1, parents), expected, rtol=0, atol=1e-5)


def test_of_equal_logits_the_first_tokens_are_the_best(kernels):
    model = make_model(kernels, 96, int8=False, scale=0.0)
    for best, expanded, sums in steps(model, 3, 2):
        assert best.logits().eq(0).all()
        assert best.best()[0].eq(0).all()
        parents, tokens, *_ = expanded.expand(())
        assert parents.equal(sums.argmax(1, keepdim=True).expand(-1, 4))
        assert tokens.equal(torch.arange(4).expand(3, -1))


def test_a_row_gets_the_same_bits_whatever_stands_beside_it(kernels):
    for int8 in (True, False):
        model = make_model(kernels, 1040, int8=int8)
        sources = [[5 + index, 9, 2] for index in range(31)]
        token_ids = torch.arange(31 * 4) + 7
        together, sums = model.prefill(sources, 4), torch.zeros((31, 4))
        (all_of_them,) = model.predict(token_ids, together, expansions=[Expansion(sums, 8)])
        for index in (0, 5, 6, 30):
            alone = model.prefill([sources[index]], 4)
            rows = slice(4 * index, 4 * index + 4)
            (one,) = model.predict(token_ids[rows], alone, expansions=[Expansion(sums[:1], 8)])
            for mine, theirs in zip(one.expand(()), all_of_them.expand(()), strict=True):
                assert mine[0].equal(theirs[index])
