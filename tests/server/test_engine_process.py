"""The near side of an engine's connection, with a process that ends when the test says so."""

from __future__ import annotations

import asyncio
import logging
import multiprocessing
import threading
from types import SimpleNamespace
from typing import Any

import pytest

from dragoman_server import engine_process
from dragoman_server.engine_process import EngineProcess
from dragoman_server.errors import EngineGoneError, InternalError
from dragoman_server.heartbeat import Heartbeat
from dragoman_server.limits import SchedulerLimits
from dragoman_server.request import Call, Decode
from tests.integration.servers import until
from tests.server.fakes import EOS


class SlowProcess:
    """Stands for an engine's process that is long in ending."""

    def __init__(self, *, args: tuple[Any, ...], **_: object) -> None:
        self._far_end = args[2]
        self.ended = threading.Event()
        self.exitcode: int | None = None

    def start(self) -> None:
        self.connection = self._far_end.dup()  # as a forked one has it

    def is_alive(self) -> bool:
        return not self.ended.is_set()

    def join(self, timeout: float | None = None) -> None:
        assert threading.current_thread() is not threading.main_thread(), "the event loop waits"
        self.ended.wait(timeout)

    def end(self, exit_code: int) -> None:
        self.exitcode = exit_code
        self.ended.set()

    def kill(self) -> None:
        self.end(-9)


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> EngineProcess:
    context = SimpleNamespace(Process=SlowProcess, Pipe=multiprocessing.Pipe)
    monkeypatch.setattr(multiprocessing, "get_context", lambda _: context)
    return EngineProcess("m", lambda *_: None, SchedulerLimits(), Heartbeat())  # type: ignore[arg-type,return-value]


def process_of(engine: EngineProcess) -> SlowProcess:
    assert isinstance(engine._process, SlowProcess)
    return engine._process


def new_call() -> Call:
    return Call(work=(Decode(source_ids=(5, EOS), max_length=4),), arrived=0.0)


async def lose(engine: EngineProcess) -> None:
    """Lets the process close its connection, and returns when the engine's call has failed."""
    engine.start()
    call = new_call()
    waiting = asyncio.create_task(engine.submit(call))
    await until(lambda: call.id in engine._pending)
    process_of(engine).connection.close()
    with pytest.raises(InternalError):
        await asyncio.wait_for(waiting, 10)


def exit_codes(caplog: pytest.LogCaptureFixture) -> list[int]:
    return [r.fields["exit_code"] for r in caplog.records if r.message == "engine process ended"]


async def test_calls_end_at_once_however_long_the_process_is_in_ending(
    engine: EngineProcess, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    caplog.set_level(logging.INFO)
    monkeypatch.setattr(engine_process, "_END_SECONDS", 60.0)
    await lose(engine)
    assert process_of(engine).is_alive()
    assert not engine.is_alive
    with pytest.raises(EngineGoneError, match="the engine of 'm' is gone"):
        await engine.submit(new_call())
    with pytest.raises(EngineGoneError):
        await engine.submit_bulk(new_call())
    assert exit_codes(caplog) == []
    process_of(engine).end(3)
    await until(lambda: exit_codes(caplog) == [3])


async def test_a_process_that_does_not_end_after_all_is_killed(
    engine: EngineProcess, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    caplog.set_level(logging.INFO)
    monkeypatch.setattr(engine_process, "_END_SECONDS", 0.01)
    await lose(engine)
    await until(lambda: exit_codes(caplog) == [-9])
