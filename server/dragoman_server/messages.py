"""From plain results to protocol messages."""

from __future__ import annotations

from dragoman.v1 import FinishReason, LanguagePair, Limits, Model, TextSpan, TokenScore, Translation
from dragoman_model import batch
from dragoman_model.checkpoint import LoadedModel
from dragoman_model.translator import TextTranslation
from dragoman_server.validation import TextLimits

FINISH_REASONS = {
    batch.FinishReason.EOS: FinishReason.FINISH_REASON_EOS,
    batch.FinishReason.LENGTH: FinishReason.FINISH_REASON_LENGTH,
    None: FinishReason.FINISH_REASON_BLANK,
}


def translation_message(translation: TextTranslation, *, include_tokens: bool) -> Translation:
    """Returns the message of a translated text."""
    message = Translation(
        text=translation.text,
        finish_reason=FINISH_REASONS[translation.finish_reason],
        score=translation.score,
        normalized_score=translation.normalized_score,
        source_token_count=translation.source_token_count,
        target_token_count=translation.target_token_count,
        sentence_count=translation.sentence_count,
    )
    if include_tokens:
        message.tokens.extend(
            TokenScore(
                piece=token.piece, log_probability=token.log_probability, span=span_message(token.span)
            )
            for token in translation.tokens
        )
    return message


def span_message(span: tuple[int, int] | None, offset: int = 0) -> TextSpan | None:
    """Returns the message of a span moved by ``offset`` code points; None stays unset."""
    return None if span is None else TextSpan(start=span[0] + offset, end=span[1] + offset)


def model_message(model: LoadedModel) -> Model:
    """Returns the message that describes a served model."""
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
    )


def limits_message(limits: TextLimits) -> Limits:
    """Returns the message of what one call may ask for; greedy search takes one row and gives one hypothesis."""
    return Limits(
        max_text_count=limits.max_text_count,
        max_text_characters=limits.max_text_characters,
        max_beam_size=1,
        max_num_hypotheses=1,
        max_sentence_rows=1,
    )
