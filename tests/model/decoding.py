"""Decodes sequences through the running batch, for tests that compare company with solitude."""

import random

from dragoman_model.batch import RunningBatch
from dragoman_model.plan import Plan
from tests.model.made_up import made_up_pairs


def make_sources(model, count=60):
    """Returns the tokens of made-up texts of one to four sentences."""
    rng = random.Random(0)
    texts = [pair.source for pair in made_up_pairs()]
    return [
        tuple(model.tokenizer.encode(" ".join(rng.sample(texts, rng.randint(1, 4))))) for _ in range(count)
    ]


def decode(model, sequences, rng=None):
    """Decodes sequences one after the other, or with others that join at random steps; returns hypotheses by id."""
    batch = RunningBatch(model.transformer)
    waiting, results = list(sequences), {}
    while waiting or batch.num_rows:
        count = rng.randint(0, 5) if rng else int(not batch.num_rows)
        admitted = [waiting.pop() for _ in range(min(count, len(waiting)))]
        for sentence in batch.run(Plan(admit=tuple(admitted))).finished:
            results[sentence.id] = sentence.hypotheses
    return results
