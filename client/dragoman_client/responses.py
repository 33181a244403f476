"""Messages of the wire contract → results: the one place where they are read."""

from collections.abc import Iterable

from dragoman.v1 import AttentionUnit as WireUnit
from dragoman.v1 import FinishReason as WireFinishReason
from dragoman.v1 import (
    ListModelsResponse,
    ScoreTextRequest,
    ScoreTextResponse,
    TokenScore,
    TranslateTextRequest,
    TranslateTextResponse,
)
from dragoman.v1 import Model as WireModel
from dragoman.v1 import Translation as WireTranslation
from dragoman.v1 import Warning as WireWarning
from dragoman.v1 import WarningKind as WireWarningKind
from dragoman_client.errors import ServerError
from dragoman_client.results import (
    FinishReason,
    Hypothesis,
    Score,
    ScoredToken,
    TextSpan,
    Translation,
    TranslationWarning,
    WarningKind,
    WordLink,
)
from dragoman_client.serving import LanguagePair, Limits, Model, ModelList

_FINISH_REASONS = {
    WireFinishReason.FINISH_REASON_EOS: FinishReason.EOS,
    WireFinishReason.FINISH_REASON_LENGTH: FinishReason.LENGTH,
    WireFinishReason.FINISH_REASON_BLANK: FinishReason.BLANK,
}
_WARNING_KINDS = {
    WireWarningKind.WARNING_KIND_UNCOVERED_SOURCE: WarningKind.UNCOVERED_SOURCE,
    WireWarningKind.WARNING_KIND_REPETITION: WarningKind.REPETITION,
    WireWarningKind.WARNING_KIND_COPY: WarningKind.COPY,
    WireWarningKind.WARNING_KIND_LENGTH_RATIO: WarningKind.LENGTH_RATIO,
}


def read_translations(request: TranslateTextRequest, response: TranslateTextResponse) -> list[Translation]:
    """Returns the translations of a request's texts.

    Raises:
        ServerError: There is not one for each text.
    """
    if len(response.translations) != len(request.texts):
        raise ServerError(
            f"the server sent {len(response.translations)} translations of {len(request.texts)} texts"
        )
    return [
        read_translation(translation, response.model, response.model_digest)
        for translation in response.translations
    ]


def read_translation(translation: WireTranslation, model: str, model_digest: str) -> Translation:
    """Returns a translation by the named model."""
    return Translation(
        text=translation.text,
        finish_reason=_FINISH_REASONS.get(translation.finish_reason, FinishReason.UNSPECIFIED),
        score=translation.score if translation.HasField("score") else None,
        normalized_score=translation.normalized_score if translation.HasField("normalized_score") else None,
        source_token_count=translation.source_token_count,
        target_token_count=translation.target_token_count,
        sentence_count=translation.sentence_count,
        tokens=_read_tokens(translation.tokens),
        model=model,
        model_digest=model_digest,
        alternatives=tuple(
            Hypothesis(
                text=alternative.text,
                finish_reason=_FINISH_REASONS.get(alternative.finish_reason, FinishReason.UNSPECIFIED),
                score=alternative.score,
                normalized_score=alternative.normalized_score,
                target_token_count=alternative.target_token_count,
                tokens=_read_tokens(alternative.tokens),
            )
            for alternative in translation.alternatives
        ),
        seed=translation.seed if translation.HasField("seed") else None,
        warnings=tuple(map(_read_warning, translation.warnings)),
        word_links=tuple(
            WordLink(
                source=TextSpan(link.source.start, link.source.end) if link.HasField("source") else None,
                target=TextSpan(link.target.start, link.target.end),
                probability=link.probability,
            )
            for link in translation.word_links
        ),
    )


def _read_warning(warning: WireWarning) -> TranslationWarning:
    return TranslationWarning(
        kind=_WARNING_KINDS.get(warning.kind, WarningKind.UNSPECIFIED),
        message=warning.message,
        source=TextSpan(warning.source.start, warning.source.end) if warning.HasField("source") else None,
        target=TextSpan(warning.target.start, warning.target.end) if warning.HasField("target") else None,
        value=warning.value,
    )


def read_scores(request: ScoreTextRequest, response: ScoreTextResponse) -> list[Score]:
    """Returns the scores of a request's pairs.

    Raises:
        ServerError: There is not one for each pair.
    """
    if len(response.scores) != len(request.items):
        raise ServerError(f"the server sent {len(response.scores)} scores of {len(request.items)} pairs")
    return [
        Score(
            score=score.score,
            normalized_score=score.normalized_score,
            tokens=_read_tokens(score.tokens),
            model=response.model,
            model_digest=response.model_digest,
        )
        for score in response.scores
    ]


def _read_tokens(tokens: Iterable[TokenScore]) -> tuple[ScoredToken, ...]:
    return tuple(ScoredToken(token.piece, token.log_probability, read_span(token)) for token in tokens)


def read_span(message: TokenScore | WireUnit) -> TextSpan | None:
    """Returns a message's ``span``, None where it is not set."""
    return TextSpan(message.span.start, message.span.end) if message.HasField("span") else None


def read_models(response: ListModelsResponse) -> ModelList:
    """Returns the served models and the server's limits."""
    limits = response.limits
    return ModelList(
        models=tuple(_read_model(model) for model in response.models),
        limits=Limits(
            max_text_count=limits.max_text_count,
            max_text_characters=limits.max_text_characters,
            max_beam_size=limits.max_beam_size,
            max_num_hypotheses=limits.max_num_hypotheses,
            max_sentence_rows=limits.max_sentence_rows,
            max_batch_size=limits.max_batch_size,
            max_queue_size=limits.max_queue_size,
            max_bulk_streams=limits.max_bulk_streams,
            max_attention_calls=limits.max_attention_calls,
            max_queue_seconds=limits.max_queue_seconds,
        ),
    )


def _read_model(model: WireModel) -> Model:
    return Model(
        name=model.name,
        language_pairs=tuple(
            LanguagePair(pair.source_language_code, pair.target_language_code)
            for pair in model.language_pairs
        ),
        digest=model.digest,
        precision=model.precision,
        device=model.device,
        parameter_count=model.parameter_count,
        encoder_layer_count=model.encoder_layer_count,
        decoder_layer_count=model.decoder_layer_count,
        head_count=model.head_count,
        max_source_token_count=model.max_source_token_count,
        max_target_token_count=model.max_target_token_count,
        kernels=model.kernels,
    )
