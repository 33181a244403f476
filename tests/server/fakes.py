"""A running batch without a model: it repeats each source, one token a step."""

from __future__ import annotations

import queue
import threading
from dataclasses import dataclass, field

import torch

from dragoman_model.batch import (
    AttentionOutput,
    BatchOutput,
    FinishReason,
    PhaseStats,
    Plan,
    Sequence,
    TokenOutput,
)

EOS = 2


@dataclass
class FakeBatch:
    """Repeats each source, end-of-sentence included; every log-probability is -0.5.

    Attributes:
        plans: What it was asked to do, in order.
        failure: Raised by the next run, once.
        gate: When set, a run waits for one permit before it returns.
    """

    plans: queue.SimpleQueue[Plan] = field(default_factory=queue.SimpleQueue)
    failure: Exception | None = None
    gate: threading.Semaphore | None = None

    def __post_init__(self) -> None:
        self.rows: dict[int, tuple[Sequence, int]] = {}

    def run(self, plan: Plan) -> BatchOutput:
        self.plans.put(plan)
        if self.gate is not None:
            assert self.gate.acquire(timeout=10)
        if self.failure is not None:
            failure, self.failure = self.failure, None
            raise failure
        for row_id in plan.remove:
            del self.rows[row_id]
        for sequence in plan.admit:
            assert sequence.id not in self.rows
            self.rows[sequence.id] = (sequence, 0)
        tokens = [self._next_token(row_id) for row_id in list(self.rows)]
        attentions = [
            AttentionOutput(
                attend.id, torch.zeros(1, 1, len(attend.target_ids), len(attend.source_ids)), (-0.5,)
            )
            for attend in plan.attend
        ]
        real = sum(len(sequence.source_ids) for sequence in plan.admit)
        prefill = PhaseStats(0.002, len(plan.admit), real, 1) if plan.admit else None
        decode = PhaseStats(0.001, len(tokens), len(tokens), 0) if tokens else None
        return BatchOutput(tokens, attentions, prefill, decode)

    def clear(self) -> None:
        self.rows.clear()

    def _next_token(self, row_id: int) -> TokenOutput:
        sequence, position = self.rows[row_id]
        token_id = sequence.source_ids[position]
        reason = None
        if token_id == EOS:
            reason = FinishReason.EOS
        elif position + 1 == sequence.max_length:
            reason = FinishReason.LENGTH
        if reason is None:
            self.rows[row_id] = (sequence, position + 1)
        else:
            del self.rows[row_id]
        return TokenOutput(row_id, token_id, -0.5, reason)


class ManualClock:
    """Seconds that pass only when told to."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now
