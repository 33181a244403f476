"""The asyncio client: the blocking one's twin."""
# ruff: noqa: ASYNC109 - a timeout travels to the server, which then stops too; `asyncio.timeout` would not tell it

from collections.abc import AsyncGenerator, AsyncIterable, Iterable, Sequence
from typing import overload

from dragoman.v1 import ScoreTextRequest, TranslateTextRequest, TranslationServiceStub
from dragoman_client.async_connection import AsyncServerConnection
from dragoman_client.attention import Attention
from dragoman_client.attention_reader import AttentionReader
from dragoman_client.bulk import DEFAULT_MAX_OUTAGE_SECONDS, DEFAULT_MAX_PENDING, Bulk, Outage
from dragoman_client.bulk_asyncio import pair_prefixes, translate_in_bulk
from dragoman_client.bulk_connection import BulkCalls
from dragoman_client.chunks import Chunk, send_chunks_together
from dragoman_client.options import AlignmentMethod, DecodingOptions, Split
from dragoman_client.requests import (
    build_attention_request,
    build_batch_header,
    build_score_chunks,
    build_stream_request,
    build_translate_chunks,
)
from dragoman_client.responses import read_scores, read_translations
from dragoman_client.results import BatchResult, Score, ScorePair, Translation
from dragoman_client.selection import AttentionSelection
from dragoman_client.streams import AsyncTranslationStream


class AsyncTranslator(AsyncServerConnection):
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
        pairs: Sequence[ScorePair],
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
