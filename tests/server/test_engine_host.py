"""The far side of an engine's connection, without a process."""

from __future__ import annotations

import asyncio
import os
import socket
import time

from prometheus_client import CollectorRegistry

from dragoman_server.engine import Engine
from dragoman_server.engine_host import _Host
from dragoman_server.engine_messages import Cancelled, Ended, MessageSocket, QueueBoard, Submitted
from dragoman_server.limits import SchedulerLimits
from dragoman_server.metrics import Metrics
from dragoman_server.request import Call, Decode
from dragoman_server.scheduler import Scheduler
from tests.server.fakes import EOS, FakeBatch


async def test_a_call_that_is_cancelled_as_it_comes_is_not_kept():
    near, far = socket.socketpair()
    messages, host = MessageSocket(near), _Host(MessageSocket(far), QueueBoard())
    registry = CollectorRegistry()
    scheduler = Scheduler(SchedulerLimits(), Metrics(registry).of_model("m"), time.monotonic)
    engine = Engine("m", FakeBatch(), scheduler)
    running = asyncio.create_task(host.run(lambda *_: engine, registry, os.getppid()))
    answers: asyncio.Queue[object] = asyncio.Queue()
    messages.open(answers.put_nowait, lambda: None)
    calls = [Call(work=(Decode(source_ids=(5, EOS), max_length=4),), arrived=0.0) for _ in range(2)]
    messages.send(Submitted(calls[0]))
    messages.send(Cancelled(calls[0].id))  # both come in one piece
    messages.send(Submitted(calls[1]))
    async with asyncio.timeout(10):
        answer = await answers.get()
        assert isinstance(answer, Ended)
        assert answer.call_id == calls[1].id
        assert host._calls == {}
        messages.close()
        await running
