"""A real server in this process, with a tiny model, on free loopback ports."""

from __future__ import annotations

import asyncio
import urllib.request
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import grpc
import pytest
from google.rpc import error_details_pb2, status_pb2

from dragoman.v1 import TranslationServiceStub
from dragoman_model.checkpoint import LoadedModel
from dragoman_server.app import App
from dragoman_server.config import ServerConfig

SENTENCES = [
    "A girl is reading a book in the garden.",
    "He sings!",
    "Where is the red house with the 12 trees?",
    "I don't know",
    "we'll see you at 7:30",
]


class RunningServer:
    """A started app and ways to look at it from outside."""

    def __init__(self, app: App, channel: grpc.aio.Channel) -> None:
        self.app = app
        self.channel = channel
        self.stub = TranslationServiceStub(channel)

    async def get(self, path: str) -> str:
        """Returns the body of a page of the HTTP side."""

        def read() -> str:
            with urllib.request.urlopen(f"http://{self.app.http_address}{path}", timeout=10) as response:
                body: bytes = response.read()
                return body.decode()

        return await asyncio.to_thread(read)

    def value(self, name: str, **labels: str) -> float:
        """Returns a metric's value, 0 where it has none yet."""
        return self.app.registry.get_sample_value(name, labels) or 0.0


async def until(condition: Callable[[], bool]) -> None:
    """Returns when the condition holds; what it reads is changed by other tasks and threads."""
    async with asyncio.timeout(10):
        while not condition():  # noqa: ASYNC110 (no event tells of a metric)
            await asyncio.sleep(0.002)  # the interpreter is the engine's, too: spinning would starve it


@asynccontextmanager
async def serving(*models: LoadedModel, **settings: Any) -> AsyncIterator[RunningServer]:
    """Serves the models until the block ends."""
    defaults = {
        "listen": "127.0.0.1:0",
        "http": "127.0.0.1:0",
        "threads": 1,
        "engine": "thread",  # a test's own process has threads, and must not be forked
        "grace_seconds": 5.0,
        "attention_sample_share": 0.0,  # chance has no place in a test
    }
    app = App(ServerConfig(**{**defaults, **settings}), models)
    await app.start()
    try:
        async with grpc.aio.insecure_channel(app.grpc_address) as channel:
            yield RunningServer(app, channel)
    finally:
        await app.stop()


async def refusal(call: Any) -> grpc.aio.AioRpcError:
    """Returns the error that the call ends with."""
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    return caught.value


def violations(error: grpc.aio.AioRpcError) -> dict[str, str]:
    """Returns what is wrong with a request, by field."""
    (data,) = [value for key, value in error.trailing_metadata() if key == "grpc-status-details-bin"]
    for packed in status_pb2.Status.FromString(data).details:
        if packed.Is(error_details_pb2.BadRequest.DESCRIPTOR):
            found = error_details_pb2.BadRequest.FromString(packed.value).field_violations
            return {violation.field: violation.description for violation in found}
    return {}
