"""What must hold of a server that was overloaded."""

from __future__ import annotations

from overload_calls import Load, says_when
from reporting import Check, percentile

MAX_REFUSAL_SECONDS, MAX_RECOVERY_SECONDS, MIN_GOODPUT = 0.05, 1.0, 0.8
# Memory still settles a little while allocators find their sizes.
MAX_MEMORY_GROWTH = 1.05


def p99(seconds: list[float]) -> float:
    """Returns what 99 of 100 stay below; 0 where there is none."""
    return percentile(seconds, 0.99) if seconds else 0.0


def peak_memory(samples: list[tuple[float, int]], start: float, end: float) -> int:
    """Returns the largest of the samples that were taken in a span of time."""
    return max((memory for time_, memory in samples if start <= time_ <= end), default=0)


def recovery_seconds(before: Load, after: Load) -> float:
    """Returns how long after the overload a call was still refused, or took twice as long as nearly all did before it."""
    normal = 2 * p99(before.seconds_of("OK"))
    troubled = [
        call.due - after.started for call in after.calls if call.code != "OK" or call.seconds > normal
    ]
    # One call in a hundred is slow at any time; what comes in a row is trouble.
    troubled = troubled[: -max(1, len(after.calls) // 100)]
    return max(troubled, default=0.0)


def overload_checks(
    best: Load, before: Load, during: Load, after: Load, memory: list[tuple[float, int]], queue_seconds: float
) -> list[Check]:
    """Returns the checks of an overload.

    Args:
        best: So many callers in a closed loop that the batch was full.
        before: Half the best rate.
        during: The overload.
        after: Half the best rate again.
        memory: Times on the loads' clock, and bytes that the server had then.
        queue_seconds: How long a call might wait.
    """
    refused, admitted = during.seconds_of("RESOURCE_EXHAUSTED"), during.seconds_of("OK")
    num_told = sum(map(says_when, during.calls))
    num_others = len(during.calls) - len(refused) - len(admitted)
    middle = (during.started + during.stopped) / 2
    growth = peak_memory(memory, middle, during.stopped) / max(1, peak_memory(memory, before.started, middle))
    goodput, recovery = during.goodput / best.goodput, recovery_seconds(before, after)
    # As long as a call may wait, and then what 99 of 100 took in a full batch by itself.
    bound = queue_seconds + p99(best.seconds_of("OK"))

    def at_most(what: str, value: float, limit: float, unit: str = "") -> Check:
        return Check(f"{what} (at most {limit:.3g}{unit})", round(value, 4), value <= limit)

    return [
        Check(f"goodput, share of the best (at least {MIN_GOODPUT})", round(goodput, 4), goodput >= MIN_GOODPUT),
        at_most("refusals, p99", p99(refused), MAX_REFUSAL_SECONDS, " s"),
        Check(f"refusals that say when to come back, of {len(refused):,}", num_told, 0 < num_told == len(refused)),
        at_most("calls that ended otherwise", num_others, 0),
        at_most("admitted calls, p99", p99(admitted), bound, " s"),
        at_most("memory, second half / before", growth, MAX_MEMORY_GROWTH),
        at_most("recovery", recovery, MAX_RECOVERY_SECONDS, " s"),
    ]  # fmt: skip
