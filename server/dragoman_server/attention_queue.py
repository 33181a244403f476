"""Which sentences have their attention computed at the next step."""

from __future__ import annotations

from dragoman_model.plan import FinishedSentence
from dragoman_server.errors import QueueFullError
from dragoman_server.limits import SchedulerLimits
from dragoman_server.queue import WaitingQueue
from dragoman_server.request import Attend, Decode
from dragoman_server.sentences import CallState, Sentence, attend_of


class AttentionQueue:
    """Sentences that wait for their attention: those of calls that ask for nothing else, and translations that are wanted with it.

    The former have a bound of their own. The latter were let in to be translated and are never refused here.

    Args:
        limits: How much may wait and be computed in one step.
    """

    def __init__(self, limits: SchedulerLimits) -> None:
        self._limits = limits
        self._waiting: WaitingQueue[Sentence] = WaitingQueue()
        self._num_translated = 0  # of those that wait

    def __len__(self) -> int:
        return len(self._waiting)

    def check_room(self, count: int) -> None:
        """Refuses a call whose ``count`` sentences don't all fit.

        Raises:
            QueueFullError: They don't.
        """
        num_waiting, max_size = (
            len(self._waiting) - self._num_translated,
            self._limits.max_attention_queue_size,
        )
        if num_waiting + count > max_size:
            raise QueueFullError(
                f"the queue is full: {num_waiting} sentences wait for their attention, at most {max_size} may"
            )

    def add(self, state: CallState, sentences: list[Sentence]) -> None:
        """Queues a call's sentences, which fit."""
        self._waiting.add(state.caller, sentences)

    def add_translated(self, sentence: Sentence, finished: FinishedSentence) -> None:
        """Queues a sentence whose translation has just ended, which its call keeps meanwhile."""
        sentence.state.results[sentence.index] = finished
        self._waiting.add(sentence.state.caller, [sentence])
        self._num_translated += 1

    def remove(self, state: CallState) -> None:
        """Forgets a call's sentences."""
        removed = self._waiting.remove(state.caller, lambda sentence: sentence.state is state)
        self._num_translated -= sum(isinstance(sentence.work, Decode) for sentence in removed)

    def take(self) -> list[tuple[Sentence, Attend]]:
        """Takes what one step computes: one sentence at least, and more as long as they are few and short."""
        taken: list[tuple[Sentence, Attend]] = []
        num_tokens = 0
        while self._waiting and len(taken) < self._limits.max_attends_per_step:
            attend = attend_of(self._waiting.peek())
            num_tokens += len(attend.source_ids) + len(attend.target_ids)
            if taken and num_tokens > self._limits.max_attend_tokens:
                break
            sentence = self._waiting.pop()
            self._num_translated -= isinstance(sentence.work, Decode)
            taken.append((sentence, attend))
        return taken
