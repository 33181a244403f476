"""What the benchmarks have in common when they report: percentiles, bars with their verdicts, tables, the machine's name."""

from __future__ import annotations

import math
import os
import platform
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path


def percentile(values: Sequence[float], share: float) -> float:
    """Returns the value below which a share of the values lies, between two neighbours in proportion.

    Args:
        values: One or more, in any order.
        share: 0 (the least) to 1 (the greatest).
    """
    ordered = sorted(values)
    place = share * (len(ordered) - 1)
    below = math.floor(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (place - below) * (ordered[above] - ordered[below])


@dataclass(frozen=True, kw_only=True)
class Bar:
    """A measured value beside what it must be and what it aims at.

    Attributes:
        what: Says what was measured.
        value: None where it could not be.
        must: Worst value that passes.
        aim: Value hoped for.
        higher_is_better: False where small values are good.
        values: The single rounds' values, for their spread.
        note: Why there is no value, or whatever a reader should know.
    """

    what: str
    value: float | None
    must: float
    aim: float
    higher_is_better: bool = True
    values: tuple[float, ...] = ()
    note: str = ""

    @property
    def verdict(self) -> str:
        """Says "aim", "must", "missed" or "not measured"."""
        if self.value is None:
            return "not measured"
        if self._reaches(self.aim):
            return "aim"
        return "must" if self._reaches(self.must) else "missed"

    def _reaches(self, bound: float) -> bool:
        assert self.value is not None
        return self.value >= bound if self.higher_is_better else self.value <= bound


def bars_table(bars: Iterable[Bar]) -> str:
    """Returns the bars as a table in Markdown."""
    lines = ["| what | must | aim | measured | rounds | verdict |", "| --- | --: | --: | --: | --- | --- |"]
    for bar in bars:
        sign = "≥" if bar.higher_is_better else "≤"
        value = "—" if bar.value is None else f"{bar.value:.2f}"
        spread = f"{min(bar.values):.2f}–{max(bar.values):.2f}" if len(bar.values) > 1 else ""
        verdict = bar.verdict + (f" ({bar.note})" if bar.note else "")
        lines.append(
            f"| {bar.what} | {sign} {bar.must:g} | {sign} {bar.aim:g} | {value} | {spread} | {verdict} |"
        )
    return "\n".join(lines)


@dataclass(frozen=True)
class Check:
    """Something that must hold.

    Attributes:
        what: Says what was looked at, and its bound where there is one.
        value: What was found.
        holds: Whether it is as it must be.
    """

    what: str
    value: object
    holds: bool


def checks_table(checks: Iterable[Check]) -> str:
    """Returns the checks as a table in Markdown."""
    lines = ["| what | measured | |", "| --- | --: | --- |"]
    lines += [
        f"| {check.what} | {check.value} | {'holds' if check.holds else 'MISSED'} |" for check in checks
    ]
    return "\n".join(lines)


def cpu_name() -> str:
    """Returns the processor's name as the kernel knows it."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.machine()
    names = (line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.machine())


def machine() -> str:
    """Returns the processor and how many of its cores this process may use."""
    return f"{cpu_name()}, {len(os.sched_getaffinity(0))} CPUs"
