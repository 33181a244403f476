"""Which sentences run at the next step: admit, continue, finish.

    plan = scheduler.schedule()      # what joins and what leaves
    output = batch.run(plan)         # elsewhere
    scheduler.update(output)         # what has ended in it
    scheduler.take_outcomes()        # the calls that ended

Nothing here waits, locks or reads the time by itself, so that a test walks through it step by step.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable
from dataclasses import dataclass, field

from dragoman_model.plan import (
    AttentionOutput,
    BatchOutput,
    FinishedSentence,
    ForcedDecode,
    Plan,
    ScoreOutput,
    Sequence,
)
from dragoman_server.errors import CallError, DeadlineError, InternalError
from dragoman_server.metrics import ModelMetrics
from dragoman_server.queue import WaitingQueue
from dragoman_server.request import DEADLINE_SLACK_SECONDS, Attend, Call, Decode, Score

Result = FinishedSentence | AttentionOutput | ScoreOutput


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
    running: set[int] = field(default_factory=set)  # by the batch's ids


@dataclass(frozen=True)
class _Waiting:
    """A sentence that waits: the work at ``index`` of its call."""

    state: _CallState
    index: int


@dataclass(frozen=True)
class _Running:
    """A sentence in the batch, and how many of its rows it takes."""

    state: _CallState
    index: int
    num_rows: int = 0


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
        self._running: dict[int, _Running] = {}
        self._num_rows = 0  # of all that run
        self._first_step: list[_Running] = []  # those whose first step is on its way
        self._forced: dict[int, _Running] = {}  # whose attention or score is on its way
        self._abandoned: set[int] = set()  # sentences of ended calls that the batch still holds
        self._held_back = 0
        self._outcomes: list[Outcome] = []
        self._sentence_ids = itertools.count()
        metrics.row_slots.set(limits.max_batch_size)
        metrics.queue_slots.set(limits.max_queue_size)

    @property
    def has_work(self) -> bool:
        """Whether the next plan has anything to do."""
        return bool(self._waiting or self._waiting_attention or self._running or self._abandoned)

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
        decodes = [_Waiting(state, i) for i, work in enumerate(call.work) if not isinstance(work, Attend)]
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
        in_batch = (*self._running.values(), *self._forced.values())
        for state in {id(sentence.state): sentence.state for sentence in in_batch}.values():
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
        admit, score = self._admit()
        attend = self._attend()
        self._set_gauges()
        return Plan(admit=tuple(admit), remove=remove, attend=tuple(attend), score=tuple(score))

    def update(self, output: BatchOutput) -> None:
        """Takes what ended in a step; sentences that did have left their rows."""
        self._observe(output)
        now = self._clock()
        for running in self._first_step:
            if not running.state.has_token:
                running.state.has_token = True
                self._metrics.time_to_first_token_seconds.observe(now - running.state.call.arrived)
        self._first_step = []
        for sentence in output.finished:
            ended = self._running.pop(sentence.id, None)
            if ended is None:  # its call ended while the step ran
                self._abandoned.discard(sentence.id)
                continue
            self._num_rows -= ended.num_rows
            self._observe_sentence(ended, sentence)
            self._finish(ended, sentence)
        for failure in output.failed:
            failed = self._running.pop(failure.id, None) or self._forced.pop(failure.id, None)
            self._abandoned.discard(failure.id)
            if failed is not None:
                self._num_rows -= failed.num_rows
                if failed.state.call.id in self._calls:  # another of its sentences may have failed before
                    self._drop(failed.state, "error", InternalError())
        for kind, forced in (("attention", output.attentions), ("score", output.scores)):
            for result in forced:
                ended = self._forced.pop(result.id, None)
                if ended is not None:
                    self._metrics.count_sentences(kind)
                    self._finish(ended, result)
        self._set_gauges()

    def take_outcomes(self) -> list[Outcome]:
        """Returns the calls that ended since it was last asked."""
        outcomes, self._outcomes = self._outcomes, []
        return outcomes

    def _admit(self) -> tuple[list[Sequence], list[ForcedDecode]]:
        """Takes what joins from the queue: sentences to write, and translations to score, which need no row."""
        admit: list[Sequence] = []
        score: list[ForcedDecode] = []
        free = self.limits.max_batch_size - self._num_rows
        if self._should_hold_back(free):
            self._held_back += 1
            return admit, score
        self._held_back = 0
        longest = 0
        while self._waiting:
            waiting = self._waiting.peek()
            work = waiting.state.call.work[waiting.index]
            assert not isinstance(work, Attend)
            num_rows = work.options.num_rows if isinstance(work, Decode) else 0
            # Nobody overtakes a wide search that waits for its rows, or it might wait for ever.
            if num_rows > free:
                break
            num_admitted = len(admit) + len(score)
            longest = max(longest, _prefill_length(work))
            if num_admitted and (num_admitted + 1) * longest > self.limits.max_prefill_tokens:
                break
            self._waiting.pop()
            free -= num_rows
            if isinstance(work, Decode):
                admit.append(self._start(waiting, work))
            else:
                score.append(self._force(waiting, work))
        return admit, score

    def _should_hold_back(self, free: int) -> bool:
        # With more waiting than fits, single sentences would join at nearly every step, each with an encoder pass of
        # its own that all rows wait for. An eighth of the batch joins nearly as cheaply as one.
        return (
            len(self._waiting) > free
            and 0 < free < self.limits.max_batch_size // 8
            and self._held_back < self.limits.max_admission_delay
        )

    def _start(self, waiting: _Waiting, work: Decode) -> Sequence:
        running = _Running(waiting.state, waiting.index, work.options.num_rows)
        sentence_id = self._enter(running, self._running)
        self._num_rows += running.num_rows
        self._first_step.append(running)
        return Sequence(
            id=sentence_id,
            source_ids=work.source_ids,
            max_length=work.max_length,
            options=work.options,
            prefix_ids=work.prefix_ids,
        )

    def _attend(self) -> list[ForcedDecode]:
        attend: list[ForcedDecode] = []
        while self._waiting_attention and len(attend) < self.limits.max_attends_per_step:
            waiting = self._waiting_attention.pop()
            work = waiting.state.call.work[waiting.index]
            assert isinstance(work, Attend)
            attend.append(self._force(waiting, work))
        return attend

    def _force(self, waiting: _Waiting, work: Attend | Score) -> ForcedDecode:
        sentence_id = self._enter(_Running(waiting.state, waiting.index), self._forced)
        return ForcedDecode(id=sentence_id, source_ids=work.source_ids, target_ids=work.target_ids)

    def _enter(self, running: _Running, group: dict[int, _Running]) -> int:
        """Counts a sentence among those in the batch and returns the id that it has there."""
        sentence_id = next(self._sentence_ids)
        group[sentence_id] = running
        running.state.running.add(sentence_id)
        self._metrics.queue_wait_seconds.observe(self._clock() - running.state.queued)
        self._metrics.source_tokens.inc(len(running.state.call.work[running.index].source_ids))
        return sentence_id

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

    def _finish(self, ended: _Running, result: Result) -> None:
        state = ended.state
        state.results[ended.index] = result
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
        for sentence_id in state.running:
            running = self._running.pop(sentence_id, None)
            if running is not None:
                self._num_rows -= running.num_rows
                self._abandoned.add(sentence_id)
            self._forced.pop(sentence_id, None)
        self._first_step = [running for running in self._first_step if running.state is not state]
        self._metrics.count_sentences(reason, state.remaining)
        if error is not None:
            self._outcomes.append(Outcome(state.call, error=error))
        self._set_gauges()

    def _set_gauges(self) -> None:
        self._metrics.waiting_requests.set(len(self._waiting))
        self._metrics.running_rows.set(self._num_rows)

    def _observe(self, output: BatchOutput) -> None:
        # Scoring, too, puts whole sequences through the model at once.
        passes = (("prefill", output.prefill), ("prefill", output.scoring), ("decode", output.decode))
        for phase, stats in passes:
            if stats is not None:
                self._metrics.observe_pass(
                    phase,
                    seconds=stats.seconds,
                    real_tokens=stats.real_tokens,
                    padding_tokens=stats.padding_tokens,
                )
        if output.decode is not None:
            self._metrics.step_rows.observe(output.decode.rows)

    def _observe_sentence(self, ended: _Running, sentence: FinishedSentence) -> None:
        best = sentence.best
        num_tokens = len(best.token_ids)
        num_source_tokens = len(ended.state.call.work[ended.index].source_ids)
        self._metrics.count_sentences(best.finish_reason.name.lower())
        self._metrics.target_tokens.inc(num_tokens)
        self._metrics.token_log_probability.observe(best.score / num_tokens)
        self._metrics.length_ratio.observe(num_tokens / num_source_tokens)


def _prefill_length(work: Decode | Score) -> int:
    """Returns the tokens that go through the model before the first step, or instead of any."""
    return len(work.source_ids) + (len(work.target_ids) if isinstance(work, Score) else 0)
