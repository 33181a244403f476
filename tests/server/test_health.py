"""What is told of engines that hang, are gone and go on; time passes only when told to."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass, field
from typing import Any, cast

import pytest
from grpc_health.v1 import health_pb2

from dragoman_server.catalogue import Catalogue
from dragoman_server.health import SERVICE_NAME, Health
from dragoman_server.heartbeat import Heartbeat
from tests.integration.servers import until
from tests.server.fakes import ManualClock

HANG_SECONDS = 60.0


@dataclass
class FakeEngine:
    heartbeat: Heartbeat
    is_alive: bool = True


@dataclass
class Served:
    name: str
    engine: FakeEngine


@dataclass
class Stage:
    """Two engines that beat at every second unless they are silent, and what is said of them."""

    hang_seconds: float = HANG_SECONDS
    patience_seconds: float = 0.0
    clock: ManualClock = field(default_factory=ManualClock)

    def __post_init__(self) -> None:
        self.models = [Served(name, FakeEngine(Heartbeat(self.clock))) for name in ("en-de", "de-en")]
        catalogue = Catalogue(cast(Any, self.models))
        self.health = Health(
            catalogue,
            hang_seconds=self.hang_seconds,
            clock=self.clock,
            patience_seconds=self.patience_seconds,
        )

    async def pass_seconds(self, seconds: int, *silent: str) -> None:
        for _ in range(seconds):
            self.clock.now += 1
            for served in self.models:
                if served.name not in silent:
                    served.engine.heartbeat.beat()
            await self.health.look()

    async def said(self) -> dict[str, bool]:
        """Returns whether gRPC says SERVING, by name."""
        said = {}
        for name in ("", SERVICE_NAME, "en-de", "de-en"):
            answer = await self.health.servicer.Check(
                health_pb2.HealthCheckRequest(service=name), cast(Any, None)
            )
            said[name] = answer.status == health_pb2.HealthCheckResponse.SERVING
        return said


@pytest.fixture
async def stage() -> Stage:
    stage = Stage()
    await stage.health.refresh()
    return stage


def events(caplog: pytest.LogCaptureFixture) -> list[tuple[str, str]]:
    return [(record.message, record.fields["model"]) for record in caplog.records]


async def test_an_engine_that_hangs_is_told_of_until_it_goes_on(
    stage: Stage, caplog: pytest.LogCaptureFixture
):
    caplog.set_level(logging.INFO)
    await stage.pass_seconds(60, "de-en")
    assert stage.health.is_alive
    assert all((await stage.said()).values())

    await stage.pass_seconds(20, "de-en")
    assert not stage.health.is_alive
    assert not stage.health.is_ready
    assert await stage.said() == {"": False, SERVICE_NAME: False, "en-de": True, "de-en": False}
    assert events(caplog) == [("engine hangs", "de-en")]
    assert caplog.records[0].levelno == logging.CRITICAL
    assert caplog.records[0].fields["silence_seconds"] == 61

    await stage.pass_seconds(1)
    assert stage.health.is_ready
    assert all((await stage.said()).values())
    assert events(caplog) == [("engine hangs", "de-en"), ("engine goes on", "de-en")]


async def test_a_server_that_stood_still_as_a_whole_blames_no_engine(
    stage: Stage, caplog: pytest.LogCaptureFixture
):
    stage.clock.now += 1000
    await stage.health.look()
    assert stage.health.is_alive
    await stage.pass_seconds(5)
    assert not caplog.records
    await stage.pass_seconds(61, "en-de")  # who is silent after that hangs
    assert events(caplog) == [("engine hangs", "en-de")]


async def test_an_event_loop_that_stood_still_while_the_server_started_leaves_no_mark(stage: Stage):
    stage.clock.now += 61
    await stage.health.refresh()
    await stage.pass_seconds(1)
    assert stage.health.is_ready
    assert all((await stage.said()).values())


async def test_an_event_loop_that_hangs_is_seen_from_another_thread(stage: Stage):
    await stage.pass_seconds(1)
    stage.clock.now += 61
    assert not stage.health.is_alive
    await stage.health.look()
    assert stage.health.is_alive


async def test_whoever_asks_as_a_paused_server_goes_on_waits_for_the_event_loop():
    health = (stage := Stage(patience_seconds=60)).health
    stage.clock.now += 61
    asking = asyncio.create_task(asyncio.to_thread(lambda: health.is_alive))
    await until(lambda: not health._has_looked.is_set())
    await health.look()
    assert await asking


async def test_an_engine_that_ends_while_it_hangs_does_not_go_on(
    stage: Stage, caplog: pytest.LogCaptureFixture
):
    await stage.pass_seconds(61, "de-en")
    stage.models[1].engine.is_alive = False
    await stage.pass_seconds(10, "de-en")
    assert events(caplog) == [("engine hangs", "de-en")]
    assert not stage.health.is_alive
    assert await stage.said() == {"": False, SERVICE_NAME: False, "en-de": True, "de-en": False}


async def test_with_0_no_engine_counts_as_hung():
    stage = Stage(hang_seconds=0)
    await stage.health.refresh()
    await stage.health.watch()  # returns
    stage.clock.now += 1000
    assert stage.health.is_alive
