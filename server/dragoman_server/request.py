"""What a call is inside the server: plain data, after validation and before any tensor."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from typing import TypeAlias

from dragoman_model.alignment_config import AlignmentMethod
from dragoman_model.numbers import SourceNumbers
from dragoman_model.options import DecodingOptions
from dragoman_model.selection import AttentionKind, AttentionSelection

_ids = itertools.count()
_GREEDY = DecodingOptions()

# A caller's clock starts before ours, by the time its request travels, and gRPC rounds up what it tells us of it: whoever
# leaves so little before the deadline has waited until it.
DEADLINE_SLACK_SECONDS = 0.1


def new_id() -> int:
    """Returns an id for a call or a bulk stream, unique in this process."""
    return next(_ids)


@dataclass(frozen=True, kw_only=True)
class ModelChoice:
    """Which model a caller asks for; an empty string leaves it open."""

    name: str = ""
    source_language: str = ""
    target_language: str = ""


@dataclass(frozen=True, kw_only=True)
class OutputChoice:
    """What a caller wants beside the text; ``alignment_method`` None is the model's own."""

    include_tokens: bool = False
    include_alignments: bool = False
    alignment_method: AlignmentMethod | None = None


@dataclass(frozen=True, kw_only=True)
class TranslateRequest:
    """A valid request for translations of ``texts``; there is a prefix, empty or not, for each."""

    texts: tuple[str, ...]
    model: ModelChoice
    options: DecodingOptions
    split: bool
    target_prefixes: tuple[str, ...]
    output: OutputChoice


@dataclass(frozen=True, kw_only=True)
class StreamRequest:
    """A valid request for one text's translation, sent as it grows."""

    text: str
    model: ModelChoice
    options: DecodingOptions
    split: bool
    target_prefix: str
    output: OutputChoice


@dataclass(frozen=True, kw_only=True)
class BulkRequest:
    """What a valid first message of a bulk stream asks for, for all of its texts."""

    model: ModelChoice
    options: DecodingOptions
    split: bool
    output: OutputChoice


@dataclass(frozen=True, kw_only=True)
class AttentionRequest:
    """A valid request for the attention of one text's translation, made or given."""

    text: str
    model: ModelChoice
    options: DecodingOptions
    split: bool
    translation: str | None
    selection: AttentionSelection


@dataclass(frozen=True, kw_only=True)
class ScoreRequest:
    """A valid request for the probability of ``translations``, one for each of ``texts``: itself a text, or a tuple of pieces."""

    texts: tuple[str, ...]
    translations: tuple[str | tuple[str, ...], ...]
    model: ModelChoice


@dataclass(frozen=True, kw_only=True)
class Decode:
    """One sentence to translate.

    Attributes:
        source_ids: Its tokens, end-of-sentence last.
        max_length: Target tokens at most, without end-of-sentence.
        options: How to search.
        prefix_ids: Target tokens that its translation starts with.
        numbers: The source's, beside which the translation may hold no others; None lets it.
        is_given: They are all of the translation, of which only the score is wanted.
        attention_heads: (layer, head) pairs whose mean cross-attention over the finished translation is wanted, too; empty is
            off.
    """

    source_ids: tuple[int, ...]
    max_length: int
    options: DecodingOptions = _GREEDY
    prefix_ids: tuple[int, ...] = ()
    numbers: SourceNumbers | None = None
    is_given: bool = False
    attention_heads: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, kw_only=True)
class Attend:
    """One sentence and its translation, whose attention is wanted; both end with end-of-sentence.

    Attributes:
        source_ids: The sentence's tokens.
        target_ids: Its translation's tokens.
        kinds: Which attention beside cross-attention.
        heads: (layer, head) pairs whose mean is all that is wanted of cross-attention; empty is every head by itself.
    """

    source_ids: tuple[int, ...]
    target_ids: tuple[int, ...]
    kinds: frozenset[AttentionKind] = frozenset()
    heads: tuple[tuple[int, int], ...] = ()


Work: TypeAlias = Decode | Attend


@dataclass(frozen=True, kw_only=True)
class Call:
    """The model work of one call, which succeeds or fails as a whole.

    Attributes:
        work: Its sentences, in order.
        arrived: When the call came, in seconds of the scheduler's clock.
        deadline: When its results are of no more use, on the same clock; None is never.
        request_id: For the log.
        stream: Names the bulk stream that this call is an item of; the items of one take turns as one caller. None is a
            call by itself.
        reports_progress: What is sure of its translations is said while they are written.
        is_sample: It is attention of what was answered before, for the metrics alone, in which it doesn't count itself.
        id: Unique in this process, among calls and streams.
    """

    work: tuple[Work, ...]
    arrived: float
    deadline: float | None = None
    request_id: str = ""
    stream: int | None = None
    reports_progress: bool = False
    is_sample: bool = False
    id: int = field(default_factory=new_id)
