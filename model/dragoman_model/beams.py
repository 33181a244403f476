"""One sentence's search, as plain data: what its rows have written and which translations have ended.

`RowSearch` lets each row write a translation of its own (greedy search, or one sample a row). `BeamSearch` keeps the best
hypotheses of all rows together.
"""

from __future__ import annotations

import bisect
import math
from collections.abc import Iterable
from collections.abc import Sequence as SequenceOf
from dataclasses import dataclass, field
from typing import NamedTuple

from dragoman_model.noise import SentenceNoise
from dragoman_model.plan import FinishedSentence, FinishReason, Hypothesis, Sequence


@dataclass(slots=True)
class _Row:
    """What a row has written, while it runs."""

    token_ids: list[int] = field(default_factory=list)
    log_probabilities: list[float] = field(default_factory=list)
    finish_reason: FinishReason | None = None


class RowSearch:
    """A sentence whose rows don't know of each other.

    Attributes:
        sequence: What is searched for.
        is_done: Every row has ended.
        num_steps: Tokens that a running row has written.
        noise: What samples are drawn with; None where nothing is sampled.
    """

    def __init__(self, sequence: Sequence, eos_id: int) -> None:
        self.sequence = sequence
        self.is_done = False
        self.num_steps = 0
        self.noise = SentenceNoise(sequence) if sequence.options.is_sampling else None
        self._eos_id = eos_id
        self._rows = [_Row() for _ in range(sequence.options.num_rows)]

    def written(self) -> list[SequenceOf[int]]:
        """Returns what each row has written."""
        return [row.token_ids for row in self._rows]

    def stable(self) -> SequenceOf[int]:
        """Returns the tokens that the best translation is sure to start with: of samples, those that all share."""
        return common_start(self.written())

    def advance(self, token_ids: Iterable[int], log_probabilities: Iterable[float]) -> None:
        """Takes the next token of each row; that of a row which has ended is passed over."""
        max_length = self.sequence.max_length
        self.num_steps += 1
        self.is_done = True
        for row, token_id, log_probability in zip(self._rows, token_ids, log_probabilities, strict=True):
            if row.finish_reason is not None:
                continue
            row.token_ids.append(token_id)
            row.log_probabilities.append(log_probability)
            if token_id == self._eos_id:
                row.finish_reason = FinishReason.EOS
            elif self.num_steps >= max_length:
                row.finish_reason = FinishReason.LENGTH
            else:
                self.is_done = False

    def advance_one(self, token_id: int, log_probability: float) -> None:
        """Takes the next token of a sentence with one row, as `advance` does of several, which takes three times as long."""
        row = self._rows[0]
        self.num_steps += 1
        row.token_ids.append(token_id)
        row.log_probabilities.append(log_probability)
        if token_id == self._eos_id:
            row.finish_reason = FinishReason.EOS
            self.is_done = True
        elif self.num_steps >= self.sequence.max_length:
            row.finish_reason = FinishReason.LENGTH
            self.is_done = True

    def result(self) -> FinishedSentence:
        """Returns the rows' translations, best first; all must have ended."""
        hypotheses = []
        for row in self._rows:
            assert row.finish_reason is not None
            hypotheses.append(
                Hypothesis(tuple(row.token_ids), tuple(row.log_probabilities), row.finish_reason)
            )
        if len(hypotheses) > 1:
            alpha = self.sequence.options.length_penalty
            hypotheses.sort(key=lambda one: normalized(one.score, len(one.token_ids), alpha), reverse=True)
        return FinishedSentence(self.sequence.id, tuple(hypotheses))


class Live(NamedTuple):
    """A hypothesis that goes on: what it has written, and what that has come to.

    Attributes:
        token_ids: Its tokens.
        log_probabilities: Of each, under the unmodified model.
        rank_sum: Sum of what each adds to its rank: the same, but for a repetition penalty.
    """

    token_ids: tuple[int, ...] = ()
    log_probabilities: tuple[float, ...] = ()
    rank_sum: float = 0.0


class Candidate(NamedTuple):
    """A token that continues the hypothesis in row ``parent``."""

    parent: int
    token_id: int
    rank_log_probability: float
    log_probability: float


class BeamSearch:
    """A sentence's best hypotheses, side by side.

    Each step brings 2 × beam candidates, so that at least as many as there are beams go on; those that end join the
    finished. Hypotheses rank by sum / length^α. The sum is that of the logits which the choice was made from: with a
    repetition penalty the penalised ones, since otherwise a hypothesis that repeats itself would win in the end over
    those that the penalty made. What is reported is the unmodified model's log-probabilities.

    Attributes:
        sequence: What is searched for.
        is_done: No live hypothesis can still enter the best ``num_hypotheses``, or none lives.
        live: The hypothesis in each row; None where there is none.
    """

    def __init__(self, sequence: Sequence, eos_id: int) -> None:
        self.sequence = sequence
        self.is_done = False
        self.live: list[Live | None] = [Live(), *[None] * (sequence.options.beam_size - 1)]
        self._eos_id = eos_id
        self._num_steps = 0
        self._finished: list[tuple[float, Hypothesis]] = []  # with the negated rank, best first

    def written(self) -> list[SequenceOf[int]]:
        """Returns what the hypothesis in each row has written; nothing where there is none."""
        return [() if live is None else live.token_ids for live in self.live]

    def stable(self) -> SequenceOf[int]:
        """Returns the tokens that the best translation is sure to start with.

        It will be one that continues a live hypothesis, or the best of those that have finished: no other of them can
        come before that one any more.
        """
        best = [hypothesis.token_ids for _, hypothesis in self._finished[:1]]
        return common_start([*best, *(live.token_ids for live in self.live if live is not None)])

    def sums(self) -> list[float]:
        """Returns what the hypothesis in each row has come to; −∞ where there is none."""
        return [-math.inf if live is None else live.rank_sum for live in self.live]

    def last_ids(self) -> list[int]:
        """Returns the token that each row reads next; any where there is no hypothesis."""
        return [0 if live is None else live.token_ids[-1] for live in self.live]

    def advance(self, candidates: Iterable[Candidate]) -> list[tuple[int, int]]:
        """Takes a step's candidates, best first.

        Returns:
            (parent's row, row) for each row whose hypothesis continues another row's. A child takes its parent's row where
            it can, so that little has to be moved.
        """
        self._num_steps += 1
        children: list[tuple[int, Live]] = []
        for candidate in candidates:
            if candidate.rank_log_probability == -math.inf:
                continue
            if candidate.token_id == self._eos_id:
                self._finish(self._extend(candidate), FinishReason.EOS)
            elif len(children) < len(self.live):
                children.append((candidate.parent, self._extend(candidate)))
        if self._num_steps >= self.sequence.max_length:
            for _, child in children:
                self._finish(child, FinishReason.LENGTH)
            children = []
        # What can't enter any more ranks behind all that can, and so do its continuations: without it these go on as they would.
        children = [(parent, child) for parent, child in children if self._can_enter(child)]
        self.is_done = not children
        return self._place(children)

    def result(self) -> FinishedSentence:
        """Returns the best translations that ended, best first."""
        return FinishedSentence(self.sequence.id, tuple(hypothesis for _, hypothesis in self._finished))

    def _extend(self, candidate: Candidate) -> Live:
        parent = self.live[candidate.parent]
        assert parent is not None
        return Live(
            (*parent.token_ids, candidate.token_id),
            (*parent.log_probabilities, candidate.log_probability),
            parent.rank_sum + candidate.rank_log_probability,
        )

    def _finish(self, live: Live, reason: FinishReason) -> None:
        options = self.sequence.options
        rank = normalized(live.rank_sum, len(live.token_ids), options.length_penalty)
        hypothesis = Hypothesis(live.token_ids, live.log_probabilities, reason)
        bisect.insort(self._finished, (-rank, hypothesis), key=lambda entry: entry[0])
        del self._finished[options.num_hypotheses :]

    def _can_enter(self, live: Live) -> bool:
        """Returns whether a live hypothesis can still come to stand among the best ``num_hypotheses``."""
        options = self.sequence.options
        if len(self._finished) < options.num_hypotheses:
            return True
        alpha = options.length_penalty
        # The sum only falls. With α ≥ 0 the greatest length makes most of what is left of it, with α < 0 the next.
        length = self.sequence.max_length if alpha >= 0 else self._num_steps + 1
        return normalized(live.rank_sum, length, alpha) > -self._finished[-1][0]

    def _place(self, children: list[tuple[int, Live]]) -> list[tuple[int, int]]:
        rows: list[Live | None] = [None] * len(self.live)
        homeless = []
        for parent, child in children:
            if rows[parent] is None:
                rows[parent] = child
            else:
                homeless.append((parent, child))
        free = [row for row, live in enumerate(rows) if live is None]
        moves = []
        for row, (parent, child) in zip(free, homeless, strict=False):
            rows[row] = child
            moves.append((parent, row))
        self.live = rows
        return moves


def normalized(total: float, length: int, alpha: float) -> float:
    """Returns total / length^α, by which hypotheses rank (Wu et al. 2016, eq. 14, without its offset)."""
    return total / length**alpha


def common_start(sequences: SequenceOf[SequenceOf[int]]) -> SequenceOf[int]:
    """Returns what all of one or more sequences start with."""
    length = 0
    for tokens in zip(*sequences):  # to the end of the shortest
        if any(token != tokens[0] for token in tokens):
            break
        length += 1
    return sequences[0][:length]
