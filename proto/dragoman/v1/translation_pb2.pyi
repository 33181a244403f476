from google.rpc import status_pb2 as _status_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class TextSplit(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    TEXT_SPLIT_UNSPECIFIED: _ClassVar[TextSplit]
    TEXT_SPLIT_SENTENCES: _ClassVar[TextSplit]
    TEXT_SPLIT_NONE: _ClassVar[TextSplit]

class FinishReason(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    FINISH_REASON_UNSPECIFIED: _ClassVar[FinishReason]
    FINISH_REASON_EOS: _ClassVar[FinishReason]
    FINISH_REASON_LENGTH: _ClassVar[FinishReason]
    FINISH_REASON_BLANK: _ClassVar[FinishReason]

class AlignmentMethod(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    ALIGNMENT_METHOD_UNSPECIFIED: _ClassVar[AlignmentMethod]
    ALIGNMENT_METHOD_NAIVE: _ClassVar[AlignmentMethod]
    ALIGNMENT_METHOD_SHIFTED: _ClassVar[AlignmentMethod]

class AttentionKind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    ATTENTION_KIND_UNSPECIFIED: _ClassVar[AttentionKind]
    ATTENTION_KIND_CROSS: _ClassVar[AttentionKind]
    ATTENTION_KIND_ENCODER_SELF: _ClassVar[AttentionKind]
    ATTENTION_KIND_DECODER_SELF: _ClassVar[AttentionKind]

class AttentionReduction(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    ATTENTION_REDUCTION_UNSPECIFIED: _ClassVar[AttentionReduction]
    ATTENTION_REDUCTION_MEAN: _ClassVar[AttentionReduction]
    ATTENTION_REDUCTION_MAX: _ClassVar[AttentionReduction]
    ATTENTION_REDUCTION_ROLLOUT: _ClassVar[AttentionReduction]

class AttentionLevel(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    ATTENTION_LEVEL_UNSPECIFIED: _ClassVar[AttentionLevel]
    ATTENTION_LEVEL_PIECE: _ClassVar[AttentionLevel]
    ATTENTION_LEVEL_WORD: _ClassVar[AttentionLevel]

class TensorType(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    TENSOR_TYPE_UNSPECIFIED: _ClassVar[TensorType]
    TENSOR_TYPE_FLOAT32: _ClassVar[TensorType]
    TENSOR_TYPE_FLOAT16: _ClassVar[TensorType]
    TENSOR_TYPE_UINT8: _ClassVar[TensorType]
    TENSOR_TYPE_INT32: _ClassVar[TensorType]

class WarningKind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    WARNING_KIND_UNSPECIFIED: _ClassVar[WarningKind]
    WARNING_KIND_UNCOVERED_SOURCE: _ClassVar[WarningKind]
    WARNING_KIND_REPETITION: _ClassVar[WarningKind]
    WARNING_KIND_COPY: _ClassVar[WarningKind]
    WARNING_KIND_LENGTH_RATIO: _ClassVar[WarningKind]
TEXT_SPLIT_UNSPECIFIED: TextSplit
TEXT_SPLIT_SENTENCES: TextSplit
TEXT_SPLIT_NONE: TextSplit
FINISH_REASON_UNSPECIFIED: FinishReason
FINISH_REASON_EOS: FinishReason
FINISH_REASON_LENGTH: FinishReason
FINISH_REASON_BLANK: FinishReason
ALIGNMENT_METHOD_UNSPECIFIED: AlignmentMethod
ALIGNMENT_METHOD_NAIVE: AlignmentMethod
ALIGNMENT_METHOD_SHIFTED: AlignmentMethod
ATTENTION_KIND_UNSPECIFIED: AttentionKind
ATTENTION_KIND_CROSS: AttentionKind
ATTENTION_KIND_ENCODER_SELF: AttentionKind
ATTENTION_KIND_DECODER_SELF: AttentionKind
ATTENTION_REDUCTION_UNSPECIFIED: AttentionReduction
ATTENTION_REDUCTION_MEAN: AttentionReduction
ATTENTION_REDUCTION_MAX: AttentionReduction
ATTENTION_REDUCTION_ROLLOUT: AttentionReduction
ATTENTION_LEVEL_UNSPECIFIED: AttentionLevel
ATTENTION_LEVEL_PIECE: AttentionLevel
ATTENTION_LEVEL_WORD: AttentionLevel
TENSOR_TYPE_UNSPECIFIED: TensorType
TENSOR_TYPE_FLOAT32: TensorType
TENSOR_TYPE_FLOAT16: TensorType
TENSOR_TYPE_UINT8: TensorType
TENSOR_TYPE_INT32: TensorType
WARNING_KIND_UNSPECIFIED: WarningKind
WARNING_KIND_UNCOVERED_SOURCE: WarningKind
WARNING_KIND_REPETITION: WarningKind
WARNING_KIND_COPY: WarningKind
WARNING_KIND_LENGTH_RATIO: WarningKind

class TranslateTextRequest(_message.Message):
    __slots__ = ("texts", "model", "source_language_code", "target_language_code", "options", "output", "split", "target_prefixes")
    TEXTS_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    SOURCE_LANGUAGE_CODE_FIELD_NUMBER: _ClassVar[int]
    TARGET_LANGUAGE_CODE_FIELD_NUMBER: _ClassVar[int]
    OPTIONS_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_FIELD_NUMBER: _ClassVar[int]
    SPLIT_FIELD_NUMBER: _ClassVar[int]
    TARGET_PREFIXES_FIELD_NUMBER: _ClassVar[int]
    texts: _containers.RepeatedScalarFieldContainer[str]
    model: str
    source_language_code: str
    target_language_code: str
    options: DecodingOptions
    output: OutputOptions
    split: TextSplit
    target_prefixes: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, texts: _Optional[_Iterable[str]] = ..., model: _Optional[str] = ..., source_language_code: _Optional[str] = ..., target_language_code: _Optional[str] = ..., options: _Optional[_Union[DecodingOptions, _Mapping]] = ..., output: _Optional[_Union[OutputOptions, _Mapping]] = ..., split: _Optional[_Union[TextSplit, str]] = ..., target_prefixes: _Optional[_Iterable[str]] = ...) -> None: ...

class TranslateTextResponse(_message.Message):
    __slots__ = ("translations", "model", "model_digest")
    TRANSLATIONS_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    MODEL_DIGEST_FIELD_NUMBER: _ClassVar[int]
    translations: _containers.RepeatedCompositeFieldContainer[Translation]
    model: str
    model_digest: str
    def __init__(self, translations: _Optional[_Iterable[_Union[Translation, _Mapping]]] = ..., model: _Optional[str] = ..., model_digest: _Optional[str] = ...) -> None: ...

class StreamTranslateTextRequest(_message.Message):
    __slots__ = ("text", "model", "source_language_code", "target_language_code", "options", "output", "split", "target_prefix")
    TEXT_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    SOURCE_LANGUAGE_CODE_FIELD_NUMBER: _ClassVar[int]
    TARGET_LANGUAGE_CODE_FIELD_NUMBER: _ClassVar[int]
    OPTIONS_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_FIELD_NUMBER: _ClassVar[int]
    SPLIT_FIELD_NUMBER: _ClassVar[int]
    TARGET_PREFIX_FIELD_NUMBER: _ClassVar[int]
    text: str
    model: str
    source_language_code: str
    target_language_code: str
    options: DecodingOptions
    output: OutputOptions
    split: TextSplit
    target_prefix: str
    def __init__(self, text: _Optional[str] = ..., model: _Optional[str] = ..., source_language_code: _Optional[str] = ..., target_language_code: _Optional[str] = ..., options: _Optional[_Union[DecodingOptions, _Mapping]] = ..., output: _Optional[_Union[OutputOptions, _Mapping]] = ..., split: _Optional[_Union[TextSplit, str]] = ..., target_prefix: _Optional[str] = ...) -> None: ...

class StreamTranslateTextResponse(_message.Message):
    __slots__ = ("delta", "result")
    DELTA_FIELD_NUMBER: _ClassVar[int]
    RESULT_FIELD_NUMBER: _ClassVar[int]
    delta: TextDelta
    result: TranslateTextResponse
    def __init__(self, delta: _Optional[_Union[TextDelta, _Mapping]] = ..., result: _Optional[_Union[TranslateTextResponse, _Mapping]] = ...) -> None: ...

class TextDelta(_message.Message):
    __slots__ = ("text",)
    TEXT_FIELD_NUMBER: _ClassVar[int]
    text: str
    def __init__(self, text: _Optional[str] = ...) -> None: ...

class TranslateBatchRequest(_message.Message):
    __slots__ = ("items", "model", "source_language_code", "target_language_code", "options", "output", "split")
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    SOURCE_LANGUAGE_CODE_FIELD_NUMBER: _ClassVar[int]
    TARGET_LANGUAGE_CODE_FIELD_NUMBER: _ClassVar[int]
    OPTIONS_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_FIELD_NUMBER: _ClassVar[int]
    SPLIT_FIELD_NUMBER: _ClassVar[int]
    items: _containers.RepeatedCompositeFieldContainer[BatchItem]
    model: str
    source_language_code: str
    target_language_code: str
    options: DecodingOptions
    output: OutputOptions
    split: TextSplit
    def __init__(self, items: _Optional[_Iterable[_Union[BatchItem, _Mapping]]] = ..., model: _Optional[str] = ..., source_language_code: _Optional[str] = ..., target_language_code: _Optional[str] = ..., options: _Optional[_Union[DecodingOptions, _Mapping]] = ..., output: _Optional[_Union[OutputOptions, _Mapping]] = ..., split: _Optional[_Union[TextSplit, str]] = ...) -> None: ...

class BatchItem(_message.Message):
    __slots__ = ("id", "text", "target_prefix")
    ID_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    TARGET_PREFIX_FIELD_NUMBER: _ClassVar[int]
    id: str
    text: str
    target_prefix: str
    def __init__(self, id: _Optional[str] = ..., text: _Optional[str] = ..., target_prefix: _Optional[str] = ...) -> None: ...

class TranslateBatchResponse(_message.Message):
    __slots__ = ("results", "model", "model_digest", "precision")
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    MODEL_DIGEST_FIELD_NUMBER: _ClassVar[int]
    PRECISION_FIELD_NUMBER: _ClassVar[int]
    results: _containers.RepeatedCompositeFieldContainer[BatchResult]
    model: str
    model_digest: str
    precision: str
    def __init__(self, results: _Optional[_Iterable[_Union[BatchResult, _Mapping]]] = ..., model: _Optional[str] = ..., model_digest: _Optional[str] = ..., precision: _Optional[str] = ...) -> None: ...

class BatchResult(_message.Message):
    __slots__ = ("id", "translation", "error")
    ID_FIELD_NUMBER: _ClassVar[int]
    TRANSLATION_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    id: str
    translation: Translation
    error: _status_pb2.Status
    def __init__(self, id: _Optional[str] = ..., translation: _Optional[_Union[Translation, _Mapping]] = ..., error: _Optional[_Union[_status_pb2.Status, _Mapping]] = ...) -> None: ...

class DecodingOptions(_message.Message):
    __slots__ = ("beam_size", "num_hypotheses", "length_penalty", "repetition_penalty", "no_repeat_ngram_size", "min_decoding_length", "max_decoding_length", "sampling_topk", "sampling_topp", "sampling_temperature", "seed", "keep_numbers")
    BEAM_SIZE_FIELD_NUMBER: _ClassVar[int]
    NUM_HYPOTHESES_FIELD_NUMBER: _ClassVar[int]
    LENGTH_PENALTY_FIELD_NUMBER: _ClassVar[int]
    REPETITION_PENALTY_FIELD_NUMBER: _ClassVar[int]
    NO_REPEAT_NGRAM_SIZE_FIELD_NUMBER: _ClassVar[int]
    MIN_DECODING_LENGTH_FIELD_NUMBER: _ClassVar[int]
    MAX_DECODING_LENGTH_FIELD_NUMBER: _ClassVar[int]
    SAMPLING_TOPK_FIELD_NUMBER: _ClassVar[int]
    SAMPLING_TOPP_FIELD_NUMBER: _ClassVar[int]
    SAMPLING_TEMPERATURE_FIELD_NUMBER: _ClassVar[int]
    SEED_FIELD_NUMBER: _ClassVar[int]
    KEEP_NUMBERS_FIELD_NUMBER: _ClassVar[int]
    beam_size: int
    num_hypotheses: int
    length_penalty: float
    repetition_penalty: float
    no_repeat_ngram_size: int
    min_decoding_length: int
    max_decoding_length: int
    sampling_topk: int
    sampling_topp: float
    sampling_temperature: float
    seed: int
    keep_numbers: bool
    def __init__(self, beam_size: _Optional[int] = ..., num_hypotheses: _Optional[int] = ..., length_penalty: _Optional[float] = ..., repetition_penalty: _Optional[float] = ..., no_repeat_ngram_size: _Optional[int] = ..., min_decoding_length: _Optional[int] = ..., max_decoding_length: _Optional[int] = ..., sampling_topk: _Optional[int] = ..., sampling_topp: _Optional[float] = ..., sampling_temperature: _Optional[float] = ..., seed: _Optional[int] = ..., keep_numbers: bool = ...) -> None: ...

class OutputOptions(_message.Message):
    __slots__ = ("include_tokens", "include_alignments", "alignment_method")
    INCLUDE_TOKENS_FIELD_NUMBER: _ClassVar[int]
    INCLUDE_ALIGNMENTS_FIELD_NUMBER: _ClassVar[int]
    ALIGNMENT_METHOD_FIELD_NUMBER: _ClassVar[int]
    include_tokens: bool
    include_alignments: bool
    alignment_method: AlignmentMethod
    def __init__(self, include_tokens: bool = ..., include_alignments: bool = ..., alignment_method: _Optional[_Union[AlignmentMethod, str]] = ...) -> None: ...

class Warning(_message.Message):
    __slots__ = ("kind", "message", "source", "target", "value")
    KIND_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    TARGET_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    kind: WarningKind
    message: str
    source: TextSpan
    target: TextSpan
    value: float
    def __init__(self, kind: _Optional[_Union[WarningKind, str]] = ..., message: _Optional[str] = ..., source: _Optional[_Union[TextSpan, _Mapping]] = ..., target: _Optional[_Union[TextSpan, _Mapping]] = ..., value: _Optional[float] = ...) -> None: ...

class Translation(_message.Message):
    __slots__ = ("text", "finish_reason", "score", "normalized_score", "source_token_count", "target_token_count", "sentence_count", "alternatives", "tokens", "word_links", "warnings", "seed")
    TEXT_FIELD_NUMBER: _ClassVar[int]
    FINISH_REASON_FIELD_NUMBER: _ClassVar[int]
    SCORE_FIELD_NUMBER: _ClassVar[int]
    NORMALIZED_SCORE_FIELD_NUMBER: _ClassVar[int]
    SOURCE_TOKEN_COUNT_FIELD_NUMBER: _ClassVar[int]
    TARGET_TOKEN_COUNT_FIELD_NUMBER: _ClassVar[int]
    SENTENCE_COUNT_FIELD_NUMBER: _ClassVar[int]
    ALTERNATIVES_FIELD_NUMBER: _ClassVar[int]
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    WORD_LINKS_FIELD_NUMBER: _ClassVar[int]
    WARNINGS_FIELD_NUMBER: _ClassVar[int]
    SEED_FIELD_NUMBER: _ClassVar[int]
    text: str
    finish_reason: FinishReason
    score: float
    normalized_score: float
    source_token_count: int
    target_token_count: int
    sentence_count: int
    alternatives: _containers.RepeatedCompositeFieldContainer[Hypothesis]
    tokens: _containers.RepeatedCompositeFieldContainer[TokenScore]
    word_links: _containers.RepeatedCompositeFieldContainer[WordLink]
    warnings: _containers.RepeatedCompositeFieldContainer[Warning]
    seed: int
    def __init__(self, text: _Optional[str] = ..., finish_reason: _Optional[_Union[FinishReason, str]] = ..., score: _Optional[float] = ..., normalized_score: _Optional[float] = ..., source_token_count: _Optional[int] = ..., target_token_count: _Optional[int] = ..., sentence_count: _Optional[int] = ..., alternatives: _Optional[_Iterable[_Union[Hypothesis, _Mapping]]] = ..., tokens: _Optional[_Iterable[_Union[TokenScore, _Mapping]]] = ..., word_links: _Optional[_Iterable[_Union[WordLink, _Mapping]]] = ..., warnings: _Optional[_Iterable[_Union[Warning, _Mapping]]] = ..., seed: _Optional[int] = ...) -> None: ...

class Hypothesis(_message.Message):
    __slots__ = ("text", "finish_reason", "score", "normalized_score", "target_token_count", "tokens")
    TEXT_FIELD_NUMBER: _ClassVar[int]
    FINISH_REASON_FIELD_NUMBER: _ClassVar[int]
    SCORE_FIELD_NUMBER: _ClassVar[int]
    NORMALIZED_SCORE_FIELD_NUMBER: _ClassVar[int]
    TARGET_TOKEN_COUNT_FIELD_NUMBER: _ClassVar[int]
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    text: str
    finish_reason: FinishReason
    score: float
    normalized_score: float
    target_token_count: int
    tokens: _containers.RepeatedCompositeFieldContainer[TokenScore]
    def __init__(self, text: _Optional[str] = ..., finish_reason: _Optional[_Union[FinishReason, str]] = ..., score: _Optional[float] = ..., normalized_score: _Optional[float] = ..., target_token_count: _Optional[int] = ..., tokens: _Optional[_Iterable[_Union[TokenScore, _Mapping]]] = ...) -> None: ...

class TokenScore(_message.Message):
    __slots__ = ("piece", "log_probability", "span")
    PIECE_FIELD_NUMBER: _ClassVar[int]
    LOG_PROBABILITY_FIELD_NUMBER: _ClassVar[int]
    SPAN_FIELD_NUMBER: _ClassVar[int]
    piece: str
    log_probability: float
    span: TextSpan
    def __init__(self, piece: _Optional[str] = ..., log_probability: _Optional[float] = ..., span: _Optional[_Union[TextSpan, _Mapping]] = ...) -> None: ...

class TextSpan(_message.Message):
    __slots__ = ("start", "end")
    START_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    start: int
    end: int
    def __init__(self, start: _Optional[int] = ..., end: _Optional[int] = ...) -> None: ...

class WordLink(_message.Message):
    __slots__ = ("source", "target", "probability")
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    TARGET_FIELD_NUMBER: _ClassVar[int]
    PROBABILITY_FIELD_NUMBER: _ClassVar[int]
    source: TextSpan
    target: TextSpan
    probability: float
    def __init__(self, source: _Optional[_Union[TextSpan, _Mapping]] = ..., target: _Optional[_Union[TextSpan, _Mapping]] = ..., probability: _Optional[float] = ...) -> None: ...

class DumpAttentionRequest(_message.Message):
    __slots__ = ("text", "model", "source_language_code", "target_language_code", "options", "split", "translation", "selection")
    TEXT_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    SOURCE_LANGUAGE_CODE_FIELD_NUMBER: _ClassVar[int]
    TARGET_LANGUAGE_CODE_FIELD_NUMBER: _ClassVar[int]
    OPTIONS_FIELD_NUMBER: _ClassVar[int]
    SPLIT_FIELD_NUMBER: _ClassVar[int]
    TRANSLATION_FIELD_NUMBER: _ClassVar[int]
    SELECTION_FIELD_NUMBER: _ClassVar[int]
    text: str
    model: str
    source_language_code: str
    target_language_code: str
    options: DecodingOptions
    split: TextSplit
    translation: str
    selection: AttentionSelection
    def __init__(self, text: _Optional[str] = ..., model: _Optional[str] = ..., source_language_code: _Optional[str] = ..., target_language_code: _Optional[str] = ..., options: _Optional[_Union[DecodingOptions, _Mapping]] = ..., split: _Optional[_Union[TextSplit, str]] = ..., translation: _Optional[str] = ..., selection: _Optional[_Union[AttentionSelection, _Mapping]] = ...) -> None: ...

class AttentionSelection(_message.Message):
    __slots__ = ("kinds", "layers", "heads", "layer_reduction", "head_reduction", "level", "drop_special_tokens", "tensor_type", "top_k")
    KINDS_FIELD_NUMBER: _ClassVar[int]
    LAYERS_FIELD_NUMBER: _ClassVar[int]
    HEADS_FIELD_NUMBER: _ClassVar[int]
    LAYER_REDUCTION_FIELD_NUMBER: _ClassVar[int]
    HEAD_REDUCTION_FIELD_NUMBER: _ClassVar[int]
    LEVEL_FIELD_NUMBER: _ClassVar[int]
    DROP_SPECIAL_TOKENS_FIELD_NUMBER: _ClassVar[int]
    TENSOR_TYPE_FIELD_NUMBER: _ClassVar[int]
    TOP_K_FIELD_NUMBER: _ClassVar[int]
    kinds: _containers.RepeatedScalarFieldContainer[AttentionKind]
    layers: _containers.RepeatedScalarFieldContainer[int]
    heads: _containers.RepeatedScalarFieldContainer[int]
    layer_reduction: AttentionReduction
    head_reduction: AttentionReduction
    level: AttentionLevel
    drop_special_tokens: bool
    tensor_type: TensorType
    top_k: int
    def __init__(self, kinds: _Optional[_Iterable[_Union[AttentionKind, str]]] = ..., layers: _Optional[_Iterable[int]] = ..., heads: _Optional[_Iterable[int]] = ..., layer_reduction: _Optional[_Union[AttentionReduction, str]] = ..., head_reduction: _Optional[_Union[AttentionReduction, str]] = ..., level: _Optional[_Union[AttentionLevel, str]] = ..., drop_special_tokens: bool = ..., tensor_type: _Optional[_Union[TensorType, str]] = ..., top_k: _Optional[int] = ...) -> None: ...

class DumpAttentionResponse(_message.Message):
    __slots__ = ("header", "chunk")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    CHUNK_FIELD_NUMBER: _ClassVar[int]
    header: AttentionHeader
    chunk: TensorChunk
    def __init__(self, header: _Optional[_Union[AttentionHeader, _Mapping]] = ..., chunk: _Optional[_Union[TensorChunk, _Mapping]] = ...) -> None: ...

class AttentionHeader(_message.Message):
    __slots__ = ("sentence_index", "sentence_count", "translation", "model", "model_digest", "source_units", "target_units", "input_units", "tensors")
    SENTENCE_INDEX_FIELD_NUMBER: _ClassVar[int]
    SENTENCE_COUNT_FIELD_NUMBER: _ClassVar[int]
    TRANSLATION_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    MODEL_DIGEST_FIELD_NUMBER: _ClassVar[int]
    SOURCE_UNITS_FIELD_NUMBER: _ClassVar[int]
    TARGET_UNITS_FIELD_NUMBER: _ClassVar[int]
    INPUT_UNITS_FIELD_NUMBER: _ClassVar[int]
    TENSORS_FIELD_NUMBER: _ClassVar[int]
    sentence_index: int
    sentence_count: int
    translation: Translation
    model: str
    model_digest: str
    source_units: _containers.RepeatedCompositeFieldContainer[AttentionUnit]
    target_units: _containers.RepeatedCompositeFieldContainer[AttentionUnit]
    input_units: _containers.RepeatedCompositeFieldContainer[AttentionUnit]
    tensors: _containers.RepeatedCompositeFieldContainer[TensorInfo]
    def __init__(self, sentence_index: _Optional[int] = ..., sentence_count: _Optional[int] = ..., translation: _Optional[_Union[Translation, _Mapping]] = ..., model: _Optional[str] = ..., model_digest: _Optional[str] = ..., source_units: _Optional[_Iterable[_Union[AttentionUnit, _Mapping]]] = ..., target_units: _Optional[_Iterable[_Union[AttentionUnit, _Mapping]]] = ..., input_units: _Optional[_Iterable[_Union[AttentionUnit, _Mapping]]] = ..., tensors: _Optional[_Iterable[_Union[TensorInfo, _Mapping]]] = ...) -> None: ...

class AttentionUnit(_message.Message):
    __slots__ = ("text", "span", "special")
    TEXT_FIELD_NUMBER: _ClassVar[int]
    SPAN_FIELD_NUMBER: _ClassVar[int]
    SPECIAL_FIELD_NUMBER: _ClassVar[int]
    text: str
    span: TextSpan
    special: bool
    def __init__(self, text: _Optional[str] = ..., span: _Optional[_Union[TextSpan, _Mapping]] = ..., special: bool = ...) -> None: ...

class TensorInfo(_message.Message):
    __slots__ = ("name", "kind", "type", "shape", "axes", "layers", "heads", "size_bytes")
    NAME_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    TYPE_FIELD_NUMBER: _ClassVar[int]
    SHAPE_FIELD_NUMBER: _ClassVar[int]
    AXES_FIELD_NUMBER: _ClassVar[int]
    LAYERS_FIELD_NUMBER: _ClassVar[int]
    HEADS_FIELD_NUMBER: _ClassVar[int]
    SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
    name: str
    kind: AttentionKind
    type: TensorType
    shape: _containers.RepeatedScalarFieldContainer[int]
    axes: _containers.RepeatedScalarFieldContainer[str]
    layers: _containers.RepeatedScalarFieldContainer[int]
    heads: _containers.RepeatedScalarFieldContainer[int]
    size_bytes: int
    def __init__(self, name: _Optional[str] = ..., kind: _Optional[_Union[AttentionKind, str]] = ..., type: _Optional[_Union[TensorType, str]] = ..., shape: _Optional[_Iterable[int]] = ..., axes: _Optional[_Iterable[str]] = ..., layers: _Optional[_Iterable[int]] = ..., heads: _Optional[_Iterable[int]] = ..., size_bytes: _Optional[int] = ...) -> None: ...

class TensorChunk(_message.Message):
    __slots__ = ("tensor_index", "offset_bytes", "data")
    TENSOR_INDEX_FIELD_NUMBER: _ClassVar[int]
    OFFSET_BYTES_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    tensor_index: int
    offset_bytes: int
    data: bytes
    def __init__(self, tensor_index: _Optional[int] = ..., offset_bytes: _Optional[int] = ..., data: _Optional[bytes] = ...) -> None: ...

class ScoreTextRequest(_message.Message):
    __slots__ = ("items", "model", "source_language_code", "target_language_code")
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    SOURCE_LANGUAGE_CODE_FIELD_NUMBER: _ClassVar[int]
    TARGET_LANGUAGE_CODE_FIELD_NUMBER: _ClassVar[int]
    items: _containers.RepeatedCompositeFieldContainer[ScoreItem]
    model: str
    source_language_code: str
    target_language_code: str
    def __init__(self, items: _Optional[_Iterable[_Union[ScoreItem, _Mapping]]] = ..., model: _Optional[str] = ..., source_language_code: _Optional[str] = ..., target_language_code: _Optional[str] = ...) -> None: ...

class ScoreItem(_message.Message):
    __slots__ = ("text", "translation", "pieces")
    TEXT_FIELD_NUMBER: _ClassVar[int]
    TRANSLATION_FIELD_NUMBER: _ClassVar[int]
    PIECES_FIELD_NUMBER: _ClassVar[int]
    text: str
    translation: str
    pieces: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, text: _Optional[str] = ..., translation: _Optional[str] = ..., pieces: _Optional[_Iterable[str]] = ...) -> None: ...

class ScoreTextResponse(_message.Message):
    __slots__ = ("scores", "model", "model_digest")
    SCORES_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    MODEL_DIGEST_FIELD_NUMBER: _ClassVar[int]
    scores: _containers.RepeatedCompositeFieldContainer[Score]
    model: str
    model_digest: str
    def __init__(self, scores: _Optional[_Iterable[_Union[Score, _Mapping]]] = ..., model: _Optional[str] = ..., model_digest: _Optional[str] = ...) -> None: ...

class Score(_message.Message):
    __slots__ = ("score", "normalized_score", "tokens")
    SCORE_FIELD_NUMBER: _ClassVar[int]
    NORMALIZED_SCORE_FIELD_NUMBER: _ClassVar[int]
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    score: float
    normalized_score: float
    tokens: _containers.RepeatedCompositeFieldContainer[TokenScore]
    def __init__(self, score: _Optional[float] = ..., normalized_score: _Optional[float] = ..., tokens: _Optional[_Iterable[_Union[TokenScore, _Mapping]]] = ...) -> None: ...

class ListModelsRequest(_message.Message):
    __slots__ = ("page_size", "page_token")
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    page_size: int
    page_token: str
    def __init__(self, page_size: _Optional[int] = ..., page_token: _Optional[str] = ...) -> None: ...

class ListModelsResponse(_message.Message):
    __slots__ = ("models", "next_page_token", "limits")
    MODELS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    LIMITS_FIELD_NUMBER: _ClassVar[int]
    models: _containers.RepeatedCompositeFieldContainer[Model]
    next_page_token: str
    limits: Limits
    def __init__(self, models: _Optional[_Iterable[_Union[Model, _Mapping]]] = ..., next_page_token: _Optional[str] = ..., limits: _Optional[_Union[Limits, _Mapping]] = ...) -> None: ...

class Model(_message.Message):
    __slots__ = ("name", "language_pairs", "digest", "precision", "device", "parameter_count", "encoder_layer_count", "decoder_layer_count", "head_count", "max_source_token_count", "max_target_token_count", "kernels")
    NAME_FIELD_NUMBER: _ClassVar[int]
    LANGUAGE_PAIRS_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    PRECISION_FIELD_NUMBER: _ClassVar[int]
    DEVICE_FIELD_NUMBER: _ClassVar[int]
    PARAMETER_COUNT_FIELD_NUMBER: _ClassVar[int]
    ENCODER_LAYER_COUNT_FIELD_NUMBER: _ClassVar[int]
    DECODER_LAYER_COUNT_FIELD_NUMBER: _ClassVar[int]
    HEAD_COUNT_FIELD_NUMBER: _ClassVar[int]
    MAX_SOURCE_TOKEN_COUNT_FIELD_NUMBER: _ClassVar[int]
    MAX_TARGET_TOKEN_COUNT_FIELD_NUMBER: _ClassVar[int]
    KERNELS_FIELD_NUMBER: _ClassVar[int]
    name: str
    language_pairs: _containers.RepeatedCompositeFieldContainer[LanguagePair]
    digest: str
    precision: str
    device: str
    parameter_count: int
    encoder_layer_count: int
    decoder_layer_count: int
    head_count: int
    max_source_token_count: int
    max_target_token_count: int
    kernels: str
    def __init__(self, name: _Optional[str] = ..., language_pairs: _Optional[_Iterable[_Union[LanguagePair, _Mapping]]] = ..., digest: _Optional[str] = ..., precision: _Optional[str] = ..., device: _Optional[str] = ..., parameter_count: _Optional[int] = ..., encoder_layer_count: _Optional[int] = ..., decoder_layer_count: _Optional[int] = ..., head_count: _Optional[int] = ..., max_source_token_count: _Optional[int] = ..., max_target_token_count: _Optional[int] = ..., kernels: _Optional[str] = ...) -> None: ...

class LanguagePair(_message.Message):
    __slots__ = ("source_language_code", "target_language_code")
    SOURCE_LANGUAGE_CODE_FIELD_NUMBER: _ClassVar[int]
    TARGET_LANGUAGE_CODE_FIELD_NUMBER: _ClassVar[int]
    source_language_code: str
    target_language_code: str
    def __init__(self, source_language_code: _Optional[str] = ..., target_language_code: _Optional[str] = ...) -> None: ...

class Limits(_message.Message):
    __slots__ = ("max_text_count", "max_text_characters", "max_beam_size", "max_num_hypotheses", "max_sentence_rows", "max_batch_size", "max_queue_size", "max_bulk_streams", "max_attention_calls", "max_queue_seconds")
    MAX_TEXT_COUNT_FIELD_NUMBER: _ClassVar[int]
    MAX_TEXT_CHARACTERS_FIELD_NUMBER: _ClassVar[int]
    MAX_BEAM_SIZE_FIELD_NUMBER: _ClassVar[int]
    MAX_NUM_HYPOTHESES_FIELD_NUMBER: _ClassVar[int]
    MAX_SENTENCE_ROWS_FIELD_NUMBER: _ClassVar[int]
    MAX_BATCH_SIZE_FIELD_NUMBER: _ClassVar[int]
    MAX_QUEUE_SIZE_FIELD_NUMBER: _ClassVar[int]
    MAX_BULK_STREAMS_FIELD_NUMBER: _ClassVar[int]
    MAX_ATTENTION_CALLS_FIELD_NUMBER: _ClassVar[int]
    MAX_QUEUE_SECONDS_FIELD_NUMBER: _ClassVar[int]
    max_text_count: int
    max_text_characters: int
    max_beam_size: int
    max_num_hypotheses: int
    max_sentence_rows: int
    max_batch_size: int
    max_queue_size: int
    max_bulk_streams: int
    max_attention_calls: int
    max_queue_seconds: float
    def __init__(self, max_text_count: _Optional[int] = ..., max_text_characters: _Optional[int] = ..., max_beam_size: _Optional[int] = ..., max_num_hypotheses: _Optional[int] = ..., max_sentence_rows: _Optional[int] = ..., max_batch_size: _Optional[int] = ..., max_queue_size: _Optional[int] = ..., max_bulk_streams: _Optional[int] = ..., max_attention_calls: _Optional[int] = ..., max_queue_seconds: _Optional[float] = ...) -> None: ...
