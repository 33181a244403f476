"""The blocking client."""

from collections.abc import Generator, Iterable, Sequence
from typing import overload

from dragoman.v1 import ScoreTextRequest, TranslateTextRequest, TranslationServiceStub
from dragoman_client.attention import Attention
from dragoman_client.attention_reader import AttentionReader
from dragoman_client.bulk import DEFAULT_MAX_OUTAGE_SECONDS, DEFAULT_MAX_PENDING, Bulk, Outage, pair_prefixes
from dragoman_client.bulk_blocking import translate_in_bulk
from dragoman_client.bulk_connection import BulkCalls
from dragoman_client.chunks import Chunk, send_chunks
from dragoman_client.connection import ServerConnection
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
from dragoman_client.streams import TranslationStream


class Translator(ServerConnection):
    """A connection to a dragoman server. Close it, or use it as a context manager; share it between threads.

    ::

        with Translator() as translator:
            print(translator.translate("A girl is reading a book."))

    Calls that translate, score or list models are sent again, at most three times within about a second, where the
    server is unavailable or has no room.

    Args:
        address: The server's HOST:PORT.
        timeout: Seconds until a call fails, retries included; None waits for ever.
        credentials: From ``grpc.ssl_channel_credentials`` and its like; None speaks plain text.
        metadata: Sent with every call, such as ``[("authorization", "Bearer …")]``; keys in lower case.

    Raises:
        ValueError: The address is not HOST:PORT, or the timeout is not above 0.
    """

    @overload
    def translate(
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
    def translate(
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

    def translate(
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

        A long list goes out in several calls, one after the other; when one fails, the whole list does.

        Args:
            text: At most 20,000 characters (or what the server's limit is); any number of texts.
            source_language: BCP-47 code; None takes the model's own.
            target_language: BCP-47 code; None takes the model's own.
            model: A name from :meth:`models`; None takes the first that serves the languages.
            options: How to search; None takes the server's defaults.
            target_prefix: What the translation starts with; of a list, one for each text.
            include_tokens: Fills ``Translation.tokens``.
            include_alignments: Fills ``Translation.word_links``; True by the model's own method, or name one.
            split: How a text is cut into sentences.
            timeout: Seconds for each call; None takes the translator's.

        Raises:
            InvalidRequestError: A text or an option is refused; ``field_violations`` says which and why.
            NotFoundError: No such model, or none for the languages.
            OverloadedError: The server has no room, after retries.
            UnavailableError: No server answers, after retries.
            DeadlineExceededError: The timeout passed.
            ServerError: The server failed.
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

        def send(chunk: Chunk[TranslateTextRequest]) -> list[Translation]:
            call = self._core.begin(timeout)
            with call.raising(text_offset=chunk.offset):
                response = self._stub.TranslateText(
                    chunk.request, timeout=call.timeout, metadata=call.metadata
                )
            return read_translations(chunk.request, response)

        translations = send_chunks(chunks, send)
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
    ) -> TranslationStream:
        """Returns the pieces of a text's translation, as they become final.

        Arguments and errors are those of :meth:`translate`; the errors come while the pieces are read. It is retried, too,
        but only until the first piece is there.
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
        responses = self._stub.StreamTranslateText(request, timeout=call.timeout, metadata=call.metadata)
        return TranslationStream(call, responses)

    def translate_batch(
        self,
        texts: Iterable[str],
        *,
        source_language: str | None = None,
        target_language: str | None = None,
        model: str | None = None,
        options: DecodingOptions | None = None,
        target_prefix: str | Iterable[str] | None = None,
        include_tokens: bool = False,
        include_alignments: AlignmentMethod | str | bool = False,
        split: Split | str = Split.SENTENCES,
        ordered: bool = True,
        max_pending: int = DEFAULT_MAX_PENDING,
        max_outage_seconds: float = DEFAULT_MAX_OUTAGE_SECONDS,
        timeout: float | None = None,
    ) -> Generator[BatchResult, None, None]:
        """Yields a result for each of any number of texts, through one call and little memory.

        A text that cannot be translated has its error in its result; the others go on. What fails all of them is
        raised. When the connection is lost, what is unanswered is sent again. The call begins with the first result
        that is asked for; closing the generator cancels it.

        Args:
            texts: Read in the caller's thread, as there is room: never further ahead than ``max_pending``.
            source_language: BCP-47 code; None takes the model's own.
            target_language: BCP-47 code; None takes the model's own.
            model: A name from :meth:`models`; None takes the first that serves the languages.
            options: How to search; None takes the server's defaults.
            target_prefix: What each translation starts with; or one for each text.
            include_tokens: Fills ``Translation.tokens``.
            include_alignments: Fills ``Translation.word_links``; True by the model's own method, or name one.
            split: How a text is cut into sentences.
            ordered: Yields in the order of the texts; False yields as they finish.
            max_pending: Texts read whose results have not been yielded, at most.
            max_outage_seconds: How long to wait for a server that went away or has no room. One that never answered is
                given up within a second.
            timeout: Seconds without an answer while there is a text to be answered; None takes the translator's.

        Raises:
            DragomanError: As :meth:`translate` does, where it is not one text that is refused.
            ValueError: A number is not above 0, or there are fewer prefixes than texts.
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
            pair_prefixes(iter(texts), target_prefix),
            bulk,
            Outage(max_outage_seconds),
            BulkCalls(
                header=header,
                begin=lambda: self._core.begin(timeout),
                start=TranslationServiceStub(self._connected_for_bulk()).TranslateBatch,
            ),
        )

    def score(
        self,
        pairs: Sequence[ScorePair],
        *,
        source_language: str | None = None,
        target_language: str | None = None,
        model: str | None = None,
        timeout: float | None = None,
    ) -> list[Score]:
        """Returns how probable given translations are, in their order: of a translation's own tokens, its own score.

        ::

            translation = translator.translate(text, split="none", include_tokens=True)
            translator.score([(text, translation.tokens), (text, "What else it could be.")])

        A long list goes out in several calls, as :meth:`translate` sends one.

        Args:
            pairs: Texts and their translations, each taken as one sentence. A translation is a text, which is cut into tokens
                anew, or the tokens that it was written in.
            source_language: BCP-47 code; None takes the model's own.
            target_language: BCP-47 code; None takes the model's own.
            model: A name from :meth:`models`; None takes the first that serves the languages.
            timeout: Seconds for each call; None takes the translator's.

        Raises:
            DragomanError: As :meth:`translate` does.
        """
        chunks = build_score_chunks(
            list(pairs), source_language=source_language, target_language=target_language, model=model
        )

        def send(chunk: Chunk[ScoreTextRequest]) -> list[Score]:
            call = self._core.begin(timeout)
            with call.raising(text_offset=chunk.offset):
                response = self._stub.ScoreText(chunk.request, timeout=call.timeout, metadata=call.metadata)
            return read_scores(chunk.request, response)

        return send_chunks(chunks, send)

    def attention(
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
        """Returns the attention behind a text's translation, sentence by sentence.

        Args:
            text: At most 20,000 characters (or what the server's limit is).
            translation: Takes this as the translation (forced decoding) and the text as one sentence; None translates.
            source_language: BCP-47 code; None takes the model's own.
            target_language: BCP-47 code; None takes the model's own.
            model: A name from :meth:`models`; None takes the first that serves the languages.
            options: How to search; None takes the server's defaults.
            split: How the text is cut into sentences; None takes the server's default.
            selection: Which weights; None takes cross-attention, every layer and head, pieces.
            timeout: Seconds; None takes the translator's.

        Returns:
            One for each sentence; none for blank text.

        Raises:
            DragomanError: As :meth:`translate` does; this call is never retried.
        """
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
            for response in self._stub.DumpAttention(request, timeout=call.timeout, metadata=call.metadata):
                reader.feed(response)
        return reader.finish()
