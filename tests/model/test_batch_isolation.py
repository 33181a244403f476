"""Sentences of one batch that must not feel each other: those that are held, and those that fail."""

import random

import pytest

from dragoman_model import beams
from dragoman_model.batch import RunningBatch
from dragoman_model.options import DecodingOptions
from dragoman_model.plan import ForcedDecode, Plan, Sequence
from tests.model.made_up import made_up_pairs

GREEDY = DecodingOptions()
BEAMS = DecodingOptions(beam_size=3, num_hypotheses=2)
SAMPLES = DecodingOptions(sampling_topk=5, num_hypotheses=2, seed=7)


@pytest.fixture
def batch(tiny_model):
    return RunningBatch(tiny_model.transformer)


@pytest.fixture(scope="module")
def sources(tiny_model):
    rng = random.Random(3)
    texts = [pair.source for pair in made_up_pairs()]
    return [tuple(tiny_model.tokenizer.encode(rng.choice(texts))) for _ in range(8)]


def run_to_end(batch, sequences):
    results, failed, plan = {}, {}, Plan(admit=tuple(sequences))
    while batch.num_rows or plan.admit:
        out = batch.run(plan)
        results |= {sentence.id: sentence.hypotheses for sentence in out.finished}
        failed |= {failure.id: failure.error for failure in out.failed}
        plan = Plan()
    return results, failed


@pytest.mark.parametrize("options", [GREEDY, BEAMS, SAMPLES])
def test_a_held_lane_keeps_its_place_while_the_other_goes_on(batch, sources, options):
    def sequence(index, lane):
        return Sequence(id=index, source_ids=sources[index], max_length=9, options=options, lane=lane)

    expected, _ = run_to_end(batch, [sequence(0, 0), sequence(1, 1)])
    batch.run(Plan(admit=(sequence(0, 0),)))
    batch.run(Plan(admit=(sequence(1, 1),), hold=frozenset({0})))
    results = {}
    while 1 not in results:
        out = batch.run(Plan(hold=frozenset({0})))
        assert out.decode.rows == options.num_rows
        results |= {sentence.id: sentence.hypotheses for sentence in out.finished}
    assert list(results) == [1]
    assert batch.num_rows == options.num_rows
    while batch.num_rows:
        results |= {sentence.id: sentence.hypotheses for sentence in batch.run(Plan()).finished}
    for index, hypotheses in expected.items():
        assert [one.token_ids for one in results[index]] == [one.token_ids for one in hypotheses]


def test_with_every_lane_held_nothing_is_computed(batch, sources):
    batch.run(Plan(admit=(Sequence(id=0, source_ids=sources[0], max_length=9),)))
    assert batch.run(Plan(hold=frozenset({0}))).decode is None
    assert batch.num_rows == 1


@pytest.mark.parametrize("options", [GREEDY, BEAMS, SAMPLES])
@pytest.mark.parametrize("method", ["__init__", "advance", "result"])
def test_a_sentence_that_fails_leaves_alone(batch, sources, options, method, monkeypatch):
    sequences = [
        Sequence(id=i, source_ids=ids, max_length=9, options=options) for i, ids in enumerate(sources)
    ]
    expected, _ = run_to_end(batch, sequences)
    for kind in (beams.RowSearch, beams.BeamSearch):
        monkeypatch.setattr(kind, method, failing_for(3, getattr(kind, method)))
    results, failed = run_to_end(batch, sequences)
    assert list(failed) == [3]
    assert isinstance(failed[3], ZeroDivisionError)
    assert results.keys() == expected.keys() - {3}
    for index, hypotheses in results.items():
        assert [one.token_ids for one in hypotheses] == [one.token_ids for one in expected[index]]


def failing_for(sentence_id, method):
    def fail_or_go_on(search, *args):
        sequence = args[0] if isinstance(args[0] if args else None, Sequence) else search.sequence
        if sequence.id == sentence_id:
            raise ZeroDivisionError
        return method(search, *args)

    return fail_or_go_on


def test_attention_that_fails_disturbs_neither_rows_nor_other_attention(batch, sources, tiny_model):
    row = Sequence(id=0, source_ids=sources[0], max_length=9)
    expected, _ = run_to_end(batch, [row])
    good = ForcedDecode(id=1, source_ids=sources[1], target_ids=(5, tiny_model.config.eos_id))
    unknown_token = ForcedDecode(id=2, source_ids=sources[1], target_ids=(10**6, 10**6))
    out = batch.run(Plan(admit=(row,), attend=(unknown_token, good)))
    assert [failure.id for failure in out.failed] == [2]
    assert [attention.id for attention in out.attentions] == [1]
    results, _ = run_to_end(batch, [])
    assert [one.token_ids for one in results[0]] == [one.token_ids for one in expected[0]]
