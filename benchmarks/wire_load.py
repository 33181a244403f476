"""Sends unary calls over a bare HTTP/2 connection, as gRPC does, and reads what came back when the load is over.

A client in Python takes about as long to send a call and to take its refusal as the server takes to refuse it. Where both share
their cores that is the load's own doing. Here calls are written as bytes that were made before, what comes back is kept as it comes,
with the time, and hpack and hyperframe take it apart afterwards. In between only those frames are looked at which have to be answered.

    connection = WireConnection("127.0.0.1:50051", "/dragoman.v1.TranslationService/TranslateText")
    connection.load(requests, arrivals)      # blocks until all have ended
    answers = connection.answers()           # takes as long again as the load had to do
"""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from hpack import Decoder, Encoder, NeverIndexedHeaderTuple
from hyperframe.frame import (
    DataFrame,
    Frame,
    HeadersFrame,
    PingFrame,
    RstStreamFrame,
    SettingsFrame,
    WindowUpdateFrame,
)

_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_PREFIX = struct.Struct("!?I")  # of a message: whether it is compressed, and its length
_FRAME_HEADER_BYTES = 9
_MAX_FRAME_BYTES = 16_384  # what every side takes
_FIRST_WINDOW = 65_535  # bytes that either side may send before it hears more
_ALL = 2**31 - 1  # the largest window: nothing that comes back ever waits for us
# Frames that have to be looked at at once: what may end a call, and what the server waits for or tells of itself.
_ENDING = {HeadersFrame.type, RstStreamFrame.type}
_ANSWERED = {SettingsFrame.type, PingFrame.type, WindowUpdateFrame.type}
_END_STREAM = 1
# How often it sends what is due and takes what has come. To look costs as much as a call does, and what comes between two looks
# seems to take that much longer.
_TICK_SECONDS = 0.002

Header = tuple[str, str]


@dataclass(frozen=True)
class Answer:
    """A call: when it was due, when it was sent and when its end came, on the monotonic clock, and the headers that ended it.

    Attributes:
        trailers: None where the stream was reset, or nothing came in time.
    """

    due: float
    sent: float
    ended: float
    trailers: tuple[Header, ...] | None


class WireConnection:
    """One connection, for one load of requests below 64 KiB, which need no window of their own.

    Args:
        address: host:port.
        path: The method, as gRPC names it.
    """

    def __init__(self, address: str, path: str) -> None:
        host, _, port = address.rpartition(":")
        self._socket = socket.create_connection((host, int(port)))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket.setblocking(False)
        headers = [
            (":method", "POST"), (":scheme", "http"), (":path", path), (":authority", address), ("te", "trailers"),
            ("content-type", "application/grpc"),
        ]  # fmt: skip
        # Never indexed, so that the same bytes say the same in every call.
        self._headers = Encoder().encode([NeverIndexedHeaderTuple(*header) for header in headers])
        self._unsent = bytearray(_PREFACE)
        self._unsent += SettingsFrame(0, {SettingsFrame.INITIAL_WINDOW_SIZE: _ALL}).serialize()
        self._unsent += WindowUpdateFrame(0, window_increment=_ALL - _FIRST_WINDOW).serialize()
        self._window = _FIRST_WINDOW
        self._received = bytearray()
        self._scanned = 0  # bytes of what was received that have been looked at
        self._times: list[tuple[int, float]] = []  # how much had been received when
        self._dues: list[float] = []
        self._sent: list[float] = []
        self._num_ended = 0

    def load(
        self,
        requests: Sequence[bytes],
        arrivals: Sequence[float],
        *,
        patience: float = 60.0,
        first: Callable[[float], None] = lambda _: None,
        then: Callable[[float], None] = lambda _: None,
    ) -> None:
        """Sends each request when it is due and takes what comes back; the connection is then closed.

        Args:
            requests: Messages, serialised.
            arrivals: When each is due, in seconds from the start, rising.
            patience: Seconds to wait for the last answers.
            first: Called with the time when all is made that is to be sent, which is the start.
            then: Called with the time when the last has been sent.
        """
        calls = [self._call(2 * index + 1, request) for index, request in enumerate(requests)]
        sizes = [_PREFIX.size + len(request) for request in requests]  # what counts towards the window
        # Not sooner: while they are made, which takes a second for a hundred thousand, the first would pile up and come at once.
        start = time.monotonic()
        first(start)
        self._dues = dues = [start + arrival for arrival in arrivals]
        sent = self._sent
        end = None
        while self._num_ended < len(calls) and (end is None or time.monotonic() < end):
            now = time.monotonic()
            while len(sent) < len(calls) and dues[len(sent)] <= now and sizes[len(sent)] <= self._window:
                self._window -= sizes[len(sent)]
                self._unsent += calls[len(sent)]
                sent.append(now)
            if end is None and len(sent) == len(calls):
                end = now + patience
                then(now)
            self._flush()
            time.sleep(_TICK_SECONDS)
            if not self._receive():
                break
        self._socket.close()

    def answers(self) -> list[Answer]:
        """Returns what became of each call, in order."""
        answers = [
            Answer(due, sent, float("inf"), None) for due, sent in zip(self._dues, self._sent, strict=False)
        ]
        decoder, times = Decoder(), iter(self._times)
        num_received, now = 0, 0.0
        start = 0
        while (end := self._frame_end(start)) is not None:
            while num_received < end:
                num_received, now = next(times)
            frame = self._frame(start, end)
            start = end
            if isinstance(frame, RstStreamFrame | HeadersFrame):
                trailers = None
                if isinstance(frame, HeadersFrame):
                    # Every block, in order, since later ones may point to what it said.
                    trailers = tuple((str(name), str(value)) for name, value in decoder.decode(frame.data))
                    if "END_STREAM" not in frame.flags:
                        continue
                index = frame.stream_id // 2
                if answers[index].ended == float("inf"):
                    answers[index] = replace(answers[index], ended=now, trailers=trailers)
        return answers

    def _call(self, stream: int, request: bytes) -> bytes:
        message = _PREFIX.pack(False, len(request)) + request
        frames = [
            DataFrame(stream, message[start : start + _MAX_FRAME_BYTES])
            for start in range(0, len(message), _MAX_FRAME_BYTES)
        ]
        frames[-1].flags.add("END_STREAM")
        headers = HeadersFrame(stream, self._headers, flags=["END_HEADERS"])
        return b"".join(frame.serialize() for frame in (headers, *frames))

    def _flush(self) -> None:
        if self._unsent:
            with suppress(BlockingIOError, ConnectionError):  # that it has gone, `_receive` is told
                del self._unsent[: self._socket.send(self._unsent)]

    def _receive(self) -> bool:
        """Keeps what has come; returns whether there may be more."""
        try:
            data = self._socket.recv(1 << 20)
        except BlockingIOError:  # nothing
            return True
        except ConnectionError:  # the server has gone, and so it is with the calls that have no end yet
            data = b""
        self._received += data
        self._times.append((len(self._received), time.monotonic()))
        while (end := self._frame_end(self._scanned)) is not None:
            kind, flags = self._received[self._scanned + 3], self._received[self._scanned + 4]
            if kind in _ENDING:
                self._num_ended += kind == RstStreamFrame.type or bool(flags & _END_STREAM)
            elif kind in _ANSWERED:
                self._answer(self._frame(self._scanned, end))
            self._scanned = end
        return bool(data)

    def _answer(self, frame: Frame) -> None:
        if isinstance(frame, WindowUpdateFrame):
            self._window += frame.window_increment if frame.stream_id == 0 else 0
        elif isinstance(frame, SettingsFrame | PingFrame) and "ACK" not in frame.flags:
            data = {"opaque_data": frame.opaque_data} if isinstance(frame, PingFrame) else {}
            self._unsent += type(frame)(0, flags=["ACK"], **data).serialize()

    def _frame_end(self, start: int) -> int | None:
        """Returns where the frame at ``start`` ends, None if that hasn't come yet."""
        if len(self._received) < start + _FRAME_HEADER_BYTES:
            return None
        end = start + _FRAME_HEADER_BYTES + int.from_bytes(self._received[start : start + 3])
        return end if end <= len(self._received) else None

    def _frame(self, start: int, end: int) -> Frame:
        body = start + _FRAME_HEADER_BYTES
        frame, _ = Frame.parse_frame_header(memoryview(self._received)[start:body])
        frame.parse_body(memoryview(bytes(self._received[body:end])))
        return frame
