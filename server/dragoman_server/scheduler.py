"""Which sentences run at the next step: admit, continue, finish.

    plan = scheduler.schedule()      # what joins, what leaves, what stands still
    output = batch.run(plan)         # elsewhere
    scheduler.update(output)         # what has ended in it
    scheduler.take_outcomes()        # the calls that ended
    scheduler.take_progress()        # what is sure of those that are streamed

Nothing here waits, locks or reads the time by itself, so that a test walks through it step by step.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace

from dragoman_model.plan import (
    AttentionOutput,
    BatchOutput,
    FailedSentence,
    FinishedSentence,
    ForcedDecode,
    Plan,
    Sequence,
)
from dragoman_server.admission import Admission
from dragoman_server.attention_queue import AttentionQueue
from dragoman_server.deadlines import Deadlines
from dragoman_server.errors import CallError, DeadlineError, InternalError, QueueFullError
from dragoman_server.limits import SchedulerLimits
from dragoman_server.logs import describe_exception, log_event
from dragoman_server.metrics import ModelMetrics
from dragoman_server.records import SentenceRecords
from dragoman_server.request import DEADLINE_SLACK_SECONDS, Attend, Call, Decode
from dragoman_server.room import QueueState
from dragoman_server.roster import Roster
from dragoman_server.sentences import (
    CallState,
    Lane,
    Outcome,
    Result,
    Sentence,
    SentenceProgress,
    lane_of,
    rows_of,
)
from dragoman_server.speed import Speed
from dragoman_server.turns import BulkTurns

logger = logging.getLogger(__name__)


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
        self._records = SentenceRecords(metrics, clock)
        self._speed = Speed(limits.max_batch_size)
        self._admission = Admission(limits, self._speed)
        self._bulk_turns = BulkTurns(limits.bulk_share)
        self._attention = AttentionQueue(limits)
        self._calls: dict[int, CallState] = {}
        self._deadlines = Deadlines(self._calls)
        self._latest_starts = Deadlines(self._calls)
        self._roster = Roster()
        self._busy_since: float | None = None  # when the step before ended, or this one began after a pause
        self._in_step: set[Lane] = set()  # lanes whose rows take part in the step that is on its way
        self._outcomes: list[Outcome] = []
        self._progress: list[SentenceProgress] = []
        metrics.row_slots.set(limits.max_batch_size)
        metrics.queue_slots.set(limits.max_queue_size)

    @property
    def has_work(self) -> bool:
        """Whether the next plan has anything to do."""
        return bool(self._admission.num_waiting or self._attention or self._roster.has_rows)

    def queue_state(self) -> QueueState:
        """Returns how the queue stands; costs nothing."""
        return self._admission.queue_state()

    def add(self, call: Call) -> None:
        """Queues a call, whole or not at all.

        Raises:
            QueueFullError: Its sentences don't all fit.
            DeadlineUnreachableError: They would wait for longer than the call can.
            InvalidArgumentError: One of them takes more rows than the batch has.
        """
        now = self._clock()
        lane = lane_of(call, self.limits)
        state = CallState(call, lane, now, [None] * len(call.work), len(call.work))
        attends: list[Sentence] = []
        others: list[Sentence] = []
        for index, work in enumerate(call.work):
            waiting = attends if isinstance(work, Attend) else others
            waiting.append(Sentence(state, index, rows_of(work)))
        self._admission.check_widths(call)
        num_rows = sum(sentence.num_rows for sentence in others)
        self._admission.check_room(len(others), lane, num_rows)
        self._attention.check_room(len(attends))
        if call.deadline is not None:
            self._admission.check_deadline(lane, num_rows, call.deadline - now)
        self._admission.add(state, others)
        self._attention.add(state, attends)
        self._calls[call.id] = state
        if call.deadline is not None:
            self._deadlines.add(call.deadline, call.id)
        # A stream's items wait on purpose.
        if self.limits.max_queue_seconds and others and call.stream is None:
            self._latest_starts.add(now + self.limits.max_queue_seconds, call.id)
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
        for state in self._roster.calls():
            self._drop(state, "error", error)
        self._roster.take_abandoned()  # the batch holds none any more
        self._busy_since = None

    def fail_all(self, error: CallError) -> None:
        """Ends every call."""
        for state in list(self._calls.values()):
            self._drop(state, "error", error)

    def schedule(self) -> Plan:
        """Returns what the next step does: rows that leave, sentences that join or stand still, attention."""
        now = self._clock()
        if self._busy_since is None:
            self._busy_since = now
        self._end_overdue(now)
        remove = self._roster.take_abandoned()
        is_bulk_due = self._bulk_turns.is_due or not self._admission.has_any(Lane.INTERACTIVE)
        joining = self._admission.admit(bulk=is_bulk_due)
        admit = tuple(
            self._start(sentence, sentence.work) for sentence in joining if isinstance(sentence.work, Decode)
        )
        self._refuse_those_too_late(now)
        holds_bulk = not is_bulk_due and self._admission.lane_rows(Lane.INTERACTIVE) > 0
        hold = frozenset({Lane.BULK.value} if holds_bulk else ())
        self._in_step = {lane for lane in Lane if lane not in hold and self._admission.lane_rows(lane)}
        attend = tuple(self._start_attention(*one) for one in self._attention.take())
        self._set_gauges()
        return Plan(admit=admit, remove=remove, attend=attend, hold=hold)

    def update(self, output: BatchOutput) -> None:
        """Takes what ended in a step; sentences that did have left their rows."""
        now = self._clock()
        self._observe(output, now)
        self._records.end_step(now)
        for progress in output.progress:
            self._report(self._roster.running(progress.id), progress.token_ids)
        for finished in output.finished:
            if not finished.hypotheses:
                self._fail(FailedSentence(finished.id, RuntimeError("no hypothesis")))
                continue
            num_steps = self._roster.num_steps(finished.id)
            ended = self._leave(finished.id)
            if ended is not None:
                self._report(ended, finished.best.token_ids, is_complete=True)
                self._records.end_decoding(ended, finished)
                self._speed.observe_sentence(num_steps)
                if isinstance(ended.work, Decode) and ended.work.attention_heads:
                    self._attention.add_translated(ended, finished)
                else:
                    self._finish(ended, finished)
        for attention in output.attentions:
            ended = self._roster.leave_attention(attention.id)
            if ended is not None:
                self._take_attention(ended, attention)
        for failed in output.failed:
            self._fail(failed)
        self._busy_since = now if self.has_work else None
        self._set_gauges()

    def take_outcomes(self) -> list[Outcome]:
        """Returns the calls that ended since it was last asked."""
        outcomes, self._outcomes = self._outcomes, []
        return outcomes

    def take_progress(self) -> list[SentenceProgress]:
        """Returns what has become sure since it was last asked, of calls that want to know."""
        progress, self._progress = self._progress, []
        return progress

    def _report(
        self, sentence: Sentence | None, token_ids: tuple[int, ...], *, is_complete: bool = False
    ) -> None:
        if sentence is not None and sentence.state.call.reports_progress:
            call, index = sentence.state.call, sentence.index
            self._progress.append(SentenceProgress(call, index, token_ids, is_complete))

    def _start(self, sentence: Sentence, work: Decode) -> Sequence:
        self._records.start_decoding(sentence, work)
        return self._roster.start(sentence, work)

    def _start_attention(self, sentence: Sentence, work: Attend) -> ForcedDecode:
        self._records.start_attention(sentence)
        return self._roster.start_attention(sentence, work)

    def _take_attention(self, sentence: Sentence, attention: AttentionOutput) -> None:
        finished = sentence.state.results[sentence.index]
        if isinstance(finished, FinishedSentence):
            self._finish(sentence, replace(finished, attention=attention))
        else:
            self._records.end_attention(sentence)
            self._finish(sentence, attention)

    def _leave(self, sentence_id: int) -> Sentence | None:
        """Takes the rows back of a sentence that has left the batch; None where its call has ended before."""
        sentence = self._roster.leave(sentence_id)
        if sentence is not None:
            self._admission.leave(sentence)
        return sentence

    def _finish(self, ended: Sentence, result: Result) -> None:
        state = ended.state
        state.results[ended.index] = result
        state.remaining -= 1
        if state.remaining == 0:
            del self._calls[state.call.id]
            results = tuple(result for result in state.results if result is not None)
            self._outcomes.append(Outcome(state.call, results))

    def _fail(self, failed: FailedSentence) -> None:
        """Ends the one call whose sentence raised an error."""
        sentence = self._leave(failed.id) or self._roster.leave_attention(failed.id)
        if sentence is None or sentence.state.call.id not in self._calls:
            return
        log_event(
            logger,
            logging.ERROR,
            "sentence failed",
            request_id=sentence.state.call.request_id,
            **describe_exception(failed.error),
        )
        self._drop(sentence.state, "error", InternalError())

    def _end_overdue(self, now: float) -> None:
        for call_id in self._deadlines.pop_passed(now):
            self._drop(self._calls[call_id], "deadline", DeadlineError())

    def _refuse_those_too_late(self, now: float) -> None:
        """Refuses calls that have waited for as long as they may; after admission, since those whose turn is now wait no longer."""
        for call_id in self._latest_starts.pop_passed(now):
            state = self._calls[call_id]
            if not state.has_started:
                error = QueueFullError(
                    f"the queue is full: the call waited for {self.limits.max_queue_seconds:g} s, and none may for longer "
                    "(--max-queue-seconds)",
                    retry_seconds=self.queue_state().retry_seconds,
                )
                self._drop(state, None, error)

    def _drop(self, state: CallState, reason: str | None, error: CallError | None = None) -> None:
        """Ends a call before its time, wherever its sentences are.

        Args:
            state: The call.
            reason: What its sentences are counted as; None where it is refused, and they as if they had never come.
            error: For its caller; None where nobody is to be told.
        """
        del self._calls[state.call.id]
        self._admission.remove(state)
        self._attention.remove(state)
        for sentence in self._roster.abandon(state):
            self._admission.leave(sentence)
        self._records.drop(state, reason)
        if error is not None:
            self._outcomes.append(Outcome(state.call, error=error))
        if not self.has_work:
            self._busy_since = None
        self._set_gauges()

    def _observe(self, output: BatchOutput, now: float) -> None:
        self._metrics.observe_step(output)
        self._roster.count_step(self._in_step)
        self._speed.observe(output, 0.0 if self._busy_since is None else now - self._busy_since)
        self._bulk_turns.observe(
            output, interactive=Lane.INTERACTIVE in self._in_step, bulk=Lane.BULK in self._in_step
        )

    def _set_gauges(self) -> None:
        self._metrics.waiting_requests.set(self._admission.num_waiting)
        self._metrics.running_rows.set(self._admission.num_rows)
