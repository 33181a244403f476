"""The batch's beam search against itself in other company."""

import random

import pytest

from dragoman_model.batch import RunningBatch
from dragoman_model.options import DecodingOptions
from dragoman_model.plan import Plan, Sequence
from tests.model.beam_runs import (
    TIE,
    decode_together,
    many_sources,
)


@pytest.fixture(scope="module")
def sources(tiny_model):
    return many_sources(tiny_model)


def random_options(rng):
    return rng.choice(
        [
            DecodingOptions(),
            DecodingOptions(min_length=4),
            DecodingOptions(beam_size=2, num_hypotheses=2, length_penalty=0.3),
            DecodingOptions(beam_size=4, num_hypotheses=3, no_repeat_ngram_size=2),
            DecodingOptions(beam_size=4),
            DecodingOptions(beam_size=8, repetition_penalty=1.4, length_penalty=-0.5),
            DecodingOptions(sampling_topk=0, seed=1, sampling_temperature=0.8),
            DecodingOptions(sampling_topk=9, num_hypotheses=4, seed=2, sampling_topp=0.9),
        ]
    )


def random_sequence(rng, sources, index):
    prefix_ids = tuple(rng.randrange(260, 380) for _ in range(rng.choice([0, 0, 0, 1, 3])))
    return Sequence(
        id=index,
        source_ids=rng.choice(sources),
        max_length=rng.randint(5, 16),
        options=random_options(rng),
        prefix_ids=prefix_ids,
    )


def test_a_sentence_gets_the_same_hypotheses_whatever_it_shares_the_batch_with(tiny_model, sources):
    rng = random.Random(11)
    sequences = [random_sequence(rng, sources, index) for index in range(200)]
    alone = {s.id: decode_together(tiny_model.transformer, [s])[s.id] for s in sequences}
    batch = RunningBatch(tiny_model.transformer)
    waiting, running, removed, together = list(sequences), {}, set(), {}
    while waiting or running:
        admitted = [waiting.pop() for _ in range(min(rng.randint(0, 7), len(waiting)))]
        leaving = [index for index in running if rng.random() < 0.01]
        removed.update(leaving)
        for index in leaving:
            del running[index]
        running.update((sequence.id, sequence) for sequence in admitted)
        out = batch.run(Plan(admit=tuple(admitted), remove=tuple(leaving)))
        if running:
            assert out.decode.rows == sum(s.options.num_rows for s in running.values())
        for sentence in out.finished:
            del running[sentence.id]
            together[sentence.id] = sentence.hypotheses
        assert batch.num_rows == sum(s.options.num_rows for s in running.values())
        assert batch.num_sentences == len(running)
    assert removed
    assert together.keys() == alone.keys() - removed
    for index, hypotheses in together.items():
        assert [h.token_ids for h in hypotheses] == [h.token_ids for h in alone[index]]
        for hypothesis, expected in zip(hypotheses, alone[index], strict=True):
            assert hypothesis.log_probabilities == pytest.approx(expected.log_probabilities, abs=TIE)


def test_asking_for_more_hypotheses_never_changes_the_best(tiny_model, sources):
    for length_penalty in (1.0, 0.0, -0.5):
        counts = {}
        for count in (1, 2, 4):
            options = DecodingOptions(beam_size=4, num_hypotheses=count, length_penalty=length_penalty)
            counts[count] = decode_together(
                tiny_model.transformer,
                [Sequence(id=i, source_ids=s, max_length=12, options=options) for i, s in enumerate(sources)],
            )
        for index in range(len(sources)):
            ids = [h.token_ids for h in counts[4][index]]
            assert len(set(ids)) == 4
            assert [h.token_ids for h in counts[2][index]] == ids[:2]
            assert [h.token_ids for h in counts[1][index]] == ids[:1]


def test_rows_and_caches_of_a_finished_or_removed_sentence_are_gone(tiny_model, sources):
    batch = RunningBatch(tiny_model.transformer)
    wide = DecodingOptions(beam_size=4, min_length=10)
    long, short = max(sources, key=len), min(sources, key=len)
    batch.run(
        Plan(
            admit=(
                Sequence(id=0, source_ids=long, max_length=12, options=wide),
                Sequence(id=1, source_ids=short, max_length=12, options=wide),
                Sequence(id=2, source_ids=short, max_length=1),
            )
        )
    )
    (group,) = batch._groups.values()
    assert batch.num_rows == group.cache.num_rows == 8
    assert group.cache.sentences.num_rows == 2  # once a sentence, not once a beam
    assert group.cache.sentences.lengths == [len(long), len(short)]
    batch.run(Plan(remove=(0,)))
    assert batch.num_rows == group.cache.num_rows == len(group.last_ids) == 4
    assert group.cache.sentences.num_rows == 1
    assert group.cache.sentences.lengths == [len(short)]
    batch.run(Plan(remove=(1,)))
    assert batch.num_rows == batch.num_sentences == 0
    assert not batch._groups
