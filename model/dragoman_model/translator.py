"""Text in, text out: the running batch with sentence splitting and the tokenizer around it.

`prepare` and `assemble` are the two ends; what lies between, a server does with its engine and `Translator` with a
loop.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from dragoman_model.batch import FinishReason, Plan, RunningBatch
from dragoman_model.batch import Sequence as BatchSequence
from dragoman_model.checkpoint import LoadedModel
from dragoman_model.config import ModelConfig
from dragoman_model.errors import SentenceTooLongError
from dragoman_model.text import SplitText, split_text


@dataclass(frozen=True)
class PreparedText:
    """A text ready to be decoded.

    Attributes:
        text: As the caller gave it.
        split: Its sentences and what stands between them.
        source_ids: Source tokens of each sentence, end-of-sentence last.
    """

    text: str
    split: SplitText
    source_ids: tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class SentenceResult:
    """A decoded sentence: its tokens, end-of-sentence included where it was reached, and their log-probabilities."""

    token_ids: tuple[int, ...]
    log_probabilities: tuple[float, ...]
    finish_reason: FinishReason


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
    """

    text: str
    finish_reason: FinishReason | None
    score: float | None
    normalized_score: float | None
    source_token_count: int
    target_token_count: int
    sentence_count: int
    tokens: tuple[ScoredToken, ...]


def prepare(model: LoadedModel, text: str, *, sentences: bool = True) -> PreparedText:
    """Returns ``text`` cut into sentences and tokenised.

    A sentence without a token, of characters that nobody sees, is no sentence: given nothing to translate, a model would
    make something up. It comes back as it is, like the white space around it.

    Args:
        model: Gives the language, the tokenizer and the limit.
        text: Any text.
        sentences: False takes the text as one sentence.

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
    return PreparedText(text, SplitText(tuple(kept), tuple(separators)), tuple(source_ids))


def assemble(
    model: LoadedModel, prepared: PreparedText, results: Sequence[SentenceResult]
) -> TextTranslation:
    """Returns the translation of a text from those of its sentences.

    Args:
        model: Gives the tokenizer.
        prepared: From `prepare`.
        results: One for each of its sentences, in order.
    """
    if not results:
        return TextTranslation(prepared.text, None, None, None, 0, 0, 0, ())
    translations: list[str] = []
    tokens: list[ScoredToken] = []
    offset = 0
    for separator, result in zip(prepared.split.separators, results, strict=False):
        offset += len(separator)
        translation, pieces = model.tokenizer.target_pieces(result.token_ids)
        for piece, log_probability in zip(pieces, result.log_probabilities, strict=True):
            span = (piece.span[0] + offset, piece.span[1] + offset) if piece.span else None
            tokens.append(ScoredToken(piece.text, log_probability, span))
        translations.append(translation)
        offset += len(translation)
    score = sum(token.log_probability for token in tokens)
    cut = any(result.finish_reason is FinishReason.LENGTH for result in results)
    return TextTranslation(
        text=prepared.split.join(translations),
        finish_reason=FinishReason.LENGTH if cut else FinishReason.EOS,
        score=score,
        normalized_score=score / len(tokens),
        source_token_count=sum(map(len, prepared.source_ids)),
        target_token_count=len(tokens),
        sentence_count=len(results),
        tokens=tuple(tokens),
    )


def default_max_length(config: ModelConfig, source_length: int) -> int:
    """Returns how many target tokens a sentence may take, end-of-sentence not counted.

    min(the model's limit, 10 + 2 × source tokens): a translation three times as long as its source is a loop.
    """
    return min(config.max_target_length - 1, 10 + 2 * source_length)


class Translator:
    """Translates texts in this process, many sentences at once."""

    def __init__(self, model: LoadedModel, *, max_batch_size: int = 64) -> None:
        """Takes a model.

        Args:
            model: From `load_model`.
            max_batch_size: Rows decoded at once, at most; 1 or more.
        """
        if max_batch_size < 1:
            raise ValueError(f"max_batch_size is {max_batch_size}; it must be 1 or more")
        self._model = model
        self._max_batch_size = max_batch_size

    def translate(
        self,
        texts: Iterable[str],
        *,
        sentences: bool = True,
        max_length: int | None = None,
        on_finished: Callable[[int], object] | None = None,
    ) -> list[TextTranslation]:
        """Returns one translation for each text, in order.

        Args:
            texts: Any texts; a blank one comes back as it is.
            sentences: False takes each text as one sentence.
            max_length: Target tokens of a sentence, at most, up to the model's limit; None is `default_max_length`.
            on_finished: Called with the number of sentences that a step finished.

        Raises:
            SentenceTooLongError: A sentence has more tokens than the model takes; nothing was translated.
        """
        prepared = []
        for index, text in enumerate(texts):
            try:
                prepared.append(prepare(self._model, text, sentences=sentences))
            except SentenceTooLongError as error:
                error.text_index = index
                raise
        sources = [ids for text in prepared for ids in text.source_ids]
        results = iter(self.decode(sources, max_length=max_length, on_finished=on_finished))
        return [
            assemble(self._model, text, list(itertools.islice(results, len(text.source_ids))))
            for text in prepared
        ]

    def decode(
        self,
        sources: Sequence[tuple[int, ...]],
        *,
        max_length: int | None = None,
        on_finished: Callable[[int], object] | None = None,
    ) -> list[SentenceResult]:
        """Returns one result for each tokenised sentence, in order.

        Longest first: rows of like length run together, and the long ones do not stand alone at the end.
        """
        batch = RunningBatch(self._model.transformer)
        config = self._model.config
        waiting = sorted(range(len(sources)), key=lambda index: len(sources[index]))
        token_ids: list[list[int]] = [[] for _ in sources]
        log_probabilities: list[list[float]] = [[] for _ in sources]
        reasons: dict[int, FinishReason] = {}
        while waiting or batch.num_rows:
            admitted = []
            free = self._max_batch_size - batch.num_rows
            # In groups, since a prefill of a few rows costs nearly as much as one of many.
            if free >= min(len(waiting), max(1, self._max_batch_size // 4)):
                admitted = [waiting.pop() for _ in range(min(free, len(waiting)))]
            sequences = tuple(
                BatchSequence(
                    id=index,
                    source_ids=sources[index],
                    max_length=(
                        default_max_length(config, len(sources[index]))
                        if max_length is None
                        else min(max_length, config.max_target_length - 1)
                    ),
                )
                for index in admitted
            )
            finished = 0
            for output in batch.run(Plan(admit=sequences)).tokens:
                token_ids[output.id].append(output.token_id)
                log_probabilities[output.id].append(output.log_probability)
                if output.finish_reason is not None:
                    reasons[output.id] = output.finish_reason
                    finished += 1
            if on_finished and finished:
                on_finished(finished)
        return [
            SentenceResult(tuple(token_ids[index]), tuple(log_probabilities[index]), reasons[index])
            for index in range(len(sources))
        ]
