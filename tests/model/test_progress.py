"""What is said of a sentence while it runs holds to its end."""

import random

import pytest

from dragoman_model.batch import RunningBatch
from dragoman_model.beams import common_start
from dragoman_model.options import DecodingOptions
from dragoman_model.plan import Plan, Sequence
from tests.model.made_up import made_up_pairs

KINDS = {
    "greedy": {},
    "two beams": {"beam_size": 2},
    "four beams": {"beam_size": 4},
    "n-best": {"beam_size": 4, "num_hypotheses": 3},
    "short liked": {"beam_size": 2, "length_penalty": -0.5},
    "penalised": {"beam_size": 3, "repetition_penalty": 1.3},
    "one sample": {"sampling_topk": 0, "seed": 5},
    "samples": {"sampling_topk": 4, "num_hypotheses": 3, "seed": 5},
}


@pytest.fixture(scope="module")
def sources(tiny_model):
    rng = random.Random(5)
    return [tuple(tiny_model.tokenizer.encode(pair.source)) for pair in rng.sample(made_up_pairs(), 40)]


def run(transformer, sequences):
    """Returns what was said of each sentence step by step, and its best hypothesis's tokens, by id."""
    batch = RunningBatch(transformer)
    said = {sequence.id: [] for sequence in sequences}
    best = {}
    plan = Plan(admit=tuple(sequences))
    while plan.admit or batch.num_rows:
        output = batch.run(plan)
        for progress in output.progress:
            assert progress.id not in best
            said[progress.id].append(progress.token_ids)
        best.update((sentence.id, sentence.best.token_ids) for sentence in output.finished)
        plan = Plan()
    return said, best


def sequence(name, source_ids, options, **more):
    values = {"max_length": 24, "report_progress": True, **more}
    return Sequence(id=name, source_ids=source_ids, options=DecodingOptions(**options), **values)


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_sure_only_grows_and_starts_the_translation(tiny_model, sources, kind):
    sequences = [
        sequence(index, source_ids, KINDS[kind], max_length=24 if index % 2 else 5)
        for index, source_ids in enumerate(sources)
    ]
    said, best = run(tiny_model.transformer, sequences)
    for name, steps in said.items():
        for earlier, later in zip(steps, [*steps[1:], best[name]], strict=True):
            assert later[: len(earlier)] == earlier
    if kind != "samples":  # which share nothing as a rule
        assert any(steps and steps[-1] for steps in said.values())


@pytest.mark.parametrize("kind", ["greedy", "one sample"])
def test_a_row_alone_says_each_token_at_once(tiny_model, sources, kind):
    said, best = run(tiny_model.transformer, [sequence(0, sources[0], KINDS[kind])])
    assert said[0] == [best[0][:length] for length in range(1, len(best[0]))]


@pytest.mark.parametrize("kind", ["two beams", "samples"])
def test_a_forced_prefix_is_sure_as_soon_as_it_is_written(tiny_model, sources, kind):
    prefix = (300, 301, 302)
    said, _ = run(tiny_model.transformer, [sequence(0, sources[0], KINDS[kind], prefix_ids=prefix)])
    assert said[0][:3] == [prefix[:1], prefix[:2], prefix]


def test_nothing_is_said_of_sentences_that_nobody_streams(tiny_model, sources):
    for options in KINDS.values():
        quiet = sequence(0, sources[0], options, report_progress=False)
        said, best = run(tiny_model.transformer, [quiet, sequence(1, sources[1], options)])
        assert said[0] == []
        assert len(best) == 2


def test_listening_changes_no_translation(tiny_model, sources):
    for options in KINDS.values():
        _, heard = run(tiny_model.transformer, [sequence(i, ids, options) for i, ids in enumerate(sources)])
        _, quiet = run(
            tiny_model.transformer,
            [sequence(i, ids, options, report_progress=False) for i, ids in enumerate(sources)],
        )
        assert heard == quiet


@pytest.mark.parametrize(
    ("sequences", "start"),
    [
        ([(1, 2, 3)], (1, 2, 3)),
        ([(1, 2, 3), (1, 2)], (1, 2)),
        ([(1, 2, 3), (1, 3, 3), (1, 2, 4)], (1,)),
        ([(5,), (4, 5)], ()),
        ([(), (4, 5)], ()),
    ],
)
def test_the_common_start_is_what_all_start_with(sequences, start):
    assert common_start(sequences) == start
