"""What the scheduler knows of a call and of each of its sentences, and what it says of them."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field

from dragoman_model.plan import AttentionOutput, FinishedSentence, FinishReason
from dragoman_server.errors import CallError
from dragoman_server.limits import SchedulerLimits
from dragoman_server.request import Attend, Call, Decode, Work

Result = FinishedSentence | AttentionOutput


class Lane(enum.IntEnum):
    """Who waits for a sentence: somebody, or a job that asked for many."""

    INTERACTIVE = 0
    BULK = 1


@dataclass
class CallState:
    """A call that has not ended.

    Attributes:
        call: What was asked for.
        lane: Of all its sentences.
        queued: When it came into the queue.
        results: One for each sentence, None until it ends.
        remaining: Sentences that have not ended.
        has_token: Whether a step has run for one of them.
        running: Its sentences in the batch, by the batch's ids.
    """

    call: Call
    lane: Lane
    queued: float
    results: list[Result | None]
    remaining: int
    has_token: bool = False
    running: set[int] = field(default_factory=set)

    @property
    def has_started(self) -> bool:
        """Whether one of its sentences is or was in the batch."""
        return bool(self.running) or any(result is not None for result in self.results)

    @property
    def caller(self) -> int:
        """Names who takes turns: the call itself, or the bulk stream that it is an item of."""
        return self.call.id if self.call.stream is None else self.call.stream


@dataclass(frozen=True, eq=False)
class Sentence:
    """The work at ``index`` of a call, and how many rows of the batch it takes."""

    state: CallState
    index: int
    num_rows: int

    @property
    def work(self) -> Work:
        """What is to be done."""
        return self.state.call.work[self.index]


@dataclass(frozen=True)
class Outcome:
    """How a call ended: one result for each of its sentences, or an error."""

    call: Call
    results: tuple[Result, ...] = ()
    error: CallError | None = None


@dataclass(frozen=True)
class SentenceProgress:
    """What is sure of a sentence's translation.

    Attributes:
        call: The sentence's.
        index: Which of the call's sentences.
        token_ids: What its target tokens start with.
        is_complete: They are all.
    """

    call: Call
    index: int
    token_ids: tuple[int, ...]
    is_complete: bool


def lane_of(call: Call, limits: SchedulerLimits) -> Lane:
    """Returns the lane of a call: bulk are the items of a stream, and several sentences that take much together."""
    if call.stream is not None:
        return Lane.BULK
    is_small = len(call.work) == 1 or sum(map(rows_of, call.work)) <= limits.num_reserved_rows
    return Lane.INTERACTIVE if is_small else Lane.BULK


def rows_of(work: Work) -> int:
    """Returns the rows of the batch that a sentence takes; attention is made in one pass, without any."""
    return work.options.num_rows if isinstance(work, Decode) else 0


def attend_of(sentence: Sentence) -> Attend:
    """Returns the attention that is wanted of a sentence: the work itself, or that of the translation just made."""
    work, finished = sentence.work, sentence.state.results[sentence.index]
    if isinstance(work, Attend):
        return work
    assert isinstance(finished, FinishedSentence)
    return attend_to(work.source_ids, finished, heads=work.attention_heads)


def attend_to(
    source_ids: tuple[int, ...], finished: FinishedSentence, *, heads: tuple[tuple[int, int], ...] = ()
) -> Attend:
    """Returns the attention between a sentence and its translation, of every head or the mean of some."""
    best, end_of_sentence = finished.best, source_ids[-1]
    # So that there is a row in which the last word was read, even where the limit cut the translation.
    ending = () if best.finish_reason is FinishReason.EOS else (end_of_sentence,)
    return Attend(source_ids=source_ids, target_ids=(*best.token_ids, *ending), heads=heads)
