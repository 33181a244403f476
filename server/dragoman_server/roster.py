"""The sentences in the batch: under which ids, what the batch is told of each, whose rows it still holds."""

from __future__ import annotations

import itertools
from collections.abc import Iterable

from dragoman_model.plan import ForcedDecode, Sequence
from dragoman_server.request import Attend, Decode
from dragoman_server.sentences import CallState, Lane, Sentence
from dragoman_server.speed import RowSteps


class Roster:
    """Knows the sentences in the batch by the ids that they have there."""

    def __init__(self) -> None:
        self._ids = itertools.count()
        self._running: dict[int, Sentence] = {}
        self._attending: dict[int, Sentence] = {}  # whose attention is on its way
        self._abandoned: set[int] = set()  # of calls that ended before, whose rows the batch still holds
        self._row_steps = RowSteps()

    @property
    def has_rows(self) -> bool:
        """Whether the batch holds rows, be it of calls that have ended."""
        return bool(self._running or self._abandoned)

    def start(self, sentence: Sentence, work: Decode) -> Sequence:
        """Takes in a sentence that gets its rows with the next step, and returns what the batch is told of it."""
        sentence_id = self._enter(sentence, self._running)
        self._row_steps.begin(sentence_id, sentence.state.lane)
        return Sequence(
            id=sentence_id,
            source_ids=work.source_ids,
            max_length=work.max_length,
            options=work.options,
            prefix_ids=work.prefix_ids,
            numbers=work.numbers,
            lane=sentence.state.lane,
            report_progress=sentence.state.call.reports_progress,
        )

    def start_attention(self, sentence: Sentence, work: Attend) -> ForcedDecode:
        """Takes in a sentence whose attention the next step computes, and returns what the batch is told of it."""
        return ForcedDecode(
            id=self._enter(sentence, self._attending),
            source_ids=work.source_ids,
            target_ids=work.target_ids,
            kinds=work.kinds,
            heads=work.heads,
        )

    def count_step(self, lanes: Iterable[Lane]) -> None:
        """Counts a step of these lanes' rows."""
        self._row_steps.count(lanes)

    def num_steps(self, sentence_id: int) -> int:
        """Returns for how many steps a sentence has had its rows."""
        return self._row_steps.since(sentence_id)

    def running(self, sentence_id: int) -> Sentence | None:
        """Returns the sentence that has rows under this id; None where its call has ended."""
        return self._running.get(sentence_id)

    def leave(self, sentence_id: int) -> Sentence | None:
        """Lets go of a sentence that has left its rows, and returns it; None where its call had ended before."""
        self._abandoned.discard(sentence_id)
        self._row_steps.end(sentence_id)
        return self._exit(sentence_id, self._running)

    def leave_attention(self, sentence_id: int) -> Sentence | None:
        """Lets go of a sentence whose attention has ended, and returns it; None where its call had ended before."""
        return self._exit(sentence_id, self._attending)

    def abandon(self, state: CallState) -> list[Sentence]:
        """Lets go of a call's sentences before their time, and returns those whose rows are to be taken back."""
        abandoned = []
        for sentence_id in list(state.running):
            self.leave_attention(sentence_id)
            sentence = self.leave(sentence_id)
            if sentence is not None:
                self._abandoned.add(sentence_id)
                abandoned.append(sentence)
        return abandoned

    def take_abandoned(self) -> tuple[int, ...]:
        """Returns the ids whose rows the batch is to take back, since it was last asked."""
        sentence_ids = tuple(sorted(self._abandoned))
        self._abandoned.clear()
        return sentence_ids

    def calls(self) -> list[CallState]:
        """Returns the calls that have a sentence in the batch."""
        in_batch = (*self._running.values(), *self._attending.values())
        return list({id(sentence.state): sentence.state for sentence in in_batch}.values())

    def _enter(self, sentence: Sentence, group: dict[int, Sentence]) -> int:
        sentence_id = next(self._ids)
        group[sentence_id] = sentence
        sentence.state.running.add(sentence_id)
        return sentence_id

    def _exit(self, sentence_id: int, group: dict[int, Sentence]) -> Sentence | None:
        sentence = group.pop(sentence_id, None)
        if sentence is not None:
            sentence.state.running.discard(sentence_id)
        return sentence
