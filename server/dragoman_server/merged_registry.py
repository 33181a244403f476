"""The metrics of several processes as one: what each counted is added up."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from typing import Protocol

from prometheus_client import CollectorRegistry, Metric
from prometheus_client.registry import RestrictedRegistry
from prometheus_client.samples import Sample

# Of these the first is told: the server's own.
_NOT_ADDED = frozenset({"process_start_time_seconds", "process_max_fds"})

# A scrape waits no longer for processes that are busy or hang, and has their figures of the last time instead.
_WAIT_SECONDS = 2.0


class Source(Protocol):
    """What holds metrics outside this process."""

    def ask(self) -> None:
        """Asks for them and doesn't wait."""
        ...

    def take(self, seconds: float) -> Iterable[Metric]:
        """Returns them, or those of the last time where they don't come within so many seconds."""
        ...


class MergedRegistry(CollectorRegistry):
    """A registry of this process's metrics that gives those of others with them.

    Args:
        clock: Seconds that only grow.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._clock = clock
        self._others: list[Source] = []

    def add(self, other: Source) -> None:
        """Takes in what another process holds, at every scrape."""
        self._others.append(other)

    def collect(self) -> Iterator[Metric]:
        """Yields each family of metrics once, with the values of all processes."""
        for other in self._others:
            other.ask()
        end = self._clock() + _WAIT_SECONDS  # for all together
        families = {metric.name: metric for metric in super().collect()}
        for other in self._others:
            for metric in other.take(max(0.0, end - self._clock())):
                own = families.setdefault(metric.name, metric)
                if own is not metric:
                    families[metric.name] = _sum(own, metric)
        yield from families.values()

    def restricted_registry(self, names: Iterable[str]) -> RestrictedRegistry:
        """Returns the same with samples of the given names alone."""
        return _Restricted(set(names), self)


class _Restricted(RestrictedRegistry):
    def collect(self) -> Iterator[Metric]:
        for metric in self._registry.collect():
            samples = [sample for sample in metric.samples if sample.name in self._name_set]
            if samples:
                yield _with_samples(metric, samples)


def _sum(first: Metric, second: Metric) -> Metric:
    samples = {(sample.name, *sorted(sample.labels.items())): sample for sample in first.samples}
    for sample in second.samples:
        key = (sample.name, *sorted(sample.labels.items()))
        if key not in samples:
            samples[key] = sample
        elif first.name not in _NOT_ADDED:
            samples[key] = samples[key]._replace(value=samples[key].value + sample.value)
    return _with_samples(first, list(samples.values()))


def _with_samples(metric: Metric, samples: list[Sample]) -> Metric:
    """Returns the family with other samples; a registry's own is what the next scrape gives, too."""
    family = Metric(metric.name, metric.documentation, metric.type, metric.unit)
    family.samples = samples
    return family
