"""How fast a model is, as measured, and what that says about waiting."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from dragoman_model.plan import BatchOutput
from dragoman_server.sentences import Lane

# Fewer steps say little: the first ones of a process are slow.
MIN_MEASURED_STEPS = 50
# Of full batches fewer do: they take long, and the first, which encodes all that it decodes, not as any other.
_MIN_FULL_STEPS = 8
# A process that was stopped for a while must not count as slow ever after.
_MAX_RATIO = 4.0


@dataclass
class Average:
    """A mean of the last values, older ones counting less.

    Attributes:
        window: Values that it looks back on.
        value: The mean; 0 before the first.
        count: Values so far.
    """

    window: int
    value: float = 0.0
    count: int = 0

    def add(self, value: float) -> None:
        """Takes one more; one far above the mean counts as some times the mean."""
        self.count += 1
        if self.count > 1:
            value = min(value, _MAX_RATIO * self.value)
        self.value += (value - self.value) / min(self.count, self.window)


class Speed:
    """What steps, sentences and prefills have taken lately.

    Args:
        max_batch_size: Rows that decode at once.
    """

    def __init__(self, max_batch_size: int) -> None:
        self._max_batch_size = max_batch_size
        self._step_seconds = Average(64)
        self._full_step_seconds = Average(64)  # of those with half the rows or more
        self._sentence_steps = Average(256)
        self._prefill_token_seconds = Average(16)

    @property
    def is_known(self) -> bool:
        """Whether enough has been measured for ``row_wait`` to mean something."""
        return self._step_seconds.count >= MIN_MEASURED_STEPS and self._sentence_steps.count > 0

    @property
    def prefill_token_seconds(self) -> float:
        """Seconds that encoding takes a token; 0 before any was measured."""
        return self._prefill_token_seconds.value

    def observe(self, output: BatchOutput, elapsed: float = 0.0) -> None:
        """Takes what a step took.

        Args:
            output: What it gave.
            elapsed: Seconds since the one before it ended, those beside the model's passes included.
        """
        prefill = output.prefill
        if prefill is not None:
            num_tokens = prefill.real_tokens + prefill.padding_tokens
            self._prefill_token_seconds.add(prefill.seconds / max(1, num_tokens))
        if output.decode is not None:
            seconds = max(elapsed, step_seconds(output))
            self._step_seconds.add(seconds)
            if output.decode.rows >= self._max_batch_size / 2:
                self._full_step_seconds.add(seconds)

    def observe_sentence(self, num_steps: int) -> None:
        """Takes for how many steps a sentence had its rows."""
        self._sentence_steps.add(num_steps)

    def row_wait(self, num_rows: int, of_rows: int | None = None) -> float:
        """Returns after how many seconds so many rows will have come free in a full batch, or among ``of_rows`` of its rows.

        A row is busy for the steps of a sentence, so that a batch of B rows sets B / steps of them free at each step. What is
        known of smaller batches, whose steps take less, stands in until some full ones have been seen.
        """
        is_full_known = self._full_step_seconds.count >= _MIN_FULL_STEPS
        step = self._full_step_seconds if is_full_known else self._step_seconds
        return num_rows * self._sentence_steps.value * step.value / (of_rows or self._max_batch_size)


class RowSteps:
    """For how many steps sentences have had their rows; those in which their lane stood still don't count."""

    def __init__(self) -> None:
        self._counts: Counter[Lane] = Counter()
        self._begun: dict[int, tuple[Lane, int]] = {}

    def count(self, lanes: Iterable[Lane]) -> None:
        """Counts a step of these lanes' rows."""
        self._counts.update(lanes)

    def begin(self, sentence_id: int, lane: Lane) -> None:
        """Takes note of a sentence that has its rows from the next step on."""
        self._begun[sentence_id] = lane, self._counts[lane]

    def since(self, sentence_id: int) -> int:
        """Returns how many steps have been counted since a sentence began; 0 where it isn't known any more."""
        lane, count = self._begun.get(sentence_id, (Lane.INTERACTIVE, self._counts[Lane.INTERACTIVE]))
        return self._counts[lane] - count

    def end(self, sentence_id: int) -> None:
        """Forgets a sentence, known or not."""
        self._begun.pop(sentence_id, None)


def step_seconds(output: BatchOutput) -> float:
    """Returns what all passes of a step took."""
    passes = (output.prefill, output.decode)
    return sum(stats.seconds for stats in passes if stats is not None)
