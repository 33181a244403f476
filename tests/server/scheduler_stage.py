"""A scheduler and the plain data around it, to be walked through step by step."""

from __future__ import annotations

import dataclasses
from typing import Any

from prometheus_client import CollectorRegistry

from dragoman_model.options import DecodingOptions
from dragoman_model.plan import Plan
from dragoman_server.limits import SchedulerLimits
from dragoman_server.metrics import Metrics
from dragoman_server.request import Call, Decode
from dragoman_server.scheduler import Scheduler
from dragoman_server.sentences import Outcome
from tests.server.fakes import EOS, FakeBatch, ManualClock


class Stage:
    """A scheduler with all that it needs around it."""

    def __init__(self, **limits: Any) -> None:
        self.clock = ManualClock()
        self.registry = CollectorRegistry()
        metrics = Metrics(self.registry).of_model("m")
        self.scheduler = Scheduler(SchedulerLimits(**limits), metrics, self.clock)
        self.batch = FakeBatch()

    def add(self, *lengths: int, deadline: float | None = None, max_length: int = 99) -> Call:
        """Queues a call with a sentence of each length, end-of-sentence included."""
        work = tuple(decode(length, max_length) for length in lengths)
        call = Call(work=work, arrived=self.clock.now, deadline=deadline)
        self.scheduler.add(call)
        return call

    def step(self) -> Plan:
        plan = self.scheduler.schedule()
        self.scheduler.update(self.batch.run(plan))
        return plan

    def run_until_idle(self) -> list[Plan]:
        plans = []
        while self.scheduler.has_work:
            plans.append(self.step())
            assert len(plans) < 10_000
        return plans

    def value(self, name: str, **labels: str) -> float:
        value = self.registry.get_sample_value(f"dragoman_{name}", {"model": "m", **labels})
        return value or 0.0


def decode(length: int, max_length: int = 99) -> Decode:
    return Decode(source_ids=(*range(10, 9 + length), EOS), max_length=max_length)


def wide(beam_size: int, length: int) -> Decode:
    return Decode(
        source_ids=(*range(10, 9 + length), EOS), max_length=99, options=DecodingOptions(beam_size=beam_size)
    )


def by_call(outcomes: list[Outcome]) -> dict[int, Outcome]:
    return {outcome.call.id: outcome for outcome in outcomes}


def looked_back_at(length: int, max_length: int = 99) -> Decode:
    return dataclasses.replace(decode(length, max_length), attention_heads=((0, 0), (0, 1)))
