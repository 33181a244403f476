"""Calls that are turned away before anything of them is read, since no model takes one sentence more.

Under overload most calls end here. What a refusal costs is taken from the translations of the calls that were let in, and the usual
way, through reading, validating and raising, costs more than twice as much.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Awaitable, Callable

import grpc

from dragoman_server.catalogue import Catalogue
from dragoman_server.ends import CallEnds
from dragoman_server.errors import CallError
from dragoman_server.interceptors import (
    SERVICE_PREFIX,
    Context,
    MethodHandler,
    request_id_of,
    trailing_metadata,
)
from dragoman_server.logs import CallRecord
from dragoman_server.metrics import UNKNOWN_MODEL, Metrics
from dragoman_server.statuses import ANSWERS, status_message

# Those that are refused when the queue is full. The others wait, have a limit of their own or need no queue; where an engine hangs
# or is gone they are refused when they have been read.
QUEUED_METHODS = ("TranslateText", "StreamTranslateText", "ScoreText")


class Doorway(grpc.aio.ServerInterceptor):
    """Refuses calls that certainly no model takes; it comes before ``CallInterceptor``.

    Args:
        metrics: Where refusals are counted.
        catalogue: The served models.
        is_open: Says whether calls are let in at all; where not, another one says why.
    """

    def __init__(self, metrics: Metrics, catalogue: Catalogue, is_open: Callable[[], bool]) -> None:
        self._ends = CallEnds(metrics)
        self._catalogue = catalogue
        self._is_open = is_open
        self._model = catalogue.models[0].name if len(catalogue.models) == 1 else UNKNOWN_MODEL
        self._methods = {f"{SERVICE_PREFIX}TranslationService/{name}": name for name in QUEUED_METHODS}

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[MethodHandler | None]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> MethodHandler | None:
        """Passes a call on, or ends it."""
        name = self._methods.get(handler_call_details.method)
        if name is not None and self._is_open():
            error = self._catalogue.find_refusal()
            if error is not None:
                return self._refusing(name, error)
        return await continuation(handler_call_details)

    def _refusing(self, name: str, error: CallError) -> MethodHandler:
        arrived = time.monotonic()
        answer = ANSWERS[type(error)]

        async def refuse(_: AsyncIterator[bytes], context: Context) -> None:
            request_id = request_id_of(context)
            status = status_message(error, request_id)
            # Neither exception nor message: the status is all there is to send.
            context.set_code(answer.code)
            context.set_details(status.message)
            context.set_trailing_metadata(trailing_metadata(request_id, status))
            self._ends.record(
                CallRecord(name, request_id, arrived, self._model), answer.code.name, answer.reason
            )

        # To gRPC any call is a stream of messages; only as such it need not be read.
        return grpc.stream_stream_rpc_method_handler(refuse)
