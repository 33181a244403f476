"""One call of a bulk translation.

It takes gRPC's blocking interface for asyncio, too: that of asyncio forgets the status that a server ended a call with
when a text was being sent at that moment (grpc issue 36066), and a refusal would look like a crash.
"""

import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Any

import grpc

from dragoman.v1 import BatchItem, TranslateBatchRequest, TranslateBatchResponse
from dragoman_client.bulk import Bulk, MessageBuilder
from dragoman_client.core import Call
from dragoman_client.errors import ServerError

Arrival = TranslateBatchResponse | grpc.RpcError | None
"""What comes from the server: answers; then why the call failed, or None where it ended well."""


class Connection:
    """A call: gRPC's thread sends what is in a queue, one of ours hands over what arrives.

    Args:
        call: Its settings.
        start: The stub's method.
        header: What the first message holds beside its texts.
        items: What to send first.
        deliver: Takes what arrives, in another thread.
    """

    def __init__(
        self,
        call: Call,
        start: Callable[..., Any],
        *,
        header: TranslateBatchRequest,
        items: Iterable[BatchItem],
        deliver: Callable[[Arrival], None],
    ) -> None:
        self.call = call
        self._out: SimpleQueue[BatchItem | None] = SimpleQueue()
        self._is_ended = False
        for item in items:
            self._out.put(item)
        self._responses = start(self._messages(header), metadata=call.metadata)
        threading.Thread(target=self._receive, args=(deliver,), name="dragoman-batch", daemon=True).start()

    def send(self, item: BatchItem) -> None:
        """Sends a text as soon as the server takes it."""
        self._out.put(item)

    def end(self) -> None:
        """Says that no more texts come."""
        self._is_ended = True
        self._out.put(None)

    def feed(self, arrival: Arrival, bulk: Bulk) -> bool:
        """Hands over what has arrived; says whether the call goes on.

        Raises:
            DragomanError: The call has failed, or ended too early.
        """
        if isinstance(arrival, TranslateBatchResponse):
            bulk.feed(arrival, request_id=self.call.request_id)
            return True
        if arrival is not None:
            with self.call.raising():
                raise arrival
        if bulk.num_unanswered or not self._is_ended:
            raise ServerError("the server ended the call before every text was answered")
        return False

    def close(self) -> None:
        """Ends the call, whatever its state is."""
        self._out.put(None)
        self._responses.cancel()

    def _messages(self, header: TranslateBatchRequest) -> Iterator[TranslateBatchRequest]:
        """Yields what is to be sent, as much at a time as there is."""
        builder = MessageBuilder(header)
        while (item := self._out.get()) is not None:
            builder.add(item)
            if builder.is_full or self._out.empty():
                yield builder.take()
        if builder.has_items:
            yield builder.take()

    def _receive(self, deliver: Callable[[Arrival], None]) -> None:
        """Hands over what arrives, and how it ends."""
        try:
            for response in self._responses:
                deliver(response)
        except grpc.RpcError as error:
            deliver(error)
        else:
            deliver(None)


@dataclass(frozen=True, kw_only=True)
class BulkCalls:
    """How the calls of one bulk translation are made; there are several where connections are lost.

    Attributes:
        header: What the first message holds beside its texts.
        begin: Makes the settings of a call.
        start: The stub's method.
    """

    header: TranslateBatchRequest
    begin: Callable[[], Call]
    start: Callable[..., Any]

    def connect(self, items: Iterable[BatchItem], deliver: Callable[[Arrival], None]) -> Connection:
        """Begins a call, with what to send first and who takes what arrives."""
        return Connection(self.begin(), self.start, header=self.header, items=items, deliver=deliver)
