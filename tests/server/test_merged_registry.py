"""Several processes' metrics in one scrape."""

from __future__ import annotations

from dataclasses import dataclass, field

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Metric, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from dragoman_server.merged_registry import MergedRegistry
from tests.server.fakes import ManualClock


@dataclass
class FakeSource:
    """Another process; one that hangs has its last figures after all the time that it is given."""

    registry: CollectorRegistry
    clock: ManualClock = field(default_factory=ManualClock)
    hangs: bool = False
    said: list[str] = field(default_factory=list)

    def ask(self) -> None:
        self.said.append("ask")

    def take(self, seconds: float) -> list[Metric]:
        self.said.append(f"take in {seconds:g}")
        self.clock.now += seconds * self.hangs
        return list(self.registry.collect())


def filled(registry: CollectorRegistry, value: float, model: str) -> CollectorRegistry:
    Counter("calls", "Calls.", ["model"], registry=registry).labels(model).inc(value)
    Histogram("seconds", "Seconds.", buckets=(1.0, 2.0), registry=registry).observe(value)
    Gauge("process_start_time_seconds", "Start.", registry=registry).set(value)
    return registry


def merged(*others: CollectorRegistry) -> MergedRegistry:
    registry = MergedRegistry()
    filled(registry, 0.5, "a")
    for other in others:
        registry.add(FakeSource(other))
    return registry


def test_equal_series_are_added_and_others_put_beside_them():
    registry = merged(filled(CollectorRegistry(), 1.5, "a"), filled(CollectorRegistry(), 4.0, "b"))
    assert registry.get_sample_value("calls_total", {"model": "a"}) == 2.0
    assert registry.get_sample_value("calls_total", {"model": "b"}) == 4.0
    assert registry.get_sample_value("seconds_bucket", {"le": "1.0"}) == 1
    assert registry.get_sample_value("seconds_bucket", {"le": "2.0"}) == 2
    assert registry.get_sample_value("seconds_bucket", {"le": "+Inf"}) == 3
    assert registry.get_sample_value("seconds_sum") == 6.0


def test_what_is_of_one_process_is_the_servers():
    registry = merged(filled(CollectorRegistry(), 9.0, "a"))
    assert registry.get_sample_value("process_start_time_seconds") == 0.5


def test_every_family_is_told_once_however_often_it_is_scraped():
    registry = merged(filled(CollectorRegistry(), 1.5, "b"))
    for _ in range(2):
        families = list(text_string_to_metric_families(generate_latest(registry).decode()))
        names = [family.name for family in families]
        assert len(names) == len(set(names))
        (calls,) = [family for family in families if family.name == "calls"]
        assert {sample.labels["model"]: sample.value for sample in calls.samples} == {"a": 0.5, "b": 1.5}


def test_a_scrape_of_some_names_has_what_others_hold_of_them():
    registry = merged(filled(CollectorRegistry(), 1.5, "a")).restricted_registry(["calls_total"])
    (family,) = registry.collect()
    assert [sample.value for sample in family.samples] == [2.0]


def test_processes_that_hang_are_waited_for_together():
    clock, said = ManualClock(), []
    registry = MergedRegistry(clock)
    for value, hangs in ((1.0, True), (2.0, False), (4.0, True)):
        registry.add(FakeSource(filled(CollectorRegistry(), value, "a"), clock, hangs, said))
    assert registry.get_sample_value("calls_total", {"model": "a"}) == 7.0
    assert said == ["ask"] * 3 + ["take in 2", "take in 0", "take in 0"]
