"""The two ends of a text's translation: `prepare` makes sentences of it, `assemble` makes a text of theirs.

What lies between, a server does with its engine and `Translator` with a loop.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dragoman_model.checkpoint import LoadedModel
from dragoman_model.errors import SentenceTooLongError
from dragoman_model.plan import FinishReason, Hypothesis
from dragoman_model.quality import QualityWarning, text_warnings
from dragoman_model.text import SplitText, split_text


@dataclass(frozen=True)
class PreparedText:
    """A text ready to be decoded.

    Attributes:
        text: As the caller gave it.
        split: Its sentences and what stands between them.
        source_ids: Source tokens of each sentence, end-of-sentence last.
        prefix_ids: Target tokens that the first sentence's translation starts with.
    """

    text: str
    split: SplitText
    source_ids: tuple[tuple[int, ...], ...]
    prefix_ids: tuple[int, ...] = ()


@dataclass(frozen=True)
class ScoredToken:
    """A target token.

    Attributes:
        piece: The vocabulary piece.
        log_probability: Natural logarithm.
        span: Half-open code points of the translated text; None for special tokens.
    """

    piece: str
    log_probability: float
    span: tuple[int, int] | None


@dataclass(frozen=True)
class TextHypothesis:
    """One of several translations of a text.

    Attributes:
        text: The translation.
        finish_reason: LENGTH where any sentence hit its limit.
        score: Sum of the tokens' log-probabilities.
        normalized_score: score / target tokens.
        target_token_count: Target tokens made, end-of-sentence included.
        tokens: Every target token.
    """

    text: str
    finish_reason: FinishReason
    score: float
    normalized_score: float
    target_token_count: int
    tokens: tuple[ScoredToken, ...]


@dataclass(frozen=True)
class TextTranslation:
    """A translated text.

    Attributes:
        text: The translation.
        finish_reason: LENGTH where any sentence hit its limit; None for a blank text, which came back as it was.
        score: Sum of the tokens' log-probabilities; None for a blank text.
        normalized_score: score / target tokens; None for a blank text.
        source_token_count: Source tokens read, end-of-sentence included.
        target_token_count: Target tokens made, end-of-sentence included.
        sentence_count: Sentences that the text was cut into.
        tokens: Every target token.
        alternatives: The best translations, best first, this one among them; empty where one was asked for.
        warnings: Signs that it may be bad, in the order of the sentences.
    """

    text: str
    finish_reason: FinishReason | None
    score: float | None
    normalized_score: float | None
    source_token_count: int
    target_token_count: int
    sentence_count: int
    tokens: tuple[ScoredToken, ...]
    alternatives: tuple[TextHypothesis, ...] = ()
    warnings: tuple[QualityWarning, ...] = ()


def prepare(
    model: LoadedModel, text: str, *, sentences: bool = True, target_prefix: str = ""
) -> PreparedText:
    """Returns ``text`` cut into sentences and tokenised.

    A sentence without a token, of characters that nobody sees, is no sentence: given nothing to translate, a model would
    make something up. It comes back as it is, like the white space around it.

    Args:
        model: Gives the language, the tokenizer and the limit.
        text: Any text.
        sentences: False takes the text as one sentence.
        target_prefix: What the translation starts with; all of it belongs to the first sentence.

    Raises:
        SentenceTooLongError: A sentence has more tokens than the model takes.
    """
    split = split_text(text, model.config.language_pairs[0][0], sentences=sentences)
    limit = model.config.max_source_length
    kept, separators = [], [split.separators[0]]
    source_ids = []
    for index, (sentence, separator) in enumerate(zip(split.sentences, split.separators[1:], strict=True)):
        ids = model.tokenizer.encode(sentence.text)
        if len(ids) > limit:
            raise SentenceTooLongError(index, len(ids), limit)
        if len(ids) == 1:  # end-of-sentence alone
            separators[-1] += sentence.text + separator
            continue
        kept.append(sentence)
        separators.append(separator)
        source_ids.append(tuple(ids))
    prefix_ids: Sequence[int] = ()
    if target_prefix:
        prefix_ids = model.tokenizer.encode_target_prefix(target_prefix, source_ids[0] if source_ids else ())
    return PreparedText(text, SplitText(tuple(kept), tuple(separators)), tuple(source_ids), tuple(prefix_ids))


def assemble(
    model: LoadedModel,
    prepared: PreparedText,
    results: Sequence[Sequence[Hypothesis]],
    *,
    with_tokens: bool = True,
) -> TextTranslation:
    """Returns the translation of a text from those of its sentences.

    Args:
        model: Gives the tokenizer.
        prepared: From `prepare`.
        results: For each of its sentences, in order, one hypothesis or more, best first. Alternatives of the text join the
            k-th of each.
        with_tokens: False leaves ``tokens`` empty, which takes a tenth of the time: pieces and spans are most of it.
    """
    if not results:
        return TextTranslation(prepared.text, None, None, None, 0, 0, 0, ())
    assembled = [
        _assemble_hypothesis(model, prepared, chosen, with_tokens) for chosen in zip(*results, strict=False)
    ]
    hypotheses = [hypothesis for hypothesis, _ in assembled]
    best, sentences = assembled[0]
    return TextTranslation(
        text=best.text,
        finish_reason=best.finish_reason,
        score=best.score,
        normalized_score=best.normalized_score,
        source_token_count=sum(map(len, prepared.source_ids)),
        target_token_count=best.target_token_count,
        sentence_count=len(results),
        tokens=best.tokens,
        alternatives=tuple(hypotheses) if len(hypotheses) > 1 else (),
        warnings=text_warnings(prepared.split, sentences),
    )


def _assemble_hypothesis(
    model: LoadedModel, prepared: PreparedText, sentences: Sequence[Hypothesis], with_tokens: bool
) -> tuple[TextHypothesis, list[str]]:
    """Returns a translation of a text, and those of its sentences that it is made of."""
    translations: list[str] = []
    tokens: list[ScoredToken] = []
    offset = 0
    for separator, sentence in zip(prepared.split.separators, sentences, strict=False):
        if not with_tokens:
            translations.append(model.tokenizer.decode(sentence.token_ids))
            continue
        offset += len(separator)
        translation, pieces = model.tokenizer.target_pieces(sentence.token_ids)
        for piece, log_probability in zip(pieces, sentence.log_probabilities, strict=True):
            span = (piece.span[0] + offset, piece.span[1] + offset) if piece.span else None
            tokens.append(ScoredToken(piece.text, log_probability, span))
        translations.append(translation)
        offset += len(translation)
    log_probabilities = [value for sentence in sentences for value in sentence.log_probabilities]
    score = sum(log_probabilities)
    cut = any(sentence.finish_reason is FinishReason.LENGTH for sentence in sentences)
    hypothesis = TextHypothesis(
        text=prepared.split.join(translations),
        finish_reason=FinishReason.LENGTH if cut else FinishReason.EOS,
        score=score,
        normalized_score=score / len(log_probabilities),
        target_token_count=len(log_probabilities),
        tokens=tuple(tokens),
    )
    return hypothesis, translations
