"""Whether memory grows that also rises and falls with what happens to run."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from reporting import Check

MAX_GROWTH = 1.02
# A process finds its size in the first tenth of its work.
SETTLING_SHARE = 0.1


@dataclass(frozen=True)
class Growth:
    """How memory changes from the start of the samples to their end.

    Attributes:
        ratio: End / start of a straight line through the samples; 1 is no change.
        standard_error: Of the ratio, if the samples scatter independently of each other.
    """

    ratio: float
    standard_error: float

    @property
    def holds(self) -> bool:
        """Whether it stays within `MAX_GROWTH`."""
        return self.ratio <= MAX_GROWTH

    def __str__(self) -> str:
        return f"{self.ratio:.4f} ± {self.standard_error:.4f}"


def growth(samples: Sequence[tuple[float, float]]) -> Growth:
    """Returns what a straight line (least squares) through samples of (work done, bytes) says.

    Args:
        samples: Three or more, at two amounts of work at least, in the order of the work.
    """
    mean_done = math.fsum(done for done, _ in samples) / len(samples)
    mean_bytes = math.fsum(size for _, size in samples) / len(samples)
    spread = math.fsum((done - mean_done) ** 2 for done, _ in samples)
    slope = math.fsum((done - mean_done) * (size - mean_bytes) for done, size in samples) / spread
    residual = math.fsum((size - mean_bytes - slope * (done - mean_done)) ** 2 for done, size in samples)
    slope_error = math.sqrt(residual / (len(samples) - 2) / spread)
    first, last = samples[0][0], samples[-1][0]
    start = mean_bytes + slope * (first - mean_done)
    end = mean_bytes + slope * (last - mean_done)
    # The derivative of end / start by the slope.
    return Growth(end / start, slope_error * mean_bytes * (last - first) / start**2)


def settled(samples: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Returns the samples after the first tenth of the work between the first and the last of them."""
    if not samples:
        return []
    first, last = samples[0][0], samples[-1][0]
    return [sample for sample in samples if sample[0] > first + SETTLING_SHARE * (last - first)]


def settled_growth(samples: Sequence[tuple[float, float]]) -> Growth | None:
    """Returns the growth after the first tenth of the work; None where too few samples are left to say."""
    rest = settled(samples)
    return growth(rest) if len(rest) >= 3 and rest[0][0] < rest[-1][0] else None


def growth_check(what: str, growth: Growth | None) -> Check:
    """Returns whether it stays within `MAX_GROWTH`; growth that could not be measured does not."""
    return Check(
        f"{what} (at most {MAX_GROWTH})",
        "too few samples" if growth is None else growth,
        growth is not None and growth.holds,
    )
