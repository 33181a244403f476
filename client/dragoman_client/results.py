"""What becomes of a text: its translation, what is known of that, its score; plain frozen data."""

import enum
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from dragoman_client.errors import DragomanError


class FinishReason(enum.Enum):
    """Why decoding ended.

    Attributes:
        UNSPECIFIED: The server did not say.
        EOS: The model ended the sentence.
        LENGTH: The length limit was reached in some sentence; the translation may be cut.
        BLANK: The text was empty or blank and came back as it was.
    """

    UNSPECIFIED = "UNSPECIFIED"
    EOS = "EOS"
    LENGTH = "LENGTH"
    BLANK = "BLANK"


@dataclass(frozen=True)
class TextSpan:
    """A half-open range of Unicode code points: ``text[span.start : span.end]``.

    Attributes:
        start: First code point.
        end: One past the last.
    """

    start: int
    end: int


@dataclass(frozen=True)
class ScoredToken:
    """A target token and its probability.

    Attributes:
        piece: The vocabulary piece.
        log_probability: Natural logarithm of its probability.
        span: Where it stands in the translation; None for special tokens.
    """

    piece: str
    log_probability: float
    span: TextSpan | None


ScorePair: TypeAlias = tuple[str, str | Sequence[ScoredToken]]
"""A text, and its translation to be scored: as text, or in the tokens that it was written in."""


@dataclass(frozen=True)
class WordLink:
    """A word of a translation and what it stands for; words are what white space bounds.

    Attributes:
        source: The source word; None where the target word stands for nothing there.
        target: The word of the translation.
        probability: How much of all that the word could stand for speaks for this, by attention, 0 to 1.
    """

    source: TextSpan | None
    target: TextSpan
    probability: float


@dataclass(frozen=True)
class Hypothesis:
    """One of several translations of a text.

    Attributes:
        text: The translation.
        finish_reason: Why decoding ended; LENGTH where any sentence reached its limit.
        score: Sum of the target tokens' log-probabilities (natural), end-of-sentence included.
        normalized_score: ``score`` / target tokens.
        target_token_count: Target tokens made, end-of-sentence included.
        tokens: Target tokens with their log-probabilities; empty unless asked for.
    """

    text: str
    finish_reason: FinishReason
    score: float
    normalized_score: float
    target_token_count: int
    tokens: tuple[ScoredToken, ...]

    def __str__(self) -> str:
        return self.text


class WarningKind(enum.Enum):
    """What may be wrong with a translation.

    Attributes:
        UNSPECIFIED: Something that this client doesn't know.
        UNCOVERED_SOURCE: It hardly looked at some words of the source.
        REPETITION: It repeats itself.
        COPY: It copies the source.
        LENGTH_RATIO: It is oddly long or short.
    """

    UNSPECIFIED = "UNSPECIFIED"
    UNCOVERED_SOURCE = "UNCOVERED_SOURCE"
    REPETITION = "REPETITION"
    COPY = "COPY"
    LENGTH_RATIO = "LENGTH_RATIO"


@dataclass(frozen=True)
class TranslationWarning:
    """A sign that a translation may be bad.

    Attributes:
        kind: What was seen.
        message: The same in a sentence.
        source: Where in the source; None is nowhere.
        target: Where in the translation; None is nowhere.
        value: The measured value that crossed the server's threshold.
    """

    kind: WarningKind
    message: str
    source: TextSpan | None
    target: TextSpan | None
    value: float


@dataclass(frozen=True)
class Translation:
    """A translated text.

    Attributes:
        text: The translation. Separators between sentences are the source's own.
        finish_reason: Why decoding ended; LENGTH where any sentence reached its limit.
        score: Sum of the target tokens' log-probabilities (natural), end-of-sentence included; None for blank text.
        normalized_score: ``score`` / target tokens; None for blank text.
        source_token_count: Source tokens read, end-of-sentence included.
        target_token_count: Target tokens made, end-of-sentence included.
        sentence_count: Sentences the text was cut into.
        tokens: Target tokens with their log-probabilities; empty unless asked for.
        model: Name of the model that translated.
        model_digest: SHA-256 of its weights, in hexadecimal.
        alternatives: The ``num_hypotheses`` best, best first, the first equal to this; empty where one was asked for.
        seed: What sampling used; None where nothing was sampled.
        warnings: Signs that it may be bad: those that the texts show, then uncovered source words where alignments or
            attention were asked for.
        word_links: Which word stands for which, of the translation's words in their order; empty unless asked for.
    """

    text: str
    finish_reason: FinishReason
    score: float | None
    normalized_score: float | None
    source_token_count: int
    target_token_count: int
    sentence_count: int
    tokens: tuple[ScoredToken, ...]
    model: str
    model_digest: str
    alternatives: tuple[Hypothesis, ...] = ()
    seed: int | None = None
    warnings: tuple[TranslationWarning, ...] = ()
    word_links: tuple[WordLink, ...] = ()

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True)
class BatchResult:
    """What became of one text of a bulk translation: either a translation or an error.

    Attributes:
        index: Where the text stood in the input, from 0.
        source: The text.
        translation: Its translation; None where there is an error.
        error: Why there is none; the other texts are translated all the same.
        request_id: Of the call that answered, to be looked for in the server's log; another one after a connection was lost. None
            where the text wasn't sent.
        precision: That the model was served in when it answered; empty where the server doesn't say.
    """

    index: int
    source: str
    translation: Translation | None = None
    error: DragomanError | None = None
    request_id: str | None = None
    precision: str = ""

    def unwrap(self) -> Translation:
        """Returns the translation.

        Raises:
            DragomanError: There is none; this is ``error``.
        """
        if self.error is not None:
            raise self.error
        assert self.translation is not None
        return self.translation


@dataclass(frozen=True)
class Score:
    """How probable a translation is.

    Attributes:
        score: Sum of its tokens' log-probabilities (natural), end-of-sentence included.
        normalized_score: ``score`` / tokens.
        tokens: Its tokens with their log-probabilities, end-of-sentence last unless the tokens given lack it.
        model: Name of the model that scored.
        model_digest: SHA-256 of its weights, in hexadecimal.
    """

    score: float
    normalized_score: float
    tokens: tuple[ScoredToken, ...]
    model: str
    model_digest: str
