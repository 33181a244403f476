"""The learning rate over a run."""

from __future__ import annotations


def learning_rate(peak: float, step: int, warmup_steps: int, progress: float) -> float:
    """Returns the learning rate of an update: linear warm-up, then linear decay to 0.

    A straight line to 0 makes the most of a given budget (Defazio et al. 2023; Bergsma et al. 2025).

    Args:
        peak: Highest rate.
        step: The update, from 1.
        warmup_steps: Updates in which the rate rises; 0 is none.
        progress: Share of the run's budget that is spent, 0 to 1.
    """
    warmup = min(1.0, step / warmup_steps) if warmup_steps else 1.0
    return peak * warmup * max(0.0, 1.0 - progress)


def run_progress(step: int, max_steps: int, seconds: float, max_seconds: float | None) -> float:
    """Returns the share of a run's budget that is spent, 0 to 1: of its updates or of its time, whichever is more.

    Args:
        step: Updates made.
        max_steps: Updates at most.
        seconds: Training time, earlier runs counted in.
        max_seconds: Training time at most; None is no limit, and then the result depends on the step alone.
    """
    progress = step / max_steps
    if max_seconds is not None:
        progress = max(progress, seconds / max_seconds if max_seconds > 0 else 1.0)
    return min(1.0, progress)
