"""Greedy search through the running batch, and as the definition reads, for tests that hold one against the other."""

import random

import pytest
import torch

from dragoman_model.plan import FinishReason, Plan
from tests.model.made_up import made_up_pairs


def make_short_sources(model):
    """Returns the tokens of 200 texts of many lengths."""
    rng = random.Random(0)
    texts = [pair.source for pair in made_up_pairs()]
    return [tuple(model.tokenizer.encode(" ".join(rng.sample(texts, rng.randint(1, 3))))) for _ in range(200)]


@torch.inference_mode()
def decode_uncached(transformer, source_ids, max_length, min_length=0):
    """Greedy search as the definition reads: the whole prefix through the decoder for every token."""
    config = transformer.config
    src_ids = torch.tensor([source_ids])
    src_mask = transformer.source_mask(src_ids)
    memory = transformer.encode(src_ids, src_mask)
    written, log_probs, margins = [config.decoder_start_id], [], []
    while True:
        logits = transformer.decode(torch.tensor([written]), memory, src_mask)[0, -1]
        allowed = logits.clone()
        if len(log_probs) < min_length:
            allowed[config.eos_id] = -torch.inf
        (best, second), ids = allowed.topk(2)
        margins.append((best - second).item())
        written.append(ids[0].item())
        log_probs.append(logits.log_softmax(-1)[ids[0]].item())
        if written[-1] == config.eos_id:
            return written[1:], log_probs, FinishReason.EOS, margins
        if len(log_probs) == max_length:
            return written[1:], log_probs, FinishReason.LENGTH, margins


def run_to_end(batch, sequences):
    """Decodes all sequences together; returns (token ids, log-probabilities, reason) by id."""
    results = {}
    plan = Plan(admit=tuple(sequences))
    while batch.num_rows or plan.admit:
        collect(results, batch.run(plan))
        plan = Plan()
    return results


def collect(results, out):
    for sentence in out.finished:
        assert sentence.id not in results, "a sentence finished twice"
        (only,) = sentence.hypotheses
        results[sentence.id] = (list(only.token_ids), list(only.log_probabilities), only.finish_reason)


def assert_same_decoding(actual, expected):
    ids, log_probs, reason = actual
    expected_ids, expected_log_probs, expected_reason, margins = expected
    if ids != expected_ids:
        first = next(i for i, pair in enumerate(zip(ids, expected_ids)) if pair[0] != pair[1])
        assert margins[first] < 1e-4, f"token {first} differs and is no tie"
        return
    assert reason is expected_reason
    assert log_probs == pytest.approx(expected_log_probs, abs=1e-4)
