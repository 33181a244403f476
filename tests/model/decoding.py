"""Decodes sequences through the running batch, for tests that compare company with solitude."""

from dragoman_model.batch import RunningBatch
from dragoman_model.plan import Plan


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
