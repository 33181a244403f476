"""A running batch without a model: it repeats each source, one token a step."""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import torch

from dragoman_model.plan import (
    AttentionOutput,
    BatchOutput,
    FailedSentence,
    FinishedSentence,
    FinishReason,
    Hypothesis,
    PhaseStats,
    Plan,
    Progress,
    Sequence,
)
from dragoman_server.engine import Engine

EOS = 2

Start = Callable[..., Engine]


@dataclass
class FakeBatch:
    """Repeats each source, end-of-sentence included, or its prefix; every log-probability is -0.5, all hypotheses are the same.

    Attributes:
        plans: What it was asked to do, in order.
        failure: Raised by the next run, once.
        poisoned: The first source token of sentences that fail by themselves, at their first step.
        attention_failure: What every forced pass raises.
        row_seconds: What a step is said to take for each row, beside a thousandth of a second.
        gate: When set, a run waits for one permit before it returns.
    """

    plans: queue.SimpleQueue[Plan] = field(default_factory=queue.SimpleQueue)
    failure: Exception | None = None
    poisoned: int | None = None
    attention_failure: Exception | None = None
    row_seconds: float = 0.0
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
        failed = [
            FailedSentence(sequence.id, RuntimeError("poisoned"))
            for sequence, _ in list(self.rows.values())
            if sequence.source_ids[0] == self.poisoned
        ]
        for failure in failed:
            del self.rows[failure.id]
        in_step = [i for i, (sequence, _) in self.rows.items() if sequence.lane not in plan.hold]
        num_rows = sum(self.rows[row_id][0].options.num_rows for row_id in in_step)
        finished = [ended for row_id in in_step if (ended := self._advance(row_id))]
        if self.attention_failure is not None:
            failed += [FailedSentence(attend.id, self.attention_failure) for attend in plan.attend]
            plan = replace(plan, attend=())
        attentions = [
            AttentionOutput(attend.id, weights[None, None], (-0.5,), weights)
            for attend in plan.attend
            for weights in (torch.zeros(len(attend.target_ids), len(attend.source_ids)),)
        ]
        real = sum(len(sequence.source_ids) for sequence in plan.admit)
        prefill = PhaseStats(1e-5 * real, len(plan.admit), real, 1) if plan.admit else None
        seconds = 0.001 + num_rows * self.row_seconds
        decode = PhaseStats(seconds, num_rows, num_rows, 0) if num_rows else None
        progress = [
            Progress(row_id, self.rows[row_id][0].source_ids[: self.rows[row_id][1]])
            for row_id in in_step
            if row_id in self.rows and self.rows[row_id][0].report_progress
        ]
        return BatchOutput(finished, attentions, prefill, decode, failed, progress)

    @property
    def num_rows(self) -> int:
        return sum(sequence.options.num_rows for sequence, _ in self.rows.values())

    def clear(self) -> None:
        self.rows.clear()

    def _advance(self, row_id: int) -> FinishedSentence | None:
        sequence, position = self.rows[row_id]
        written = sequence.prefix_ids or sequence.source_ids
        if written[position] == EOS:
            reason = FinishReason.EOS
        elif position + 1 == sequence.max_length:
            reason = FinishReason.LENGTH
        else:
            self.rows[row_id] = (sequence, position + 1)
            return None
        del self.rows[row_id]
        token_ids = written[: position + 1]
        hypothesis = Hypothesis(token_ids, (-0.5,) * len(token_ids), reason)
        return FinishedSentence(row_id, (hypothesis,) * sequence.options.num_hypotheses)


class ManualClock:
    """Seconds that pass only when told to."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


async def next_plan(batch: FakeBatch) -> Plan:
    """Waits for what the batch is asked to do next."""
    return await asyncio.to_thread(batch.plans.get, timeout=10)
