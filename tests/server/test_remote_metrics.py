"""Asking another process for its metrics, without a process; the answers are given by hand."""

from __future__ import annotations

import threading
from multiprocessing import Pipe

import pytest
from prometheus_client import CollectorRegistry, Counter

from dragoman_server.remote_metrics import RemoteMetrics, answer_scrapes


class Stage:
    def __init__(self) -> None:
        near, self.far = Pipe()
        self.metrics = RemoteMetrics(near)
        self.registry = CollectorRegistry()
        self.counter = Counter("calls", "Calls.", registry=self.registry)

    def answer(self) -> None:
        self.far.recv()
        self.far.send(list(self.registry.collect()))

    def take(self, seconds: float = 0.0) -> list[float]:
        taken = self.metrics.take(seconds)
        return [sample.value for metric in taken for sample in metric.samples if sample.name == "calls_total"]


@pytest.fixture
def stage() -> Stage:
    return Stage()


def test_what_does_not_answer_in_time_has_its_last_figures(stage: Stage):
    stage.metrics.ask()
    assert stage.take() == []
    stage.answer()
    assert stage.take() == [0]
    stage.counter.inc()
    stage.metrics.ask()
    assert stage.take() == [0]
    stage.answer()
    assert stage.take() == [1]


def test_what_hangs_is_asked_once_and_anew_when_it_has_answered(stage: Stage):
    for _ in range(3):
        stage.metrics.ask()
    stage.answer()
    assert not stage.far.poll(0)
    stage.counter.inc(5)
    stage.metrics.ask()  # what came late is of no use any more
    stage.answer()
    assert stage.take() == [5]


def test_a_scrape_beside_one_that_waits_shares_its_answer(stage: Stage):
    stage.metrics.ask()
    given: list[list[float]] = []
    first = threading.Thread(target=lambda: given.append(stage.take(10)))
    first.start()
    while not stage.metrics._lock.locked():
        pass
    stage.metrics.ask()  # doesn't wait
    second = threading.Thread(target=lambda: given.append(stage.take(10)))
    second.start()
    stage.answer()
    for thread in (first, second):
        thread.join(10)
    assert given == [[0], [0]]
    assert not stage.far.poll(0)


def test_what_has_ended_keeps_its_last_figures(stage: Stage):
    stage.metrics.ask()
    stage.answer()
    assert stage.take() == [0]
    stage.far.close()
    stage.metrics.ask()
    assert stage.take(10) == [0]


def test_questions_are_answered_until_the_asking_end_is_gone(stage: Stage):
    answering = threading.Thread(target=answer_scrapes, args=(stage.registry, stage.far))
    answering.start()
    for _ in range(2):
        stage.metrics.ask()
        assert stage.take(10) == [0]
    stage.metrics._pipe.close()
    answering.join(10)
    assert not answering.is_alive()
