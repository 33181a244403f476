"""Which waiting sentences join the batch at a step."""

from __future__ import annotations

from dataclasses import dataclass, field

from dragoman_server.errors import (
    DeadlineUnreachableError,
    FieldViolation,
    InvalidArgumentError,
)
from dragoman_server.limits import SchedulerLimits
from dragoman_server.queue import WaitingQueue
from dragoman_server.request import Call
from dragoman_server.room import QueueState, check_room
from dragoman_server.sentences import CallState, Lane, Sentence, rows_of
from dragoman_server.speed import Speed


@dataclass
class _Lane:
    """What waits and runs of one lane.

    Attributes:
        queue: Its sentences that wait.
        num_waiting_rows: Rows that they will take.
        num_rows: Rows of those that run.
        held_back: Steps for which it has been held back so that several join together.
    """

    queue: WaitingQueue[Sentence] = field(default_factory=lambda: WaitingQueue(lambda one: one.num_rows))
    num_waiting_rows: int = 0
    num_rows: int = 0
    held_back: int = 0


class _Prefill:
    """What is encoded in one step; sentences are packed, so that a short one costs its own tokens beside a long one."""

    def __init__(self, limits: SchedulerLimits, speed: Speed) -> None:
        self._max_tokens: float = limits.max_prefill_tokens
        if speed.prefill_token_seconds > 0:
            self._max_tokens = min(self._max_tokens, limits.max_prefill_seconds / speed.prefill_token_seconds)
        self._num_tokens = 0

    def takes(self, sentence: Sentence) -> bool:
        """Adds one more sentence, unless it is too much beside those that it holds."""
        num_tokens = self._num_tokens + len(sentence.work.source_ids)
        if self._num_tokens and num_tokens > self._max_tokens:
            return False
        self._num_tokens = num_tokens
        return True


class Admission:
    """Two lanes of waiting sentences and the rows that they share.

    Interactive sentences come first. Each lane leaves the other an eighth of the rows, so that neither a job of a million
    lines nor a crowd of callers ever shuts the other out; inside a lane, no call ends later than if callers shared its rows
    evenly. A sentence whose turn it is and that needs more rows than are free is not overtaken, or it might wait for ever.

    Args:
        limits: How much may wait and run.
        speed: What the model has been measured to take.
    """

    def __init__(self, limits: SchedulerLimits, speed: Speed) -> None:
        self._limits = limits
        self._speed = speed
        self._interactive, self._bulk = _Lane(), _Lane()
        self._lanes = {Lane.INTERACTIVE: self._interactive, Lane.BULK: self._bulk}

    @property
    def num_waiting(self) -> int:
        """Sentences that wait."""
        return len(self._interactive.queue) + len(self._bulk.queue)

    @property
    def num_rows(self) -> int:
        """Rows of all sentences that run."""
        return self._interactive.num_rows + self._bulk.num_rows

    def lane_rows(self, lane: Lane) -> int:
        """Returns the rows of a lane's sentences that run."""
        return self._lanes[lane].num_rows

    def has_any(self, lane: Lane) -> bool:
        """Whether sentences of a lane wait or run."""
        return self._lanes[lane].num_rows > 0 or len(self._lanes[lane].queue) > 0

    def queue_state(self) -> QueueState:
        """Returns how the queue stands."""
        is_bulk_waiting = len(self._bulk.queue) > 0
        if not self._speed.is_known:
            return QueueState(self.num_waiting, is_bulk_waiting)
        # Beside interactive sentences that wait, bulk has no more than the rows that these leave it, or one sentence's.
        of_rows = max(1, self._limits.num_reserved_rows) if self._interactive.queue else None
        return QueueState(
            self.num_waiting,
            is_bulk_waiting,
            interactive_seconds=self._speed.row_wait(self._interactive.num_waiting_rows),
            bulk_seconds=self._speed.row_wait(self._bulk.num_waiting_rows, of_rows),
            bulk_row_seconds=self._speed.row_wait(self._bulk.queue.num_callers, of_rows),
        )

    def check_room(self, count: int, lane: Lane, num_rows: int) -> None:
        """Refuses a call whose ``count`` sentences don't all fit, or would wait for too long.

        Raises:
            QueueFullError: It says when to try again.
        """
        check_room(self._limits, self.queue_state(), count, lane, num_rows=num_rows)

    def check_widths(self, call: Call) -> None:
        """Refuses a call with a sentence that not even an empty batch would hold.

        Raises:
            InvalidArgumentError: There is one.
        """
        limit = self._limits.max_batch_size
        widest = max(map(rows_of, call.work), default=0)
        if widest > limit:
            description = (
                f"a sentence takes {widest} rows of the batch; it has {limit}, ask for fewer beams or samples"
            )
            raise InvalidArgumentError(violations=[FieldViolation("options", description)])

    def check_deadline(self, lane: Lane, num_rows: int, seconds_left: float) -> None:
        """Refuses a call of ``num_rows`` rows that can't be done in time, once there are measurements to say so.

        Raises:
            DeadlineUnreachableError: The rows before it and its own take longer.
        """
        if not self._speed.is_known:
            return
        # Even sharing would do at most as much for each other caller as for this one, which here ends no later than by it.
        queue = self._lanes[lane].queue
        ahead = min(self._lanes[lane].num_waiting_rows, queue.num_callers * num_rows)
        free = self._limits.max_batch_size - self.num_rows
        wait = self._speed.row_wait(max(0, ahead + num_rows - free))
        if wait > seconds_left:
            raise DeadlineUnreachableError(wait, seconds_left)

    def add(self, state: CallState, sentences: list[Sentence]) -> None:
        """Queues a call's sentences, which fit."""
        lane = self._lanes[state.lane]
        lane.queue.add(state.caller, sentences)
        lane.num_waiting_rows += sum(sentence.num_rows for sentence in sentences)

    def remove(self, state: CallState) -> None:
        """Forgets a call's sentences that wait."""
        lane = self._lanes[state.lane]
        removed = lane.queue.remove(state.caller, lambda sentence: sentence.state is state)
        lane.num_waiting_rows -= sum(sentence.num_rows for sentence in removed)

    def leave(self, sentence: Sentence) -> None:
        """Takes back the rows of a sentence that ran."""
        self._lanes[sentence.state.lane].num_rows -= sentence.num_rows

    def admit(self, *, bulk: bool) -> list[Sentence]:
        """Returns the sentences that join now, each of which has its rows from here on.

        Args:
            bulk: Whether bulk sentences may be among them.
        """
        admitted: list[Sentence] = []
        prefill = _Prefill(self._limits, self._speed)
        interactive_lane, bulk_lane = self._interactive, self._bulk
        # Without this a wide bulk sentence might find too few free rows at every step.
        if bulk and bulk_lane.queue and bulk_lane.num_rows == 0:
            if not self._fits(bulk_lane):
                return []
            self._take_next(bulk_lane, prefill, admitted)
        is_blocked = self._fill(interactive_lane, prefill, admitted)
        if bulk and not is_blocked:
            self._fill(bulk_lane, prefill, admitted)
        return admitted

    def _fill(self, lane: _Lane, prefill: _Prefill, admitted: list[Sentence]) -> bool:
        """Admits of a lane what fits; returns whether it waits for rows that nobody else may take."""
        if self._should_hold_back(lane):
            lane.held_back += 1
            return True
        lane.held_back = 0
        while lane.queue:
            if not self._fits(lane):
                return lane.queue.peek().num_rows > self._num_free
            if not self._take_next(lane, prefill, admitted):
                return False
        return False

    def _take_next(self, lane: _Lane, prefill: _Prefill, admitted: list[Sentence]) -> bool:
        sentence = lane.queue.peek()
        if not prefill.takes(sentence):
            return False
        lane.queue.pop()
        lane.num_waiting_rows -= sentence.num_rows
        lane.num_rows += sentence.num_rows
        admitted.append(sentence)
        return True

    @property
    def _num_free(self) -> int:
        return self._limits.max_batch_size - self.num_rows

    def _room(self, lane: _Lane) -> int:
        """Returns the rows that a lane may take now."""
        bulk_lane = self._bulk
        # Bulk always leaves room, since nobody knows when a caller comes; callers do where there is bulk.
        leaves_room = lane is bulk_lane or bulk_lane.num_rows > 0 or len(bulk_lane.queue) > 0
        reserved = self._limits.num_reserved_rows if leaves_room else 0
        return min(self._num_free, self._limits.max_batch_size - reserved - lane.num_rows)

    def _fits(self, lane: _Lane) -> bool:
        num_rows = lane.queue.peek().num_rows
        # Even a lane that has none yet may take rows beyond its own: a wide sentence must get its turn.
        return num_rows <= self._room(lane) or (lane.num_rows == 0 and num_rows <= self._num_free)

    def _should_hold_back(self, lane: _Lane) -> bool:
        # Single sentences would join at nearly every step, each with an encoder pass of its own that all rows wait for. An
        # eighth of the batch joins nearly as cheaply as one.
        room, group = self._room(lane), self._limits.num_reserved_rows
        if len(lane.queue) > room:  # until so many rows have come free
            return 0 < room < group and lane.held_back < self._limits.max_admission_delay
        # Until so many sentences have come; who comes while little runs never waits.
        few_wait = 0 < len(lane.queue) < group
        return few_wait and lane.num_rows >= group and lane.held_back < self._limits.max_gathering_delay
