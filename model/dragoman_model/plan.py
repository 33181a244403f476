"""What crosses into the running batch and out of it: plain data.

Shapes: S source length, T target length, L layers, H heads.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field

from torch import Tensor

from dragoman_model.numbers import SourceNumbers
from dragoman_model.options import DecodingOptions
from dragoman_model.selection import AttentionKind

_GREEDY = DecodingOptions()


class FinishReason(enum.Enum):
    """Why the decoding of a sentence ended."""

    EOS = "eos"
    LENGTH = "length"


@dataclass(frozen=True, kw_only=True)
class Sequence:
    """A sentence to decode.

    Attributes:
        id: Names the sentence in every output; unique among the running ones.
        source_ids: Source tokens, end-of-sentence last.
        max_length: Target tokens at most, without end-of-sentence; at most the model's ``max_target_length`` - 1. It
            counts, and ``options.max_length`` doesn't.
        options: How to search.
        prefix_ids: Target tokens that every hypothesis starts with, at most ``max_length``. So many, or with end-of-sentence
            last, they are all of the translation, which then is only scored.
        numbers: The source's, beside which the translation may hold no others; None lets it.
        lane: Sentences of one lane can be held while those of another go on.
        report_progress: Each step says how much of the translation is sure by then.
    """

    id: int
    source_ids: tuple[int, ...]
    max_length: int
    options: DecodingOptions = _GREEDY
    prefix_ids: tuple[int, ...] = ()
    numbers: SourceNumbers | None = None
    lane: int = 0
    report_progress: bool = False


@dataclass(frozen=True, kw_only=True)
class ForcedDecode:
    """A translation whose attention is wanted.

    Attributes:
        id: Names it in the output.
        source_ids: Source tokens, end-of-sentence last.
        target_ids: Target tokens, end-of-sentence last (or the last token made, where decoding hit its length limit).
        kinds: Where attention is wanted: which, beside cross-attention.
        heads: (layer, head) pairs whose mean is all that is wanted of cross-attention, with what they say of each token; empty
            keeps every head apart.
    """

    id: int
    source_ids: tuple[int, ...]
    target_ids: tuple[int, ...]
    kinds: frozenset[AttentionKind] = frozenset()
    heads: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What one call of `RunningBatch.run` does.

    Attributes:
        remove: Sentences to drop first, by id; unknown ids are passed over, since one may have finished meanwhile.
        admit: Sentences to prefill; they take part in this call's step.
        attend: Translations whose attention is wanted.
        hold: Lanes whose sentences stand still: they keep their rows and take no part in this call's step.
    """

    remove: tuple[int, ...] = ()
    admit: tuple[Sequence, ...] = ()
    attend: tuple[ForcedDecode, ...] = ()
    hold: frozenset[int] = frozenset()


@dataclass(frozen=True)
class Hypothesis:
    """A finished translation of a sentence.

    Attributes:
        token_ids: Target tokens, end-of-sentence included where it was reached.
        log_probabilities: Of each token, under the unmodified model.
        finish_reason: Why it ended.
    """

    token_ids: tuple[int, ...]
    log_probabilities: tuple[float, ...]
    finish_reason: FinishReason

    @property
    def score(self) -> float:
        """Sum of the log-probabilities."""
        return sum(self.log_probabilities)


@dataclass(frozen=True)
class FinishedSentence:
    """A sentence that has left the batch.

    Attributes:
        id: The sequence's.
        hypotheses: Best first, one or more: as many as were asked for, or all there are where the vocabulary or a limit
            leaves fewer.
        attention: Of the best one, with end-of-sentence last in any case, once somebody who wants it has had it computed.
    """

    id: int
    hypotheses: tuple[Hypothesis, ...]
    attention: AttentionOutput | None = None

    @property
    def best(self) -> Hypothesis:
        """The translation."""
        return self.hypotheses[0]


@dataclass(frozen=True)
class Progress:
    """What of a running sentence's translation is sure.

    Attributes:
        id: The sequence's.
        token_ids: Target tokens that its best hypothesis will start with; they only grow.
    """

    id: int
    token_ids: tuple[int, ...]


@dataclass(frozen=True)
class AttentionOutput:
    """Attention of a `ForcedDecode`; all weights are float32, on the CPU.

    Attributes:
        id: The request's.
        cross: Cross-attention weights of each target token's prediction, (L, H, T, S); L and H are 1 where the mean of some heads
            is all that was asked for.
        log_probabilities: Of each target token, T of them.
        cross_mean: The mean of every head of every layer of it, whichever were asked for, (T, S).
        encoder_self: Self-attention weights of the encoder's layers, (L, H, S, S), where asked for.
        decoder_self: Self-attention weights of each target token's prediction, (L, H, T, T), where asked for.
        direct_logits: What the chosen heads say of each target token, (T, S), where some are chosen; see `direct_logits`.
    """

    id: int
    cross: Tensor
    log_probabilities: tuple[float, ...]
    cross_mean: Tensor
    encoder_self: Tensor | None = None
    decoder_self: Tensor | None = None
    direct_logits: Tensor | None = None

    def of(self, kind: AttentionKind) -> Tensor:
        """Returns the weights of a kind that was asked for."""
        weights = getattr(self, kind.value)
        assert isinstance(weights, Tensor)
        return weights


@dataclass(frozen=True)
class FailedSentence:
    """A sentence that left the batch because of an error of its own; the others never noticed.

    Attributes:
        id: The sequence's, or the forced decode's.
        error: What was raised.
    """

    id: int
    error: Exception


@dataclass(frozen=True)
class PhaseStats:
    """What a phase of a call cost.

    Attributes:
        seconds: Wall time.
        rows: Rows computed.
        real_tokens: Tokens computed that stand for text.
        padding_tokens: Positions computed beside them.
    """

    seconds: float
    rows: int
    real_tokens: int
    padding_tokens: int


@dataclass(frozen=True)
class BatchOutput:
    """What one call of `RunningBatch.run` made; a phase that did not run is None."""

    finished: list[FinishedSentence]
    attentions: list[AttentionOutput]
    prefill: PhaseStats | None
    decode: PhaseStats | None
    failed: list[FailedSentence] = field(default_factory=list)
    progress: list[Progress] = field(default_factory=list)
