"""A scripted service behind the real interceptor on a real gRPC server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import grpc
import pytest
from google.rpc import error_details_pb2, status_pb2
from prometheus_client import CollectorRegistry

from dragoman.v1 import (
    DumpAttentionRequest,
    DumpAttentionResponse,
    TranslateBatchRequest,
    TranslateBatchResponse,
    TranslateTextRequest,
    TranslateTextResponse,
    TranslationServiceServicer,
    TranslationServiceStub,
    add_TranslationServiceServicer_to_server,
)
from dragoman_server.interceptors import CallInterceptor
from dragoman_server.logs import current_call
from dragoman_server.metrics import Metrics

Behaviour = Callable[[], Any]


class ScriptedService(TranslationServiceServicer):
    """Does what the test says."""

    def __init__(self) -> None:
        self.behaviour: Behaviour = lambda: None
        self.waiting = asyncio.Event()
        self.ended = asyncio.Event()

    async def TranslateText(self, request: TranslateTextRequest, context: Any) -> TranslateTextResponse:  # noqa: N802
        current_call.get().model = "en-de"
        self.behaviour()
        if request.model == "wait":
            self.waiting.set()
            try:
                await asyncio.Event().wait()
            finally:
                self.ended.set()
        return TranslateTextResponse(model="en-de")

    async def DumpAttention(  # noqa: N802
        self, request: DumpAttentionRequest, context: Any
    ) -> AsyncIterator[DumpAttentionResponse]:
        yield DumpAttentionResponse()
        self.behaviour()
        yield DumpAttentionResponse()

    async def TranslateBatch(  # noqa: N802
        self, request_iterator: AsyncIterator[TranslateBatchRequest], context: Any
    ) -> AsyncIterator[TranslateBatchResponse]:
        current_call.get().model = "en-de"
        async for request in request_iterator:
            self.behaviour()
            yield TranslateBatchResponse(model=request.model)


class Stage:
    def __init__(self) -> None:
        self.service = ScriptedService()
        self.registry = CollectorRegistry()
        self.interceptor = CallInterceptor(Metrics(self.registry))

    def value(self, name: str, **labels: str) -> float:
        return self.registry.get_sample_value(f"dragoman_{name}", labels) or 0.0


@asynccontextmanager
async def scripted() -> AsyncIterator[Stage]:
    """Serves until the block ends."""
    stage = Stage()
    server = grpc.aio.server(interceptors=[stage.interceptor])
    add_TranslationServiceServicer_to_server(stage.service, server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        stage.channel = channel
        stage.stub = TranslationServiceStub(channel)
        yield stage
    await server.stop(None)


def pairs(metadata: Any) -> dict[str, Any]:
    return {key: value for key, value in metadata}  # noqa: C416 (dict() would look for a mapping)


def status_of(error: grpc.aio.AioRpcError) -> tuple[status_pb2.Status, dict[str, Any]]:
    metadata = pairs(error.trailing_metadata())
    status = status_pb2.Status.FromString(metadata["grpc-status-details-bin"])
    kinds = (error_details_pb2.ErrorInfo, error_details_pb2.BadRequest, error_details_pb2.RetryInfo)
    details = {}
    for packed in status.details:
        for kind in kinds:
            if packed.Is(kind.DESCRIPTOR):
                details[kind.__name__] = kind.FromString(packed.value)
    return status, details


async def refused(
    stage: Stage, request: TranslateTextRequest | None = None, **more: Any
) -> grpc.aio.AioRpcError:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await stage.stub.TranslateText(request or TranslateTextRequest(), timeout=10, **more)
    return caught.value
