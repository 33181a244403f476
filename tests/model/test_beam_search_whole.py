"""The batch's beam search against all translations that there are."""

import pytest
import torch
from benchmarks import textbook

from dragoman_model.options import DecodingOptions
from dragoman_model.plan import Sequence
from dragoman_model.transformer import Transformer
from tests.model.beam_runs import (
    assert_same_hypotheses,
    decode_together,
)
from tests.models import tiny_config


@pytest.fixture(scope="module")
def toy():
    """A Transformer of six tokens beside padding and begin-of-sentence, which no translation holds."""
    torch.manual_seed(5)
    config = tiny_config(source_vocab_size=8, target_vocab_size=8)
    transformer = Transformer(config).eval()
    with torch.no_grad():
        transformer.output_weight.mul_(4.0)
    return transformer


@pytest.mark.parametrize("length_penalty", [1.0, 0.0, -1.0, 1.7])
@pytest.mark.parametrize("source_ids", [(3, 4, 2), (5, 2), (4, 4, 5, 3, 2)])
def test_a_beam_wide_enough_finds_the_best_of_all_translations(toy, length_penalty, source_ids):
    max_length, beam_size = 4, 125  # 5 × 5 × 5 unfinished prefixes
    everything = textbook.all_translations(
        textbook.uncached_logits(toy, source_ids),
        2,
        vocab_size=8,
        max_length=max_length,
        alpha=length_penalty,
    )
    assert len(everything) == 1 + 5 + 25 + 125 * 6
    options = DecodingOptions(beam_size=beam_size, num_hypotheses=20, length_penalty=length_penalty)
    sequence = Sequence(id=0, source_ids=source_ids, max_length=max_length, options=options)
    assert_same_hypotheses(decode_together(toy, [sequence])[0], everything[:20], length_penalty)


def test_a_beam_wider_than_the_vocabulary_allows_returns_what_there_is(toy):
    options = DecodingOptions(beam_size=9, num_hypotheses=9)
    sequence = Sequence(id=0, source_ids=(3, 4, 2), max_length=1, options=options)
    hypotheses = decode_together(toy, [sequence])[0]
    assert sorted(h.token_ids[0] for h in hypotheses) == list(range(2, 8))


def test_a_search_that_may_go_nowhere_ends(toy):
    for beam_size in (1, 3):
        options = DecodingOptions(beam_size=beam_size, no_repeat_ngram_size=1, min_length=20)
        sequence = Sequence(id=0, source_ids=(3, 4, 2), max_length=20, options=options)
        (best,) = decode_together(toy, [sequence])[0]
        assert sorted(best.token_ids) == list(range(2, 8))
        assert best.token_ids[-1] == 2
