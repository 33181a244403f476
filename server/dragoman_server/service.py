"""The RPCs; `rpcs` has a module for each."""

from __future__ import annotations

from collections.abc import AsyncIterator

from dragoman.v1 import (
    DumpAttentionRequest,
    DumpAttentionResponse,
    ListModelsRequest,
    ListModelsResponse,
    ScoreTextRequest,
    ScoreTextResponse,
    StreamTranslateTextRequest,
    StreamTranslateTextResponse,
    TranslateBatchRequest,
    TranslateBatchResponse,
    TranslateTextRequest,
    TranslateTextResponse,
    TranslationServiceServicer,
)
from dragoman_server.catalogue import Catalogue
from dragoman_server.limits import CallLimits
from dragoman_server.rpcs.attention_sample import AttentionSample
from dragoman_server.rpcs.concurrency import ConcurrentCalls
from dragoman_server.rpcs.dump_attention import dump_attention
from dragoman_server.rpcs.list_models import list_models
from dragoman_server.rpcs.score_text import score_text
from dragoman_server.rpcs.stream_translate_text import stream_translate_text
from dragoman_server.rpcs.translate_batch import translate_batch
from dragoman_server.rpcs.translate_text import translate_text
from dragoman_server.rpcs.work import Backend, Context


class TranslationService(TranslationServiceServicer):
    """Serves the models of a catalogue, behind `interceptors.CallInterceptor`.

    Args:
        catalogue: The served models.
        limits: What one call may hold, and how many of a kind run at once.
    """

    def __init__(self, catalogue: Catalogue, limits: CallLimits) -> None:
        self._backend = Backend(catalogue, limits)
        self._samples = {served.name: AttentionSample(served) for served in catalogue.models}

        def of_each_model(method: str, limit: int, setting: str) -> dict[str, ConcurrentCalls]:
            return {served.name: ConcurrentCalls(method, limit, setting) for served in catalogue.models}

        self._bulk_streams = of_each_model("TranslateBatch", limits.max_bulk_streams, "--max-bulk-streams")
        self._attention_calls = of_each_model(
            "DumpAttention", limits.max_attention_calls, "--max-attention-calls"
        )

    def drain(self) -> None:
        """Takes no further items from the bulk streams that run."""
        self._backend.draining.set()

    async def TranslateText(  # noqa: N802 (as the contract spells it)
        self, request: TranslateTextRequest, context: Context
    ) -> TranslateTextResponse:
        """Translates the request's texts; the whole call succeeds or fails."""
        return await translate_text(self._backend, self._samples, request, context)

    def StreamTranslateText(  # noqa: N802 (as the contract spells it)
        self, request: StreamTranslateTextRequest, context: Context
    ) -> AsyncIterator[StreamTranslateTextResponse]:
        """Yields what is sure of a text's translation as soon as it is, and last the whole translation."""
        return stream_translate_text(self._backend, self._samples, request, context)

    def TranslateBatch(  # noqa: N802 (as the contract spells it)
        self, request_iterator: AsyncIterator[TranslateBatchRequest], context: Context
    ) -> AsyncIterator[TranslateBatchResponse]:
        """Yields the results of any number of texts as they finish, each with a result or an error of its own."""
        return translate_batch(self._backend, self._samples, self._bulk_streams, request_iterator, context)

    async def ScoreText(  # noqa: N802 (as the contract spells it)
        self, request: ScoreTextRequest, context: Context
    ) -> ScoreTextResponse:
        """Returns the probability of given translations; the whole call succeeds or fails."""
        return await score_text(self._backend, request, context)

    def DumpAttention(  # noqa: N802 (as the contract spells it)
        self, request: DumpAttentionRequest, context: Context
    ) -> AsyncIterator[DumpAttentionResponse]:
        """Yields the cross-attention of the text's translation, made now or given, sentence by sentence."""
        return dump_attention(self._backend, self._attention_calls, request, context)

    async def ListModels(  # noqa: N802 (as the contract spells it)
        self, request: ListModelsRequest, context: Context
    ) -> ListModelsResponse:
        """Lists the served models, page by page where asked to."""
        return list_models(self._backend, request)
