"""The batch's beam search against the textbook's."""

import math
import random

import pytest
from benchmarks import textbook

from dragoman_model.batch import RunningBatch
from dragoman_model.beams import BeamSearch, normalized
from dragoman_model.config import MAX_LENGTH as LONGEST
from dragoman_model.options import MAX_LENGTH_PENALTY, DecodingOptions
from dragoman_model.plan import FinishReason, Plan, Sequence
from tests.model.beam_runs import (
    MAX_LENGTH,
    TIE,
    assert_same_hypotheses,
    decode_together,
    many_sources,
    remembered_logits,
    textbook_arguments,
)


@pytest.fixture(scope="module")
def sources(tiny_model):
    return many_sources(tiny_model)


@pytest.fixture(scope="module")
def logits_of(tiny_model):
    return remembered_logits(tiny_model)


def check_against_textbook(tiny_model, logits_of, sources, prefixes=None, **options):
    options = DecodingOptions(**options)
    max_length = options.max_length or MAX_LENGTH
    sequences = [
        Sequence(
            id=index,
            source_ids=source_ids,
            max_length=max_length,
            options=options,
            prefix_ids=prefixes[index] if prefixes else (),
        )
        for index, source_ids in enumerate(sources)
    ]
    found = decode_together(tiny_model.transformer, sequences)
    reasons = set()
    for sequence in sequences:
        expected = textbook.search(
            logits_of(sequence.source_ids), tiny_model.config.eos_id, **textbook_arguments(sequence)
        )
        actual = found[sequence.id]
        assert_same_hypotheses(actual, expected, options.length_penalty)
        for hypothesis in actual:
            ends = hypothesis.token_ids[-1] == tiny_model.config.eos_id
            assert (hypothesis.finish_reason is FinishReason.EOS) == ends
            reasons.add(hypothesis.finish_reason)
    return found, reasons


@pytest.mark.parametrize("beam_size", [1, 2, 4, 8])
@pytest.mark.parametrize("length_penalty", [1.0, 0.0, 0.6, -0.7, 2.0])
def test_hypotheses_and_scores_are_the_textbooks(tiny_model, logits_of, sources, beam_size, length_penalty):
    found, reasons = check_against_textbook(
        tiny_model,
        logits_of,
        sources if length_penalty == 1 else sources[:16],
        beam_size=beam_size,
        num_hypotheses=(beam_size + 1) // 2,
        length_penalty=length_penalty,
    )
    assert len({best.token_ids for best, *_ in found.values()}) > 5
    if beam_size > 2 and length_penalty >= 1:
        assert reasons == set(FinishReason)


@pytest.mark.parametrize("beam_size", [1, 4])
@pytest.mark.parametrize(
    "options",
    [
        {"min_length": 3},
        {"min_length": 8},
        {"max_length": 1},
        {"max_length": 3},
        {"repetition_penalty": 1.3},
        {"repetition_penalty": 4.0},
        {"no_repeat_ngram_size": 1},
        {"no_repeat_ngram_size": 2},
        {"repetition_penalty": 1.2, "no_repeat_ngram_size": 3, "min_length": 4, "length_penalty": 0.5},
    ],
    ids=lambda options: ",".join(f"{name}={value}" for name, value in options.items()),
)
def test_constraints_are_the_textbooks(tiny_model, logits_of, sources, beam_size, options):
    check_against_textbook(
        tiny_model, logits_of, sources[:12], beam_size=beam_size, num_hypotheses=beam_size, **options
    )


@pytest.mark.parametrize("beam_size", [1, 2, 4])
@pytest.mark.parametrize(
    "options", [{}, {"no_repeat_ngram_size": 2, "repetition_penalty": 1.5, "min_length": 5}]
)
def test_forced_prefixes_are_the_textbooks(tiny_model, logits_of, sources, beam_size, options):
    rng = random.Random(beam_size)
    prefixes = [tuple(rng.randrange(260, 380) for _ in range(index % 5)) for index in range(12)]
    found, _ = check_against_textbook(
        tiny_model,
        logits_of,
        sources[:12],
        prefixes,
        beam_size=beam_size,
        num_hypotheses=beam_size,
        **options,
    )
    for index, hypotheses in found.items():
        for hypothesis in hypotheses:
            assert hypothesis.token_ids[: len(prefixes[index])] == prefixes[index]


def test_scores_are_the_unmodified_models_whatever_modified_the_choice(tiny_model, logits_of, sources):
    options = DecodingOptions(beam_size=3, num_hypotheses=3, repetition_penalty=2.0, no_repeat_ngram_size=2)
    sequence = Sequence(id=0, source_ids=sources[0], max_length=MAX_LENGTH, options=options)
    for hypothesis in decode_together(tiny_model.transformer, [sequence])[0]:
        written, expected = [], []
        for token in hypothesis.token_ids:
            expected.append(textbook.log_softmax(logits_of(sources[0])(written))[token])
            written.append(token)
        assert hypothesis.log_probabilities == pytest.approx(expected, abs=TIE)


@pytest.mark.parametrize("alpha", [-MAX_LENGTH_PENALTY, MAX_LENGTH_PENALTY])
def test_ranks_are_numbers_up_to_the_longest_length_and_the_widest_exponent(alpha):
    worse, better = (normalized(total, LONGEST, float(alpha)) for total in (-1e6, -1e-6))
    assert -math.inf < worse < better < 0


def test_a_child_takes_its_parents_row_where_it_can():
    search = BeamSearch(
        Sequence(id=0, source_ids=(5, 2), max_length=9, options=DecodingOptions(beam_size=3)), eos_id=2
    )

    def advance(*children):
        ranks = [-float(index) for index in range(len(children))]
        return search.advance(*zip(*children), ranks, ranks)

    assert advance((0, 5), (0, 6), (0, 7)) == [(0, 1), (0, 2)]
    assert advance((2, 8), (1, 9), (0, 10)) == []
    assert search.written() == [(5, 10), (6, 9), (7, 8)]
    assert advance((2, 11), (1, 12), (1, 13)) == [(1, 0)]
    assert search.written() == [(6, 9, 13), (6, 9, 12), (7, 8, 11)]


# Early stopping


@pytest.mark.parametrize("length_penalty", [1.0, 0.0, -0.7])
def test_stopping_early_loses_nothing(tiny_model, logits_of, sources, length_penalty):
    options = DecodingOptions(beam_size=4, num_hypotheses=2, length_penalty=length_penalty)
    sequences = [
        Sequence(id=i, source_ids=ids, max_length=MAX_LENGTH, options=options)
        for i, ids in enumerate(sources)
    ]
    found = decode_together(tiny_model.transformer, sequences)
    for sequence in sequences:
        expected = textbook.search(
            logits_of(sequence.source_ids), 2, stop_early=False, **textbook_arguments(sequence)
        )
        assert_same_hypotheses(found[sequence.id], expected, length_penalty)


def test_a_decided_search_stops_before_its_limit(tiny_model, sources):
    options = DecodingOptions(beam_size=4, length_penalty=0.0)
    batch = RunningBatch(tiny_model.transformer)
    plan = Plan(
        admit=tuple(
            Sequence(id=i, source_ids=s, max_length=60, options=options) for i, s in enumerate(sources)
        )
    )
    steps = {}
    for step in range(1, 61):
        for sentence in batch.run(plan).finished:
            steps[sentence.id] = step, len(sentence.best.token_ids)
        plan = Plan()
    assert len(steps) == len(sources)
    assert sum(step < 60 for step, _ in steps.values()) > 10
    assert all(step >= length for step, length in steps.values())
