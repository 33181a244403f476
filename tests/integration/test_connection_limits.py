"""How many calls one connection may bring, seen frame by frame: a client of gRPC's own would keep to it by itself."""

from __future__ import annotations

import asyncio
import struct

from dragoman_model.checkpoint import LoadedModel
from tests.integration.servers import serving, until

HEADERS, RST_STREAM, SETTINGS = 1, 3, 4
ACK, END_HEADERS = 1, 4
MAX_CONCURRENT_STREAMS = 3
REFUSED_STREAM = 7
CALL = {
    ":method": "POST",
    ":scheme": "http",
    ":path": "/dragoman.v1.TranslationService/TranslateBatch",
    ":authority": "localhost",
    "te": "trailers",
    "content-type": "application/grpc",
}


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    return len(payload).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + payload


def header_block(headers: dict[str, str]) -> bytes:
    """Returns the headers as HPACK literals that are never indexed, each with its name."""
    strings = ([text.encode() for text in pair] for pair in headers.items())
    return b"".join(
        b"\x10" + bytes([len(name)]) + name + bytes([len(value)]) + value for name, value in strings
    )


async def next_frame(reader: asyncio.StreamReader, wanted: int) -> tuple[int, bytes]:
    """Returns the stream and the payload of the next frame of a kind; others are passed over."""
    while True:
        head = await reader.readexactly(9)
        payload = await reader.readexactly(int.from_bytes(head[:3], "big"))
        if head[3] == wanted:
            return int.from_bytes(head[5:], "big"), payload


async def test_calls_above_what_the_server_could_hold_are_turned_away_by_the_connection(model: LoadedModel):
    limits = {"max_queue_size": 5, "max_batch_size": 3, "max_bulk_streams": 2, "max_attention_calls": 1}
    async with serving(model, **limits) as server, asyncio.timeout(20):
        host, port = server.app.grpc_address.split(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(SETTINGS, 0, 0))
        _, settings = await next_frame(reader, SETTINGS)
        max_calls = dict(struct.iter_unpack("!HI", settings))[MAX_CONCURRENT_STREAMS]
        assert max_calls == 5 + 3 + 2 + 1 + 1000  # and so many on their way to a refusal

        streams = range(1, 2 * max_calls + 2, 2)
        calls = (frame(HEADERS, END_HEADERS, stream, header_block(CALL)) for stream in streams)
        writer.write(frame(SETTINGS, ACK, 0) + b"".join(calls))
        assert await next_frame(reader, RST_STREAM) == (streams[-1], struct.pack("!I", REFUSED_STREAM))
        await until(lambda: server.app.interceptor._running == max_calls)

        writer.close()
        await server.app.interceptor.wait_until_idle()
