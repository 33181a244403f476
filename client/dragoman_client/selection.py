"""Which attention weights to ask for."""

import enum
from dataclasses import dataclass


class AttentionKind(enum.Enum):
    """Which attention.

    Attributes:
        CROSS: Of the decoder over the source.
        ENCODER_SELF: Of the encoder over the source.
        DECODER_SELF: Of the decoder over what it wrote.
    """

    CROSS = "cross"
    ENCODER_SELF = "encoder-self"
    DECODER_SELF = "decoder-self"


class AttentionReduction(enum.Enum):
    """How several layers or heads become one.

    Attributes:
        MEAN: Their mean.
        MAX: Their maximum; rows no longer sum to 1.
        ROLLOUT: Attention rollout over the layers (Abnar and Zuidema 2020), heads averaged. For cross-attention: the last
            of the chosen layers, times the rollout of the whole encoder.
    """

    MEAN = "mean"
    MAX = "max"
    ROLLOUT = "rollout"


class AttentionLevel(enum.Enum):
    """What a row or a column is.

    Attributes:
        PIECE: A vocabulary piece.
        WORD: A word, which white space bounds: the columns of its pieces are summed, their rows averaged.
    """

    PIECE = "piece"
    WORD = "word"


class WeightType(enum.Enum):
    """How weights travel; they arrive as float32 whatever it is.

    Attributes:
        FLOAT32: Four bytes each, exact.
        FLOAT16: Two bytes each, to three digits.
        UINT8: One byte each, to 1/510.
    """

    FLOAT32 = "float32"
    FLOAT16 = "float16"
    UINT8 = "uint8"


@dataclass(frozen=True, kw_only=True)
class AttentionSelection:
    """Which attention weights to return, and in what form; the values of the enumerations do as well.

    Done in this order: layers and heads are chosen (and rolled out), pieces joined to words, heads reduced, layers reduced,
    special tokens dropped, and the largest weights taken.

    Attributes:
        kinds: Each once; empty takes cross-attention.
        layers: From 0, each once; empty takes all. With several kinds each must have them.
        heads: From 0, each once; empty takes all.
        layer_reduction: None keeps layers apart.
        head_reduction: None keeps heads apart; a rollout averages them.
        level: None takes pieces.
        drop_special_tokens: Leaves special tokens out and scales each row to sum to 1 again. A row that attends to nothing
            else is 0.
        weight_type: None takes float32.
        top_k: Only so many largest weights of a row; None takes all.
    """

    kinds: tuple[AttentionKind | str, ...] = ()
    layers: tuple[int, ...] = ()
    heads: tuple[int, ...] = ()
    layer_reduction: AttentionReduction | str | None = None
    head_reduction: AttentionReduction | str | None = None
    level: AttentionLevel | str | None = None
    drop_special_tokens: bool = False
    weight_type: WeightType | str | None = None
    top_k: int | None = None
