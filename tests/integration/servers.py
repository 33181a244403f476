"""A real server in this process, with a tiny model, on free loopback ports."""

from __future__ import annotations

import asyncio
import urllib.request
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Event, Thread
from typing import Any

import grpc
import pytest
from google.rpc import error_details_pb2, status_pb2

from dragoman.v1 import TranslationServiceStub
from dragoman_model.checkpoint import LoadedModel, load_model
from dragoman_server import event_loop
from dragoman_server.app import App
from dragoman_server.config import ServerConfig

SENTENCES = [
    "A girl is reading a book in the garden.",
    "He sings!",
    "Where is the red house with the 12 trees?",
    "I don't know",
    "we'll see you at 7:30",
]
NASTY_LINES = [
    "A girl.", "", "   ", "\t", "🙂 emoji", "你好，世界", "\0", "a\0b", "\ufeffBOM", "a\u2028b", "a\x85b", "a\rb", "\x0b\x0c",
    "\x1b[31mred", "\u202eright to left", "é e\u0301", "<s> </s> <unk> <pad> ▁", " " * 3000, "ﬁ ½ ①", "\U0010ffff", "...",
    "?!", "https://example.com/a?b=c", "WORDS IN CAPITALS", "123 456",
]  # fmt: skip


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


@dataclass(frozen=True)
class Addresses:
    """Where a server listens."""

    grpc: str
    http: str


@contextmanager
def running(model: Path) -> Iterator[Addresses]:
    """Runs the server on an event loop of its own, so that a blocking client can wait for it."""
    ready, over = Event(), Event()
    addresses: list[Addresses] = []

    async def serve() -> None:
        async with serving(load_model(model, device="cpu")) as server:
            addresses.append(Addresses(server.app.grpc_address, server.app.http_address))
            ready.set()
            await asyncio.to_thread(over.wait)

    thread = Thread(target=lambda: event_loop.run(serve()), daemon=True)
    thread.start()
    assert ready.wait(30)
    try:
        yield addresses[0]
    finally:
        over.set()
        thread.join(30)


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
