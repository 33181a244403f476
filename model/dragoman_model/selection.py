"""Which attention weights are wanted, and in what form: plain data."""

from __future__ import annotations

import enum
from dataclasses import dataclass


class AttentionKind(enum.Enum):
    """Which attention of the model.

    Attributes:
        CROSS: Of the decoder over the source.
        ENCODER_SELF: Of the encoder over the source.
        DECODER_SELF: Of the decoder over what it wrote.
    """

    CROSS = "cross"
    ENCODER_SELF = "encoder_self"
    DECODER_SELF = "decoder_self"


class Reduction(enum.Enum):
    """How several layers or heads become one.

    Attributes:
        MEAN: Their mean.
        MAX: Their maximum; rows no longer sum to 1.
        ROLLOUT: `attention_maps.rollout` over layers, with the heads' mean in each.
    """

    MEAN = "mean"
    MAX = "max"
    ROLLOUT = "rollout"


class ElementType(enum.Enum):
    """How a number is written.

    Attributes:
        FLOAT32: IEEE 754 binary32.
        FLOAT16: IEEE 754 binary16.
        UINT8: Weight × 255, rounded.
        INT32: For indices.
    """

    FLOAT32 = "float32"
    FLOAT16 = "float16"
    UINT8 = "uint8"
    INT32 = "int32"


@dataclass(frozen=True, kw_only=True)
class AttentionSelection:
    """Which weights are wanted.

    What is asked for is done in this order: layers and heads are chosen (and rolled out), pieces joined to words, heads
    reduced, layers reduced, special tokens left out with what remains of each row scaled to sum to 1, and the largest weights
    taken.

    Attributes:
        kinds: One or more, each once.
        layers: From 0, each once; empty is all.
        heads: From 0, each once; empty is all.
        layer_reduction: None keeps layers apart. ROLLOUT runs over the chosen layers of self-attention; for CROSS it
            takes the last of the chosen layers, times the rollout of the whole encoder.
        head_reduction: None keeps heads apart; never ROLLOUT, and never MAX beside a rollout.
        words: Rows and columns are words rather than pieces.
        drop_special_tokens: Leaves special tokens out, as rows and as columns.
        element_type: Of the weights; not INT32.
        top_k: Only so many largest weights of a row, 1 or more; None is all.
    """

    kinds: tuple[AttentionKind, ...] = (AttentionKind.CROSS,)
    layers: tuple[int, ...] = ()
    heads: tuple[int, ...] = ()
    layer_reduction: Reduction | None = None
    head_reduction: Reduction | None = None
    words: bool = False
    drop_special_tokens: bool = False
    element_type: ElementType = ElementType.FLOAT32
    top_k: int | None = None

    def __post_init__(self) -> None:
        for name in ("kinds", "layers", "heads"):
            values = getattr(self, name)
            if len(set(values)) < len(values):
                raise ValueError(f"{name} is {values}; each may be there once")
        if not self.kinds:
            raise ValueError("kinds is empty; at least one is needed")
        if min((*self.layers, *self.heads), default=0) < 0:
            raise ValueError("layers and heads are counted from 0; a negative number given")
        if self.head_reduction is Reduction.ROLLOUT:
            raise ValueError("head_reduction is ROLLOUT, which runs over layers; set layer_reduction")
        if self.is_rollout and self.head_reduction is Reduction.MAX:
            raise ValueError("head_reduction is MAX; a rollout takes the heads' mean")
        if self.element_type is ElementType.INT32:
            raise ValueError("element_type is INT32, which is for indices")
        if self.top_k is not None and self.top_k < 1:
            raise ValueError(f"top_k is {self.top_k}; must be 1 or more, or None for all weights")

    @property
    def is_rollout(self) -> bool:
        """Whether layers are reduced by a rollout."""
        return self.layer_reduction is Reduction.ROLLOUT

    @property
    def needed_kinds(self) -> frozenset[AttentionKind]:
        """The kinds whose weights it takes to make what is wanted."""
        needed = set(self.kinds)
        if self.is_rollout and AttentionKind.CROSS in needed:
            needed.add(AttentionKind.ENCODER_SELF)
        return frozenset(needed)
