"""What a server says of itself: whether it serves, which models, within which limits."""

import enum
from dataclasses import dataclass


class ServingStatus(enum.Enum):
    """What a health check says.

    Attributes:
        UNKNOWN: The server did not say.
        SERVING: Requests are taken.
        NOT_SERVING: Requests are refused: the server is starting or going away.
        SERVICE_UNKNOWN: There is no such model.
    """

    UNKNOWN = "UNKNOWN"
    SERVING = "SERVING"
    NOT_SERVING = "NOT_SERVING"
    SERVICE_UNKNOWN = "SERVICE_UNKNOWN"


@dataclass(frozen=True)
class LanguagePair:
    """A source and a target language, as BCP-47 codes."""

    source: str
    target: str

    def __str__(self) -> str:
        return f"{self.source} → {self.target}"


@dataclass(frozen=True)
class Model:
    """A served model.

    Attributes:
        name: What ``model=`` takes.
        language_pairs: What it translates.
        digest: SHA-256 of the weights, in hexadecimal.
        precision: Precision in force: float32, bfloat16, float16 or int8.
        device: Device in force: cpu, cuda:0, …
        parameter_count: Number of parameters.
        encoder_layer_count: Encoder layers.
        decoder_layer_count: Decoder layers.
        head_count: Attention heads of a layer.
        max_source_token_count: Longest source sentence in tokens, end-of-sentence included.
        max_target_token_count: Longest translation of a sentence in tokens, end-of-sentence included.
        kernels: What computes: PyTorch, on a GPU with CUDA graphs, or the precision and the instructions of the server's own kernels;
            empty where an older server doesn't say.
    """

    name: str
    language_pairs: tuple[LanguagePair, ...]
    digest: str
    precision: str
    device: str
    parameter_count: int
    encoder_layer_count: int
    decoder_layer_count: int
    head_count: int
    max_source_token_count: int
    max_target_token_count: int
    kernels: str = ""


@dataclass(frozen=True)
class Limits:
    """What one call may ask for, and what all calls share; 0 where an older server doesn't say.

    Attributes:
        max_text_count: Texts in a call; the client cuts longer lists into several calls.
        max_text_characters: Unicode code points in a text.
        max_beam_size: Bound of ``DecodingOptions.beam_size``.
        max_num_hypotheses: Bound of ``DecodingOptions.num_hypotheses``.
        max_sentence_rows: Decoder rows that one sentence may take.
        max_batch_size: Decoder rows of each model that all calls share.
        max_queue_size: Sentences of all calls that may wait for each model.
        max_bulk_streams: Bulk calls that may be open at once, for each model.
        max_attention_calls: Calls for attention that are served at once, for each model.
        max_queue_seconds: How long a call may wait in the queue of its model, except a bulk one; 0 is as long as it takes.
    """

    max_text_count: int
    max_text_characters: int
    max_beam_size: int
    max_num_hypotheses: int
    max_sentence_rows: int
    max_batch_size: int = 0
    max_queue_size: int = 0
    max_bulk_streams: int = 0
    max_attention_calls: int = 0
    max_queue_seconds: float = 0.0


@dataclass(frozen=True)
class ModelList:
    """The served models, in the order in which a language pair picks its default, and the server's limits."""

    models: tuple[Model, ...]
    limits: Limits

    def __len__(self) -> int:
        return len(self.models)
