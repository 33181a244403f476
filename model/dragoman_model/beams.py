"""One sentence's search, as plain data: what its rows have written and which translations have ended.

`RowSearch` lets each row write a translation of its own (greedy search, or one sample a row). `BeamSearch` keeps the best
hypotheses of all rows together.
"""

from __future__ import annotations

import bisect
import math
from collections.abc import Sequence as SequenceOf
from dataclasses import dataclass, field
from typing import TypeAlias

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

    def advance(self, token_ids: SequenceOf[int], log_probabilities: SequenceOf[float]) -> None:
        """Takes the next token of each row; that of a row which has ended is passed over."""
        self.num_steps += 1
        is_last = self.num_steps >= self.sequence.max_length
        is_done = True
        for index, row in enumerate(self._rows):
            if row.finish_reason is not None:
                continue
            token_id = token_ids[index]
            row.token_ids.append(token_id)
            row.log_probabilities.append(log_probabilities[index])
            if token_id == self._eos_id:
                row.finish_reason = FinishReason.EOS
            elif is_last:
                row.finish_reason = FinishReason.LENGTH
            else:
                is_done = False
        self.is_done = is_done

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


# What a hypothesis has written, from its last token back: what it wrote before, the token, and its log-probability under the
# unmodified model. A child adds a link to its parent's and copies nothing.
_Written: TypeAlias = "tuple[_Written, int, float] | None"


class BeamSearch:
    """A sentence's best hypotheses, side by side.

    Each step brings 2 × beam candidates, so that at least as many as there are beams go on; those that end join the
    finished. Hypotheses rank by sum / length^α. The sum is that of the logits which the choice was made from: with a
    repetition penalty the penalised ones, since otherwise a hypothesis that repeats itself would win in the end over
    those that the penalty made. What is reported is the unmodified model's log-probabilities.

    Attributes:
        sequence: What is searched for.
        is_done: No live hypothesis can still enter the best ``num_hypotheses``, or none lives.
        sums: What the live hypothesis in each row has come to; −∞ where there is none.
        last_ids: The token that each row reads next; any where there is no hypothesis.
    """

    def __init__(self, sequence: Sequence, eos_id: int) -> None:
        options = sequence.options
        self.sequence = sequence
        self.is_done = False
        self.sums: list[float] = [0.0, *[-math.inf] * (options.beam_size - 1)]
        self.last_ids: list[int] = [0] * options.beam_size
        self._written: list[_Written] = [None] * options.beam_size
        self._eos_id = eos_id
        self._num_steps = 0
        self._finished: list[tuple[float, Hypothesis]] = []  # with the negated rank, best first
        # The sum only falls. With α ≥ 0 the greatest length makes most of what is left of it, with α < 0 the next.
        self._most = (
            float(sequence.max_length**options.length_penalty) if options.length_penalty >= 0 else None
        )

    def written(self) -> list[SequenceOf[int]]:
        """Returns what the hypothesis in each row has written; nothing where there is none."""
        return [_unlinked(written)[0] for written in self._written]

    def stable(self) -> SequenceOf[int]:
        """Returns the tokens that the best translation is sure to start with.

        It will be one that continues a live hypothesis, or the best of those that have finished: no other of them can
        come before that one any more.
        """
        best = [hypothesis.token_ids for _, hypothesis in self._finished[:1]]
        live = zip(self._written, self.sums)
        return common_start([*best, *(_unlinked(written)[0] for written, sum_ in live if sum_ != -math.inf)])

    def advance(
        self,
        parents: SequenceOf[int],
        token_ids: SequenceOf[int],
        ranks: SequenceOf[float],
        log_probabilities: SequenceOf[float],
    ) -> list[tuple[int, int]]:
        """Takes a step's candidates, best first: each a token that continues the hypothesis in a parent's row.

        Args:
            parents: Rows.
            token_ids: Tokens.
            ranks: What each adds to its parent's sum; −∞ where a candidate may not be.
            log_probabilities: Under the unmodified model.

        Returns:
            (parent's row, row) for each row whose hypothesis continues another row's. A child takes its parent's row where
            it can, so that little has to be moved.
        """
        self._num_steps += 1
        before, sums, eos_id, room = self._written, self.sums, self._eos_id, len(self.sums)
        children: list[tuple[int, float, int, float]] = []  # the parent, and what becomes of it
        for parent, token_id, rank, log_probability in zip(parents, token_ids, ranks, log_probabilities):
            if rank == -math.inf:  # nothing behind it may be either
                break
            if token_id == eos_id:
                ended = before[parent], token_id, log_probability
                self._finish(ended, sums[parent] + rank, FinishReason.EOS)
            elif room:
                room -= 1
                children.append((parent, sums[parent] + rank, token_id, log_probability))
        if self._num_steps >= self.sequence.max_length:
            for parent, total, token_id, log_probability in children:
                self._finish((before[parent], token_id, log_probability), total, FinishReason.LENGTH)
            children = []
        if len(self._finished) == self.sequence.options.num_hypotheses:
            # What can't enter any more ranks behind all that can, and so do its continuations: without it these go on as they would.
            least = -self._finished[-1][0]
            most = self._most or (self._num_steps + 1) ** self.sequence.options.length_penalty
            children = [child for child in children if child[1] / most > least]
        self.is_done = not children
        return self._place(children)

    def result(self) -> FinishedSentence:
        """Returns the best translations that ended, best first."""
        return FinishedSentence(self.sequence.id, tuple(hypothesis for _, hypothesis in self._finished))

    def _finish(self, written: _Written, total: float, reason: FinishReason) -> None:
        options = self.sequence.options
        rank = normalized(total, self._num_steps, options.length_penalty)
        if len(self._finished) == options.num_hypotheses and -rank >= self._finished[-1][0]:
            return
        hypothesis = Hypothesis(*_unlinked(written), reason)
        bisect.insort(self._finished, (-rank, hypothesis), key=lambda entry: entry[0])
        del self._finished[options.num_hypotheses :]

    def _place(self, children: list[tuple[int, float, int, float]]) -> list[tuple[int, int]]:
        """Gives each child its parent's row, or a free one; returns the latter's (parent's row, row)."""
        width, before = len(self.sums), self._written
        self.sums = sums = [-math.inf] * width
        self.last_ids = last_ids = [0] * width
        written: list[_Written] = [None] * width
        self._written = written
        moves, homeless = [], []
        for child in children:
            row, total, token_id, log_probability = child
            if written[row] is not None:
                homeless.append(child)
                continue
            sums[row], last_ids[row] = total, token_id
            written[row] = before[row], token_id, log_probability
        row = 0
        for parent, total, token_id, log_probability in homeless:
            while written[row] is not None:
                row += 1
            sums[row], last_ids[row] = total, token_id
            written[row] = before[parent], token_id, log_probability
            moves.append((parent, row))
        return moves


def _unlinked(written: _Written) -> tuple[tuple[int, ...], tuple[float, ...]]:
    """Returns tokens and their log-probabilities, from the first on."""
    token_ids: list[int] = []
    log_probabilities: list[float] = []
    while written is not None:
        written, token_id, log_probability = written
        token_ids.append(token_id)
        log_probabilities.append(log_probability)
    return tuple(reversed(token_ids)), tuple(reversed(log_probabilities))


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
