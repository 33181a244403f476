"""Client of a dragoman server: translations and the attention behind them, over gRPC.

::

    from dragoman_client import Translator

    with Translator("127.0.0.1:50051") as translator:
        print(translator.translate("A girl is reading a book in the garden."))
"""

from dragoman_client.async_translator import AsyncTranslator
from dragoman_client.attention import Attention, AttentionTensor, AttentionUnit
from dragoman_client.errors import (
    DeadlineExceededError,
    DragomanError,
    FieldViolation,
    InvalidRequestError,
    NotFoundError,
    OverloadedError,
    ServerError,
    UnavailableError,
)
from dragoman_client.options import AlignmentMethod, DecodingOptions, Split
from dragoman_client.pharaoh import pharaoh
from dragoman_client.results import (
    BatchResult,
    FinishReason,
    Hypothesis,
    Score,
    ScoredToken,
    ScorePair,
    TextSpan,
    Translation,
    TranslationWarning,
    WarningKind,
    WordLink,
)
from dragoman_client.selection import (
    AttentionKind,
    AttentionLevel,
    AttentionReduction,
    AttentionSelection,
    WeightType,
)
from dragoman_client.serving import LanguagePair, Limits, Model, ModelList, ServingStatus
from dragoman_client.streams import AsyncTranslationStream, TranslationStream
from dragoman_client.translator import Translator

__all__ = [
    "AlignmentMethod",
    "AsyncTranslationStream",
    "AsyncTranslator",
    "Attention",
    "AttentionKind",
    "AttentionLevel",
    "AttentionReduction",
    "AttentionSelection",
    "AttentionTensor",
    "AttentionUnit",
    "BatchResult",
    "DeadlineExceededError",
    "DecodingOptions",
    "DragomanError",
    "FieldViolation",
    "FinishReason",
    "Hypothesis",
    "InvalidRequestError",
    "LanguagePair",
    "Limits",
    "Model",
    "ModelList",
    "NotFoundError",
    "OverloadedError",
    "Score",
    "ScorePair",
    "ScoredToken",
    "ServerError",
    "ServingStatus",
    "Split",
    "TextSpan",
    "Translation",
    "TranslationStream",
    "TranslationWarning",
    "Translator",
    "UnavailableError",
    "WarningKind",
    "WeightType",
    "WordLink",
    "pharaoh",
]
