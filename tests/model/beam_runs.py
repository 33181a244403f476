"""Beam searches together in one batch, and what a textbook's gives."""

import random

import pytest
from benchmarks import textbook

from dragoman_model.batch import RunningBatch
from dragoman_model.plan import Plan
from tests.model.made_up import made_up_pairs

TIE = 1e-4


MAX_LENGTH = 8


def many_sources(tiny_model):
    """40 tokenised sentences of many lengths."""
    rng = random.Random(3)
    texts = [pair.source for pair in made_up_pairs()]
    return [tuple(tiny_model.tokenizer.encode(" ".join(rng.sample(texts, 1 + i % 3)))) for i in range(40)]


def remembered_logits(tiny_model):
    """The uncached logits of a source, remembered by prefix."""
    known = {}

    def logits(source_ids):
        compute = textbook.uncached_logits(tiny_model.transformer, source_ids)
        seen = known.setdefault(source_ids, {})

        def remembered(written):
            key = tuple(written)
            if key not in seen:
                seen[key] = compute(written)
            return seen[key]

        return remembered

    return logits


def decode_together(transformer, sequences):
    """Returns the hypotheses of each sequence, by id, all decoded in one batch."""
    batch = RunningBatch(transformer)
    found = {}
    plan = Plan(admit=tuple(sequences))
    while plan.admit or batch.num_rows:
        found.update((sentence.id, sentence.hypotheses) for sentence in batch.run(plan).finished)
        plan = Plan()
    return found


def textbook_arguments(sequence):
    options = sequence.options
    return {
        "beam": options.beam_size,
        "count": options.num_hypotheses,
        "max_length": sequence.max_length,
        "alpha": options.length_penalty,
        "prefix": sequence.prefix_ids,
        "min_length": options.min_length,
        "ngram": options.no_repeat_ngram_size,
        "penalty": options.repetition_penalty,
    }


def assert_same_hypotheses(actual, expected, alpha):
    """The same tokens and scores in the same order; where ranks tie, either order will do."""
    assert len(actual) == len(expected)
    assert [h.score for h in actual] == pytest.approx([found.score for found in expected], abs=TIE)
    for hypothesis, found in zip(actual, expected, strict=True):
        if list(hypothesis.token_ids) != found.tokens:
            ties = [other for other in expected if abs(other.rank - found.rank) < TIE]
            assert len(ties) > 1, f"{hypothesis.token_ids} instead of {found.tokens}, and no tie"
