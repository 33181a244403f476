"""What a call is inside the server: plain data, after validation and before any tensor."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field

_call_ids = itertools.count()

# A caller's clock starts before ours, by the time its request travels, and gRPC rounds up what it tells us of it: whoever
# leaves so little before the deadline has waited until it.
DEADLINE_SLACK_SECONDS = 0.1


@dataclass(frozen=True, kw_only=True)
class DecodingLimits:
    """How long a translation may be, in target tokens without end-of-sentence.

    Attributes:
        min_length: Tokens before end-of-sentence may come; 0 is off.
        max_length: Tokens at most; None takes the model's default for the sentence.
    """

    min_length: int = 0
    max_length: int | None = None


@dataclass(frozen=True, kw_only=True)
class ModelChoice:
    """Which model a caller asks for; an empty string leaves it open."""

    name: str = ""
    source_language: str = ""
    target_language: str = ""


@dataclass(frozen=True, kw_only=True)
class TranslateRequest:
    """A valid request for translations of ``texts``."""

    texts: tuple[str, ...]
    model: ModelChoice
    limits: DecodingLimits
    split: bool
    include_tokens: bool


@dataclass(frozen=True, kw_only=True)
class AttentionRequest:
    """A valid request for the attention of one text's translation, made or given."""

    text: str
    model: ModelChoice
    limits: DecodingLimits
    split: bool
    translation: str | None


@dataclass(frozen=True, kw_only=True)
class Decode:
    """One sentence to translate; lengths are in target tokens without end-of-sentence."""

    source_ids: tuple[int, ...]
    max_length: int
    min_length: int = 0


@dataclass(frozen=True, kw_only=True)
class Attend:
    """One sentence and its translation, whose attention is wanted; both end with end-of-sentence."""

    source_ids: tuple[int, ...]
    target_ids: tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class Call:
    """The model work of one call, which succeeds or fails as a whole.

    Attributes:
        work: Its sentences, in order.
        arrived: When the call came, in seconds of the scheduler's clock.
        deadline: When its results are of no more use, on the same clock; None is never.
        request_id: For the log.
        id: Unique in this process.
    """

    work: tuple[Decode | Attend, ...]
    arrived: float
    deadline: float | None = None
    request_id: str = ""
    id: int = field(default_factory=_call_ids.__next__)
