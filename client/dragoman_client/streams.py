"""A translation that arrives piece by piece."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any

import grpc

from dragoman.v1 import StreamTranslateTextResponse
from dragoman_client.closing import AsyncClosing, Closing
from dragoman_client.core import Call
from dragoman_client.errors import ServerError
from dragoman_client.responses import read_translation
from dragoman_client.results import Translation


class _Stream:
    """What both kinds of stream do with what arrives."""

    def __init__(self, call: Call, responses: Any) -> None:
        self._call = call
        self._responses = responses
        self._translation: Translation | None = None
        self._is_closed = False

    @property
    def result(self) -> Translation:
        """The whole translation, there when the last piece has been read.

        Raises:
            RuntimeError: The stream has not been read to its end.
        """
        if self._translation is None:
            raise RuntimeError("the stream has not been read to its end, where the whole translation comes")
        return self._translation

    def _feed(self, response: StreamTranslateTextResponse) -> str:
        """Returns the piece that arrived, empty where it was none."""
        if self._translation is not None:
            raise ServerError("the server sent something after the whole translation")
        if response.WhichOneof("event") == "result":
            result = response.result
            if len(result.translations) != 1:
                raise ServerError(f"the server sent {len(result.translations)} translations of one text")
            self._translation = read_translation(result.translations[0], result.model, result.model_digest)
        return response.delta.text

    def _check_end(self) -> None:
        if self._translation is None and not self._is_closed:
            raise ServerError("the server ended the stream before the whole translation")


class TranslationStream(_Stream, Closing, Iterator[str]):
    """The pieces of a translation, as they become final; joined they are the translation's text.

    ::

        with translator.stream("A girl is reading a book.") as stream:
            for piece in stream:
                print(piece, end="", flush=True)
        print(stream.result.score)

    Closing it early, as the end of the ``with`` block does, cancels the call.
    """

    def __next__(self) -> str:
        try:
            with self._call.raising():
                for response in self._responses:
                    if piece := self._feed(response):
                        return piece
        except Exception:
            if self._is_closed:  # by another thread
                raise StopIteration from None
            self.close()
            raise
        self._check_end()
        raise StopIteration

    def close(self) -> None:
        """Ends the stream; the server stops working on it."""
        self._is_closed = True
        self._responses.cancel()


class AsyncTranslationStream(_Stream, AsyncClosing, AsyncIterator[str]):
    """The pieces of a translation, for asyncio; see :class:`TranslationStream`.

    ::

        async with translator.stream("A girl is reading a book.") as stream:
            async for piece in stream:
                print(piece, end="", flush=True)
        print(stream.result.score)
    """

    async def __anext__(self) -> str:
        try:
            with self._call.raising():
                while (response := await self._responses.read()) is not grpc.aio.EOF:
                    if piece := self._feed(response):
                        return piece
        except asyncio.CancelledError:
            task = asyncio.current_task()
            is_reader_cancelled = task is not None and task.cancelling() > 0
            if self._is_closed and not is_reader_cancelled:
                raise StopAsyncIteration from None
            raise
        except Exception:
            if self._is_closed:  # by another task
                raise StopAsyncIteration from None
            await self.close()
            raise
        self._check_end()
        raise StopAsyncIteration

    async def close(self) -> None:
        """Ends the stream; the server stops working on it."""
        self._is_closed = True
        self._responses.cancel()
