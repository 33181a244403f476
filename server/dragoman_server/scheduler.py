"""Which sentences run at the next step: admit, continue, finish.

    plan = scheduler.schedule()      # what joins and what leaves
    output = batch.run(plan)         # elsewhere
    scheduler.update(output)         # one more token for every running row
    scheduler.take_outcomes()        # the calls that ended

Nothing here waits, locks or reads the time by itself, so that a test walks through it step by step.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable
from dataclasses import dataclass, field

from dragoman_model.batch import AttentionOutput, BatchOutput, ForcedDecode, Plan, Sequence
from dragoman_model.translator import SentenceResult
from dragoman_server.errors import CallError, DeadlineError
from dragoman_server.metrics import ModelMetrics
from dragoman_server.queue import WaitingQueue
from dragoman_server.request import DEADLINE_SLACK_SECONDS, Attend, Call, Decode

Result = SentenceResult | AttentionOutput


@dataclass(frozen=True, kw_only=True)
class SchedulerLimits:
    """How much may wait and run.

    Attributes:
        max_batch_size: Rows that decode at once.
        max_queue_size: Sentences that may wait for a row.
        max_attention_queue_size: Sentences that may wait for their attention.
        max_prefill_tokens: Source tokens, padding included, that are encoded in one step; one sentence may always.
        max_attends_per_step: Sentences whose attention is computed in one step, between two decoding steps.
        max_admission_delay: Steps that a waiting sentence is held back at most so that several join together.
    """

    max_batch_size: int = 64
    max_queue_size: int = 1024
    max_attention_queue_size: int = 64
    # A prefill of this size takes about as long as a few decoding steps of a full batch, so that the rows that run
    # hardly notice who joins.
    max_prefill_tokens: int = 2048
    max_attends_per_step: int = 4
    max_admission_delay: int = 4


@dataclass(frozen=True)
class Outcome:
    """How a call ended: one result for each of its sentences, or an error."""

    call: Call
    results: tuple[Result, ...] = ()
    error: CallError | None = None


@dataclass
class _CallState:
    """A call that has not ended."""

    call: Call
    queued: float
    results: list[Result | None]
    remaining: int
    has_token: bool = False
    rows: set[int] = field(default_factory=set)


@dataclass(frozen=True)
class _Waiting:
    """A sentence that waits: the work at ``index`` of its call."""

    state: _CallState
    index: int


@dataclass
class _Row:
    """A sentence in the batch and what it has said so far."""

    state: _CallState
    index: int
    token_ids: list[int] = field(default_factory=list)
    log_probabilities: list[float] = field(default_factory=list)


class Scheduler:
    """Decides what each step runs and gathers what it gave.

    Args:
        limits: How much may wait and run.
        metrics: Where waits, tokens and ends are recorded.
        clock: Seconds that only grow.
    """

    def __init__(self, limits: SchedulerLimits, metrics: ModelMetrics, clock: Callable[[], float]) -> None:
        self.limits = limits
        self._metrics = metrics
        self._clock = clock
        self._waiting: WaitingQueue[_Waiting] = WaitingQueue(limits.max_queue_size)
        self._waiting_attention: WaitingQueue[_Waiting] = WaitingQueue(limits.max_attention_queue_size)
        self._calls: dict[int, _CallState] = {}
        self._deadlines: list[tuple[float, int]] = []
        self._rows: dict[int, _Row] = {}
        self._attending: dict[int, _Row] = {}
        self._abandoned: set[int] = set()  # rows of ended calls that the batch still holds
        self._held_back = 0
        self._outcomes: list[Outcome] = []
        self._row_ids = itertools.count()
        metrics.row_slots.set(limits.max_batch_size)
        metrics.queue_slots.set(limits.max_queue_size)

    @property
    def has_work(self) -> bool:
        """Whether the next plan has anything to do."""
        return bool(self._waiting or self._waiting_attention or self._rows or self._abandoned)

    def check_room(self, count: int) -> None:
        """Refuses a call whose ``count`` sentences, or more, would not fit; costs nothing.

        Raises:
            QueueFullError: The queue hasn't that many free places.
        """
        self._waiting.check_room(count)

    def add(self, call: Call) -> None:
        """Queues a call, whole or not at all.

        Raises:
            QueueFullError: Its sentences don't all fit.
        """
        state = _CallState(call, self._clock(), [None] * len(call.work), len(call.work))
        decodes = [_Waiting(state, i) for i, work in enumerate(call.work) if isinstance(work, Decode)]
        attends = [_Waiting(state, i) for i, work in enumerate(call.work) if isinstance(work, Attend)]
        self._waiting_attention.check_room(len(attends))
        self._waiting.add(call.id, decodes)
        self._waiting_attention.add(call.id, attends)
        self._calls[call.id] = state
        if call.deadline is not None:
            self._add_deadline(call.deadline, call.id)
        self._set_gauges()

    def cancel(self, call_id: int) -> None:
        """Forgets a call whose caller is gone; its rows leave with the next plan."""
        state = self._calls.get(call_id)
        if state is not None:
            deadline = state.call.deadline
            is_overdue = deadline is not None and deadline - self._clock() <= DEADLINE_SLACK_SECONDS
            self._drop(state, "deadline" if is_overdue else "cancelled")

    def fail_running(self, error: CallError) -> None:
        """Ends every call that has a sentence in the batch, which must have been cleared."""
        for state in {
            id(row.state): row.state for row in (*self._rows.values(), *self._attending.values())
        }.values():
            self._drop(state, "error", error)
        self._abandoned.clear()

    def fail_all(self, error: CallError) -> None:
        """Ends every call."""
        for state in list(self._calls.values()):
            self._drop(state, "error", error)

    def schedule(self) -> Plan:
        """Returns what the next step does: rows that leave, sentences that join, attention that is computed."""
        self._expire()
        remove = tuple(sorted(self._abandoned))
        self._abandoned.clear()
        admit = tuple(self._admit())
        attend = tuple(self._attend())
        self._set_gauges()
        return Plan(admit=admit, remove=remove, attend=attend)

    def update(self, output: BatchOutput) -> None:
        """Takes a step's tokens and attention; sentences that ended leave their rows."""
        self._observe(output)
        now = self._clock()
        for token in output.tokens:
            row = self._rows.get(token.id)
            if row is None:  # its call ended while the step ran
                if token.finish_reason is not None:
                    self._abandoned.discard(token.id)
                continue
            row.token_ids.append(token.token_id)
            row.log_probabilities.append(token.log_probability)
            if not row.state.has_token:
                row.state.has_token = True
                self._metrics.time_to_first_token_seconds.observe(now - row.state.call.arrived)
            if token.finish_reason is not None:
                del self._rows[token.id]
                result = SentenceResult(
                    tuple(row.token_ids), tuple(row.log_probabilities), token.finish_reason
                )
                self._observe_sentence(row, result)
                self._finish(row, result)
        for attention in output.attentions:
            attending = self._attending.pop(attention.id, None)
            if attending is not None:
                self._metrics.count_sentences("attention")
                self._finish(attending, attention)
        self._set_gauges()

    def take_outcomes(self) -> list[Outcome]:
        """Returns the calls that ended since it was last asked."""
        outcomes, self._outcomes = self._outcomes, []
        return outcomes

    def _admit(self) -> list[Sequence]:
        free = self.limits.max_batch_size - len(self._rows)
        if self._should_hold_back(free):
            self._held_back += 1
            return []
        self._held_back = 0
        admitted: list[Sequence] = []
        longest = 0
        while self._waiting and len(admitted) < free:
            waiting = self._waiting.peek()
            work = waiting.state.call.work[waiting.index]
            assert isinstance(work, Decode)
            longest = max(longest, len(work.source_ids))
            if admitted and (len(admitted) + 1) * longest > self.limits.max_prefill_tokens:
                break
            self._waiting.pop()
            row_id = self._start(waiting, self._rows)
            admitted.append(
                Sequence(
                    id=row_id,
                    source_ids=work.source_ids,
                    max_length=work.max_length,
                    min_length=work.min_length,
                )
            )
        return admitted

    def _should_hold_back(self, free: int) -> bool:
        # With more waiting than fits, single sentences would join at nearly every step, each with an encoder pass of
        # its own that all rows wait for. An eighth of the batch joins nearly as cheaply as one.
        return (
            len(self._waiting) > free
            and 0 < free < self.limits.max_batch_size // 8
            and self._held_back < self.limits.max_admission_delay
        )

    def _attend(self) -> list[ForcedDecode]:
        attends: list[ForcedDecode] = []
        while self._waiting_attention and len(attends) < self.limits.max_attends_per_step:
            waiting = self._waiting_attention.pop()
            work = waiting.state.call.work[waiting.index]
            assert isinstance(work, Attend)
            row_id = self._start(waiting, self._attending)
            attends.append(ForcedDecode(id=row_id, source_ids=work.source_ids, target_ids=work.target_ids))
        return attends

    def _start(self, waiting: _Waiting, rows: dict[int, _Row]) -> int:
        row_id = next(self._row_ids)
        rows[row_id] = _Row(waiting.state, waiting.index)
        waiting.state.rows.add(row_id)
        self._metrics.queue_wait_seconds.observe(self._clock() - waiting.state.queued)
        self._metrics.source_tokens.inc(len(waiting.state.call.work[waiting.index].source_ids))
        return row_id

    def _add_deadline(self, deadline: float, call_id: int) -> None:
        heapq.heappush(self._deadlines, (deadline, call_id))
        # Calls end long before their deadlines; what they leave here must not pile up.
        if len(self._deadlines) > 2 * len(self._calls) + 64:
            self._deadlines = [entry for entry in self._deadlines if entry[1] in self._calls]
            heapq.heapify(self._deadlines)

    def _expire(self) -> None:
        now = self._clock()
        while self._deadlines and self._deadlines[0][0] <= now:
            _, call_id = heapq.heappop(self._deadlines)
            state = self._calls.get(call_id)
            if state is not None:
                self._drop(state, "deadline", DeadlineError())

    def _finish(self, row: _Row, result: Result) -> None:
        state = row.state
        state.results[row.index] = result
        state.remaining -= 1
        if state.remaining == 0:
            del self._calls[state.call.id]
            results = tuple(result for result in state.results if result is not None)
            self._outcomes.append(Outcome(state.call, results))

    def _drop(self, state: _CallState, reason: str, error: CallError | None = None) -> None:
        """Ends a call before its time, wherever its sentences are; without an error nobody is told."""
        call_id = state.call.id
        del self._calls[call_id]
        self._waiting.remove(call_id)
        self._waiting_attention.remove(call_id)
        for row_id in state.rows:
            if self._rows.pop(row_id, None) is not None:
                self._abandoned.add(row_id)
            self._attending.pop(row_id, None)
        self._metrics.count_sentences(reason, state.remaining)
        if error is not None:
            self._outcomes.append(Outcome(state.call, error=error))
        self._set_gauges()

    def _set_gauges(self) -> None:
        self._metrics.waiting_requests.set(len(self._waiting))
        self._metrics.running_rows.set(len(self._rows))

    def _observe(self, output: BatchOutput) -> None:
        for phase, stats in (("prefill", output.prefill), ("decode", output.decode)):
            if stats is not None:
                self._metrics.observe_pass(
                    phase,
                    seconds=stats.seconds,
                    real_tokens=stats.real_tokens,
                    padding_tokens=stats.padding_tokens,
                )
        if output.decode is not None:
            self._metrics.step_rows.observe(output.decode.rows)
        self._metrics.target_tokens.inc(len(output.tokens))

    def _observe_sentence(self, row: _Row, result: SentenceResult) -> None:
        num_tokens = len(result.token_ids)
        num_source_tokens = len(row.state.call.work[row.index].source_ids)
        self._metrics.count_sentences(result.finish_reason.name.lower())
        self._metrics.token_log_probability.observe(sum(result.log_probabilities) / num_tokens)
        self._metrics.length_ratio.observe(num_tokens / num_source_tokens)
