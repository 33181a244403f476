"""Samples of whole sentences: repeatable in any company, and spread as the model says."""

import dataclasses
import math
import random
from collections import Counter

import pytest
from benchmarks import textbook

from dragoman_model.batch import RunningBatch
from dragoman_model.noise import SentenceNoise
from dragoman_model.options import DecodingOptions
from dragoman_model.plan import Plan, Sequence
from tests.model.made_up import made_up_pairs


@pytest.fixture(scope="module")
def source_ids(tiny_model):
    return tuple(tiny_model.tokenizer.encode(made_up_pairs()[7].source))


def sampled(source_ids, *, identity=0, max_length=8, prefix_ids=(), **options):
    options = {"sampling_topk": 0, "seed": 1, **options}
    return Sequence(
        id=identity,
        source_ids=source_ids,
        max_length=max_length,
        options=DecodingOptions(**options),
        prefix_ids=prefix_ids,
    )


def run(model, *sequences):
    batch = RunningBatch(model.transformer)
    found = {}
    plan = Plan(admit=sequences)
    while plan.admit or batch.num_rows:
        found.update((sentence.id, sentence.hypotheses) for sentence in batch.run(plan).finished)
        plan = Plan()
    return found


def test_a_seed_repeats_and_another_gives_others(tiny_model, source_ids):
    one = run(tiny_model, sampled(source_ids, num_hypotheses=4))[0]
    again = run(tiny_model, sampled(source_ids, num_hypotheses=4))[0]
    other = run(tiny_model, sampled(source_ids, num_hypotheses=4, seed=2))[0]
    assert one == again
    assert {h.token_ids for h in one} != {h.token_ids for h in other}


def test_a_seed_repeats_whatever_else_is_in_the_batch(tiny_model, source_ids):
    wanted = sampled(source_ids, identity=99, num_hypotheses=3, sampling_temperature=1.3)
    (alone,) = run(tiny_model, wanted).values()
    rng = random.Random(5)
    for _ in range(10):
        others = [
            Sequence(
                id=index,
                source_ids=tuple(tiny_model.tokenizer.encode(rng.choice(made_up_pairs()).source)),
                max_length=rng.randint(3, 12),
                options=rng.choice(
                    [
                        DecodingOptions(),
                        DecodingOptions(beam_size=3),
                        DecodingOptions(sampling_topk=0, num_hypotheses=3, seed=index),
                        DecodingOptions(sampling_topk=0, seed=1),
                    ]
                ),
            )
            for index in range(rng.randint(1, 9))
        ]
        sequences = [*others, wanted]
        rng.shuffle(sequences)
        batch = RunningBatch(tiny_model.transformer)
        together = None
        while sequences or batch.num_rows:  # they join one by one
            plan = Plan(admit=tuple(sequences[:1]))
            sequences = sequences[1:]
            for sentence in batch.run(plan).finished:
                together = sentence.hypotheses if sentence.id == 99 else together
        assert [h.token_ids for h in together] == [h.token_ids for h in alone]


def test_more_samples_hold_the_fewer(tiny_model, source_ids):
    few = run(tiny_model, sampled(source_ids, num_hypotheses=2))[0]
    many = run(tiny_model, sampled(source_ids, num_hypotheses=6))[0]
    assert {h.token_ids for h in few} <= {h.token_ids for h in many}


@pytest.mark.parametrize("length_penalty", [1.0, 0.0])
def test_samples_come_best_first(tiny_model, source_ids, length_penalty):
    found = run(tiny_model, sampled(source_ids, num_hypotheses=8, length_penalty=length_penalty))[0]
    ranks = [h.score / len(h.token_ids) ** length_penalty for h in found]
    assert ranks == sorted(ranks, reverse=True)
    assert len({len(h.token_ids) for h in found}) > 1


def test_samples_are_scored_by_the_unmodified_model(tiny_model, source_ids):
    found = run(
        tiny_model, sampled(source_ids, num_hypotheses=4, sampling_temperature=2.0, sampling_topp=0.9)
    )
    logits = textbook.uncached_logits(tiny_model.transformer, source_ids)
    for hypothesis in found[0]:
        written, expected = [], []
        for token in hypothesis.token_ids:
            expected.append(textbook.log_softmax(logits(written))[token])
            written.append(token)
        assert hypothesis.log_probabilities == pytest.approx(expected, abs=1e-4)


def test_constraints_hold_for_samples(tiny_model, source_ids):
    found = run(
        tiny_model,
        sampled(
            source_ids,
            num_hypotheses=8,
            max_length=12,
            min_length=6,
            no_repeat_ngram_size=1,
            prefix_ids=(300, 301),
        ),
    )[0]
    for hypothesis in found:
        assert hypothesis.token_ids[:2] == (300, 301)
        assert len(hypothesis.token_ids) > 6
        assert len(set(hypothesis.token_ids)) == len(hypothesis.token_ids)


def test_first_tokens_are_spread_as_the_model_says(tiny_model, source_ids):
    count = 2000
    sequences = [sampled(source_ids, identity=seed, seed=seed, max_length=1) for seed in range(count)]
    tokens = Counter(hypotheses[0].token_ids[0] for hypotheses in run(tiny_model, *sequences).values())
    logits = textbook.uncached_logits(tiny_model.transformer, source_ids)([])
    probabilities = [math.exp(log_p) for log_p in textbook.log_softmax(logits)]
    assert max(probabilities) < 0.9  # there is something to draw
    # Pearson's chi-squared over the tokens expected often enough, the others as one.
    often = [token for token, p in enumerate(probabilities) if p * count >= 5]
    cells = [(tokens[token], probabilities[token] * count) for token in often]
    cells.append((count - sum(seen for seen, _ in cells), count - sum(expected for _, expected in cells)))
    statistic = sum((seen - expected) ** 2 / expected for seen, expected in cells if expected > 1)
    freedom = len(cells) - 1
    assert statistic < freedom + 4 * math.sqrt(2 * freedom)


def test_any_seed_of_64_bits_has_noise_of_its_own(source_ids):
    seeds = (-(2**63), -1, 0, 1, 2**63 - 1)
    assert len({SentenceNoise(sampled(source_ids, seed=seed)).at(0, 0) for seed in seeds}) == len(seeds)


def test_noise_is_even_and_its_own_for_each_seed_source_hypothesis_and_step(source_ids):
    base = sampled(source_ids)
    other_source = dataclasses.replace(base, source_ids=source_ids[1:])
    noises = [SentenceNoise(s) for s in (base, sampled(source_ids, seed=2), other_source)]
    draws = [noise.at(row, step) for noise in noises for row in range(20) for step in range(50)]
    assert len(set(draws)) == len(draws)
    assert all(0 <= draw < 1 for draw in draws)
    tenths = Counter(int(draw * 10) for draw in draws)
    assert all(abs(tenths[tenth] - 300) < 75 for tenth in range(10))
    assert SentenceNoise(base).at(3, 4) == noises[0].at(3, 4)
