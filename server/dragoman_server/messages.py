"""From plain results to protocol messages."""

from __future__ import annotations

from collections.abc import Sequence

from dragoman.v1 import (
    FinishReason,
    Hypothesis,
    LanguagePair,
    Limits,
    Model,
    TextSpan,
    TokenScore,
    Translation,
    WarningKind,
    WordLink,
)
from dragoman.v1 import Warning as WarningMessage
from dragoman_model import alignment, plan, quality
from dragoman_model.checkpoint import LoadedModel
from dragoman_model.options import DecodingOptions
from dragoman_model.quality import QualityWarning
from dragoman_model.translation import ScoredToken, TextTranslation
from dragoman_server.limits import CallLimits

FINISH_REASONS = {
    plan.FinishReason.EOS: FinishReason.FINISH_REASON_EOS,
    plan.FinishReason.LENGTH: FinishReason.FINISH_REASON_LENGTH,
    None: FinishReason.FINISH_REASON_BLANK,
}

WARNING_KINDS = {
    quality.WarningKind.UNCOVERED_SOURCE: WarningKind.WARNING_KIND_UNCOVERED_SOURCE,
    quality.WarningKind.REPETITION: WarningKind.WARNING_KIND_REPETITION,
    quality.WarningKind.COPY: WarningKind.WARNING_KIND_COPY,
    quality.WarningKind.LENGTH_RATIO: WarningKind.WARNING_KIND_LENGTH_RATIO,
}


def translation_message(
    translation: TextTranslation,
    options: DecodingOptions,
    *,
    include_tokens: bool = False,
    word_links: Sequence[alignment.WordLink] = (),
) -> Translation:
    """Returns the message of a translated text.

    Args:
        translation: The text's translation.
        options: How it was searched for; the seed, where one was used, is set.
        include_tokens: Adds the tokens, of the alternatives, too.
        word_links: Of the translation's words.
    """
    is_blank = translation.finish_reason is None
    return Translation(
        text=translation.text,
        finish_reason=FINISH_REASONS[translation.finish_reason],
        score=translation.score,
        normalized_score=translation.normalized_score,
        source_token_count=translation.source_token_count,
        target_token_count=translation.target_token_count,
        sentence_count=translation.sentence_count,
        alternatives=[
            Hypothesis(
                text=alternative.text,
                finish_reason=FINISH_REASONS[alternative.finish_reason],
                score=alternative.score,
                normalized_score=alternative.normalized_score,
                target_token_count=alternative.target_token_count,
                tokens=_token_messages(alternative.tokens) if include_tokens else (),
            )
            for alternative in translation.alternatives
        ],
        tokens=_token_messages(translation.tokens) if include_tokens else (),
        word_links=[
            WordLink(
                source=span_message(link.source),
                target=span_message(link.target),
                probability=link.probability,
            )
            for link in word_links
        ],
        warnings=[warning_message(warning) for warning in translation.warnings],
        seed=options.seed if options.is_sampling and not is_blank else None,
    )


def warning_message(warning: QualityWarning) -> WarningMessage:
    """Returns the message of a warning."""
    return WarningMessage(
        kind=WARNING_KINDS[warning.kind],
        message=warning.message,
        source=span_message(warning.source),
        target=span_message(warning.target),
        value=warning.value,
    )


def _token_messages(tokens: Sequence[ScoredToken]) -> list[TokenScore]:
    return [
        TokenScore(piece=token.piece, log_probability=token.log_probability, span=span_message(token.span))
        for token in tokens
    ]


def span_message(span: tuple[int, int] | None, offset: int = 0) -> TextSpan | None:
    """Returns the message of a span moved by ``offset`` code points; None stays unset."""
    return None if span is None else TextSpan(start=span[0] + offset, end=span[1] + offset)


def model_message(model: LoadedModel, kernels: str = "") -> Model:
    """Returns the message that describes a served model.

    Args:
        model: The model.
        kernels: What computes it.
    """
    config = model.config
    return Model(
        name=model.name,
        language_pairs=[
            LanguagePair(source_language_code=source, target_language_code=target)
            for source, target in config.language_pairs
        ],
        digest=model.digest,
        precision=model.precision,
        device=str(model.device),
        parameter_count=model.parameter_count,
        encoder_layer_count=config.num_encoder_layers,
        decoder_layer_count=config.num_decoder_layers,
        head_count=config.num_heads,
        max_source_token_count=config.max_source_length,
        max_target_token_count=config.max_target_length,
        kernels=kernels,
    )


def limits_message(limits: CallLimits) -> Limits:
    """Returns the message of what one call may ask for, and of what all share."""
    return Limits(
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
    )
