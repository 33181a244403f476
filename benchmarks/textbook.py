"""Searches as a textbook writes them: one sentence, plain lists, the whole prefix through the decoder for every token."""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Callable
from typing import NamedTuple

import torch

# What the decoder makes of a prefix of target tokens: the logits of the next one.
Logits = Callable[[list[int]], list[float]]

# Padding and begin-of-sentence: no translation holds them, though every softmax counts them.
UNWRITTEN = (0, 1)


class Found(NamedTuple):
    """A translation: its rank, by which it was found, and its score, which is told."""

    rank: float
    tokens: list[int]
    score: float


def uncached_logits(transformer, source_ids) -> Logits:
    config = transformer.config
    src_ids = torch.tensor([source_ids])
    src_mask = transformer.source_mask(src_ids)
    with torch.inference_mode():
        memory = transformer.encode(src_ids, src_mask)

    @torch.inference_mode()
    def logits(written: list[int]) -> list[float]:
        tgt_ids = torch.tensor([[config.decoder_start_id, *written]])
        return transformer.decode(tgt_ids, memory, src_mask)[0, -1].double().tolist()

    return logits


def log_softmax(logits: list[float]) -> list[float]:
    top = max(logits)
    log_total = top + math.log(sum(math.exp(logit - top) for logit in logits))
    return [logit - log_total for logit in logits]


def continuations(logits, written, eos, *, prefix, min_length, ngram, penalty):
    """Returns (token, what it adds to the rank, its log-probability) of every token that may follow."""
    plain = log_softmax(logits)
    if len(written) < len(prefix):
        token = prefix[len(written)]
        return [(token, plain[token], plain[token])]
    ranks = plain
    if penalty != 1:
        adjusted = list(logits)
        for token in set(written):
            adjusted[token] = logits[token] / penalty if logits[token] > 0 else logits[token] * penalty
        ranks = log_softmax(adjusted)
    allowed = []
    for token in range(len(logits)):
        if token in UNWRITTEN or (token == eos and len(written) < min_length):
            continue
        if ngram and repeats([*written, token], ngram):
            continue
        allowed.append((token, ranks[token], plain[token]))
    return allowed or [(eos, ranks[eos], plain[eos])]


def repeats(tokens, size):
    """Whether the last n-gram stands earlier in ``tokens``, too."""
    last = tokens[-size:]
    return len(last) == size and any(tokens[i : i + size] == last for i in range(len(tokens) - size))


def greedy_search(logits: Logits, eos, *, max_length, alpha=1.0, **constraints) -> list[Found]:
    written, rank, score = [], 0.0, 0.0
    while len(written) < max_length and written[-1:] != [eos]:
        token, added, log_prob = max(
            continuations(logits(written), written, eos, **constraints), key=lambda entry: entry[1]
        )
        written, rank, score = [*written, token], rank + added, score + log_prob
    return [Found(rank / len(written) ** alpha, written, score)]


def beam_search(
    logits: Logits, eos, *, beam, count=1, max_length, alpha=1.0, stop_early=True, **constraints
) -> list[Found]:
    live = [Found(0.0, [], 0.0)]  # rank: the plain sum
    finished: list[Found] = []
    for length in range(1, max_length + 1):
        candidates = [
            (hypothesis.rank + added, log_prob, token, hypothesis)
            for hypothesis in live
            for token, added, log_prob in continuations(
                logits(hypothesis.tokens), hypothesis.tokens, eos, **constraints
            )
        ]
        candidates = [
            Found(rank, [*hypothesis.tokens, token], hypothesis.score + log_prob)
            for rank, log_prob, token, hypothesis in heapq.nlargest(
                2 * beam, candidates, key=lambda candidate: candidate[0]
            )
        ]
        ended = [c for c in candidates if c.tokens[-1] == eos]
        live = [c for c in candidates if c.tokens[-1] != eos][:beam]
        if length == max_length:
            ended += live
        finished += [Found(c.rank / length**alpha, c.tokens, c.score) for c in ended]
        finished = sorted(finished, key=lambda c: c.rank, reverse=True)[:count]
        if not live:
            break
        best = live[0].rank / (max_length if alpha >= 0 else length + 1) ** alpha
        if stop_early and len(finished) == count and best <= finished[-1].rank:
            break
    return finished


def search(
    logits: Logits, eos, *, beam, max_length, count=1, alpha=1.0, prefix=(), min_length=0, ngram=0, penalty=1.0,
    stop_early=True,
) -> list[Found]:  # fmt: skip
    """Greedy search with one beam, beam search with more."""
    constraints = {"prefix": prefix, "min_length": min_length, "ngram": ngram, "penalty": penalty}
    if beam == 1:
        return greedy_search(logits, eos, max_length=max_length, alpha=alpha, **constraints)
    return beam_search(
        logits, eos, beam=beam, count=count, max_length=max_length, alpha=alpha, stop_early=stop_early, **constraints
    )  # fmt: skip


def all_translations(logits: Logits, eos, *, vocab_size, max_length, alpha=1.0) -> list[Found]:
    """Every translation there is, best first: those that end, and those cut at the limit."""
    others = [token for token in range(vocab_size) if token != eos and token not in UNWRITTEN]
    log_probs = {}
    for length in range(max_length):
        for prefix in itertools.product(others, repeat=length):
            log_probs[prefix] = log_softmax(logits(list(prefix)))
    found = []
    for prefix in log_probs:
        for last in [*others, eos]:
            tokens = [*prefix, last]
            if last == eos or len(tokens) == max_length:
                score = sum(log_probs[tuple(tokens[:i])][token] for i, token in enumerate(tokens))
                found.append(Found(score / len(tokens) ** alpha, tokens, score))
    return sorted(found, key=lambda one: one.rank, reverse=True)
