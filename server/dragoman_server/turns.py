"""When bulk rows take part in a step while interactive ones run."""

from __future__ import annotations

from dragoman_model.plan import BatchOutput
from dragoman_server.speed import Average, step_seconds


class BulkTurns:
    """Gives bulk rows a share of the time, whatever their number makes of a step.

    On a CPU a step of a full batch takes many times as long as a step of one row. If bulk rows took part in every step, a
    caller with one sentence would wait for all of them at each of its tokens. So they stand still until what their last turn
    added to the interactive rows' time has become ``share`` of the whole. Where rows cost nothing, as on a GPU that is not
    busy, they never stand still.

    Args:
        share: What bulk rows may add, as a share of the time.
    """

    def __init__(self, share: float) -> None:
        self._share = share
        self._debt_seconds = 0.0
        self._step_seconds = Average(16)  # of interactive rows alone

    @property
    def is_due(self) -> bool:
        """Whether bulk rows take part in the next step."""
        return self._debt_seconds <= 0

    def observe(self, output: BatchOutput, *, interactive: bool, bulk: bool) -> None:
        """Takes what a step took and whose rows were in it."""
        if bulk:
            added = max(0.0, step_seconds(output) - self._step_seconds.value)
            # Who arrives after a step of bulk rows alone has waited for it already, so that the next is not theirs.
            self._debt_seconds = self._debt_seconds + added if interactive else added
        elif output.decode is not None:
            seconds = output.decode.seconds
            self._step_seconds.add(seconds)
            self._debt_seconds = max(0.0, self._debt_seconds - seconds * self._share / (1 - self._share))
