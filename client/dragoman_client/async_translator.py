"""The asyncio client: the blocking one's twin."""
# ruff: noqa: ASYNC109 - a timeout travels to the server, which then stops too; `asyncio.timeout` would not tell it

from collections.abc import AsyncGenerator, AsyncIterable, Iterable, Sequence
from types import TracebackType
from typing import Any, Self, overload

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from dragoman.v1 import ListModelsRequest, ScoreTextRequest, TranslateTextRequest, TranslationServiceStub
from dragoman_client.attention import Attention
from dragoman_client.attention_reader import AttentionReader
from dragoman_client.bulk import DEFAULT_MAX_OUTAGE_SECONDS, DEFAULT_MAX_PENDING, Bulk, Outage
from dragoman_client.bulk_asyncio import pair_prefixes, translate_in_bulk
from dragoman_client.bulk_connection import BulkCalls
from dragoman_client.channel import DEFAULT_ADDRESS, DEFAULT_TIMEOUT_SECONDS, Metadata, channel_options
from dragoman_client.chunks import Chunk, send_chunks_together
from dragoman_client.core import Core, read_health, read_health_error
from dragoman_client.errors import DragomanError
from dragoman_client.options import AlignmentMethod, DecodingOptions, Split
from dragoman_client.requests import (
    build_attention_request,
    build_batch_header,
    build_score_chunks,
    build_stream_request,
    build_translate_chunks,
)
from dragoman_client.responses import read_models, read_scores, read_translations
from dragoman_client.results import BatchResult, ModelList, Score, ServingStatus, Translation
from dragoman_client.selection import AttentionSelection
from dragoman_client.streams import AsyncTranslationStream


class AsyncTranslator:
    """A connection to a dragoman server, for asyncio. Takes what :class:`Translator` takes.

    ::

        async with AsyncTranslator() as translator:
            print(await translator.translate("A girl is reading a book."))

    Args:
        address: The server's HOST:PORT.
        timeout: Seconds until a call fails, retries included; None waits for ever.
        credentials: From ``grpc.ssl_channel_credentials`` and its like; None speaks plain text.
        metadata: Sent with every call, such as ``[("authorization", "Bearer …")]``; keys in lower case.
        max_concurrent_calls: Calls of one long list that run at a time. Two keep the server's batch full; more only
            fill its queue.

    Raises:
        ValueError: The address is not HOST:PORT, or a number is not above 0.
    """

    def __init__(
        self,
        address: str = DEFAULT_ADDRESS,
        *,
        timeout: float | None = DEFAULT_TIMEOUT_SECONDS,
        credentials: grpc.ChannelCredentials | None = None,
        metadata: Metadata = (),
        max_concurrent_calls: int = 2,
    ) -> None:
        if max_concurrent_calls < 1:
            raise ValueError(f"max_concurrent_calls is {max_concurrent_calls}; give 1 or more")
        self._core = Core(address, timeout=timeout, metadata=metadata)
        self._credentials = credentials
        self._max_concurrent_calls = max_concurrent_calls
        self._channel: grpc.aio.Channel | None = None
        self._bulk_channel: grpc.Channel | None = None

    def _connected(self) -> grpc.aio.Channel:
        """Returns the channel, which belongs to the event loop of the first call."""
        if self._channel is None:
            options = channel_options(self._core.address)
            self._channel = (
                grpc.aio.insecure_channel(self._core.address, options)
                if self._credentials is None
                else grpc.aio.secure_channel(self._core.address, self._credentials, options)
            )
        return self._channel

    def _connected_for_bulk(self) -> grpc.Channel:
        """Returns the channel of bulk translations, which ``bulk_connection`` explains."""
        if self._bulk_channel is None:
            options = channel_options(self._core.address)
            self._bulk_channel = (
                grpc.insecure_channel(self._core.address, options)
                if self._credentials is None
                else grpc.secure_channel(self._core.address, self._credentials, options)
            )
        return self._bulk_channel

    @overload
    async def translate(
        self,
        text: str,
        *,
        source_language: str | None = None,
        target_language: str | None = None,
        model: str | None = None,
        options: DecodingOptions | None = None,
        target_prefix: str | None = None,
        include_tokens: bool = False,
        include_alignments: AlignmentMethod | str | bool = False,
        split: Split | str = Split.SENTENCES,
        timeout: float | None = None,
    ) -> Translation: ...

    @overload
    async def translate(
        self,
        text: list[str] | tuple[str, ...],
        *,
        source_language: str | None = None,
        target_language: str | None = None,
        model: str | None = None,
        options: DecodingOptions | None = None,
        target_prefix: list[str] | tuple[str, ...] | None = None,
        include_tokens: bool = False,
        include_alignments: AlignmentMethod | str | bool = False,
        split: Split | str = Split.SENTENCES,
        timeout: float | None = None,
    ) -> list[Translation]: ...

    async def translate(
        self,
        text: str | list[str] | tuple[str, ...],
        *,
        source_language: str | None = None,
        target_language: str | None = None,
        model: str | None = None,
        options: DecodingOptions | None = None,
        target_prefix: str | list[str] | tuple[str, ...] | None = None,
        include_tokens: bool = False,
        include_alignments: AlignmentMethod | str | bool = False,
        split: Split | str = Split.SENTENCES,
        timeout: float | None = None,
    ) -> Translation | list[Translation]:
        """Returns the translation of a text, or of each text of a list in its order.

        Arguments and errors are those of :meth:`Translator.translate`. A long list goes out in several calls,
        ``max_concurrent_calls`` at a time; when one fails, the others are cancelled and the whole list fails.
        """
        chunks = build_translate_chunks(
            [text] if isinstance(text, str) else list(text),
            source_language=source_language,
            target_language=target_language,
            model=model,
            options=options,
            target_prefixes=[target_prefix] if isinstance(target_prefix, str) else target_prefix,
            include_tokens=include_tokens,
            include_alignments=include_alignments,
            split=split,
        )

        async def send(chunk: Chunk[TranslateTextRequest]) -> list[Translation]:
            call = self._core.begin(timeout)
            with call.raising(text_offset=chunk.offset):
                response = await TranslationServiceStub(self._connected()).TranslateText(
                    chunk.request, timeout=call.timeout, metadata=call.metadata
                )
            return read_translations(chunk.request, response)

        translations = await send_chunks_together(
            chunks, send, max_concurrent_calls=self._max_concurrent_calls
        )
        return translations[0] if isinstance(text, str) else translations

    def stream(
        self,
        text: str,
        *,
        source_language: str | None = None,
        target_language: str | None = None,
        model: str | None = None,
        options: DecodingOptions | None = None,
        target_prefix: str | None = None,
        include_tokens: bool = False,
        include_alignments: AlignmentMethod | str | bool = False,
        split: Split | str = Split.SENTENCES,
        timeout: float | None = None,
    ) -> AsyncTranslationStream:
        """Returns the pieces of a text's translation, as they become final; see :meth:`Translator.stream`.

        Call it where an event loop runs; there is nothing to await before the first piece.
        """
        request = build_stream_request(
            text,
            source_language=source_language,
            target_language=target_language,
            model=model,
            options=options,
            target_prefix=target_prefix,
            include_tokens=include_tokens,
            include_alignments=include_alignments,
            split=split,
        )
        call = self._core.begin(timeout)
        stub = TranslationServiceStub(self._connected())
        responses = stub.StreamTranslateText(request, timeout=call.timeout, metadata=call.metadata)
        return AsyncTranslationStream(call, responses)

    def translate_batch(
        self,
        texts: Iterable[str] | AsyncIterable[str],
        *,
        source_language: str | None = None,
        target_language: str | None = None,
        model: str | None = None,
        options: DecodingOptions | None = None,
        target_prefix: str | Iterable[str] | AsyncIterable[str] | None = None,
        include_tokens: bool = False,
        include_alignments: AlignmentMethod | str | bool = False,
        split: Split | str = Split.SENTENCES,
        ordered: bool = True,
        max_pending: int = DEFAULT_MAX_PENDING,
        max_outage_seconds: float = DEFAULT_MAX_OUTAGE_SECONDS,
        timeout: float | None = None,
    ) -> AsyncGenerator[BatchResult, None]:
        """Yields a result for each of any number of texts; see :meth:`Translator.translate_batch`.

        Texts may come from an asynchronous iterable: while the next is waited for, results go on coming.
        """
        if isinstance(texts, str):
            raise TypeError("texts is one str; give an iterable of them, or call translate")
        bulk = Bulk(ordered=ordered, max_pending=max_pending)
        header = build_batch_header(
            source_language=source_language,
            target_language=target_language,
            model=model,
            options=options,
            include_tokens=include_tokens,
            include_alignments=include_alignments,
            split=split,
        )
        self._core.begin(timeout)  # refuses at once what it would refuse later
        return translate_in_bulk(
            pair_prefixes(texts, target_prefix),
            bulk,
            Outage(max_outage_seconds),
            BulkCalls(
                header=header,
                begin=lambda: self._core.begin(timeout),
                start=TranslationServiceStub(self._connected_for_bulk()).TranslateBatch,
            ),
        )

    async def score(
        self,
        pairs: Sequence[tuple[str, str]],
        *,
        source_language: str | None = None,
        target_language: str | None = None,
        model: str | None = None,
        timeout: float | None = None,
    ) -> list[Score]:
        """Returns how probable given translations are, in their order; see :meth:`Translator.score`."""
        chunks = build_score_chunks(
            list(pairs), source_language=source_language, target_language=target_language, model=model
        )

        async def send(chunk: Chunk[ScoreTextRequest]) -> list[Score]:
            call = self._core.begin(timeout)
            with call.raising(text_offset=chunk.offset):
                response = await TranslationServiceStub(self._connected()).ScoreText(
                    chunk.request, timeout=call.timeout, metadata=call.metadata
                )
            return read_scores(chunk.request, response)

        return await send_chunks_together(chunks, send, max_concurrent_calls=self._max_concurrent_calls)

    async def attention(
        self,
        text: str,
        *,
        translation: str | None = None,
        source_language: str | None = None,
        target_language: str | None = None,
        model: str | None = None,
        options: DecodingOptions | None = None,
        split: Split | str | None = None,
        selection: AttentionSelection | None = None,
        timeout: float | None = None,
    ) -> list[Attention]:
        """Returns the attention behind a text's translation; see :meth:`Translator.attention`."""
        request = build_attention_request(
            text,
            translation=translation,
            source_language=source_language,
            target_language=target_language,
            model=model,
            options=options,
            split=split,
            selection=selection,
        )
        reader = AttentionReader(text)
        call = self._core.begin(timeout)
        with call.raising():
            async for response in TranslationServiceStub(self._connected()).DumpAttention(
                request, timeout=call.timeout, metadata=call.metadata
            ):
                reader.feed(response)
        return reader.finish()

    async def models(self, *, timeout: float | None = None) -> ModelList:
        """Returns the served models and the server's limits; see :meth:`Translator.models`."""
        call = self._core.begin(timeout)
        with call.raising():
            response = await TranslationServiceStub(self._connected()).ListModels(
                ListModelsRequest(), timeout=call.timeout, metadata=call.metadata
            )
        return read_models(response)

    async def health(self, model: str | None = None, *, timeout: float | None = None) -> ServingStatus:
        """Returns whether requests are taken; see :meth:`Translator.health`."""
        request = health_pb2.HealthCheckRequest(service=model or "")
        call = self._core.begin(timeout)
        try:
            with call.raising():
                response = await self._health_stub().Check(
                    request, timeout=call.timeout, metadata=call.metadata
                )
        except DragomanError as error:
            return read_health_error(error)
        return read_health(response)

    def _health_stub(self) -> Any:
        """Returns the health service's stub, which knows no types."""
        return health_pb2_grpc.HealthStub(self._connected())

    async def close(self) -> None:
        """Ends the connection; calls that still run fail."""
        self._core.closed = True
        if self._bulk_channel is not None:
            self._bulk_channel.close()
        if self._channel is not None:
            await self._channel.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()
