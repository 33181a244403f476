"""From the attention of one sentence to what was asked for of it: `selection` carried out with `attention_maps`.

Shapes: L layers, H heads, R rows, C columns, S source length, K weights kept of a row.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from dragoman_model.attention_maps import (
    average_rows,
    cross_rollout,
    keep,
    largest,
    max_over,
    mean_over,
    quantise,
    rollout,
    sum_columns,
)
from dragoman_model.plan import AttentionOutput
from dragoman_model.selection import AttentionKind, AttentionSelection, ElementType, Reduction
from dragoman_model.tokenizer import Piece
from dragoman_model.words import Unit, piece_units, word_units

# What stands along the rows and the columns of each kind.
_AXES = {
    AttentionKind.CROSS: ("target", "source"),
    AttentionKind.ENCODER_SELF: ("query", "key"),
    AttentionKind.DECODER_SELF: ("target", "input"),
}


@dataclass(frozen=True, kw_only=True)
class Units:
    """The rows and columns of a sentence's attention.

    Attributes:
        source: What the encoder read.
        target: What each decoder row predicts.
        input: What the decoder read.
    """

    source: tuple[Unit, ...]
    target: tuple[Unit, ...]
    input: tuple[Unit, ...]

    @classmethod
    def of(
        cls,
        source: Sequence[Piece],
        source_text: str,
        target: Sequence[Piece],
        target_text: str,
        start: Piece,
        *,
        words: bool,
    ) -> Units:
        """Returns the units of a sentence and its translation.

        Args:
            source: The sentence's tokens.
            source_text: What their spans count in.
            target: The tokens of its translation, in the order in which they were made.
            target_text: What their spans count in.
            start: The token that the decoder reads first.
            words: Joins pieces to words.
        """

        def units(pieces: Sequence[Piece], text: str) -> tuple[Unit, ...]:
            return tuple(word_units(pieces, text) if words else piece_units(pieces))

        return cls(
            source=units(source, source_text),
            target=units(target, target_text),
            input=units([start, *target[:-1]], target_text),
        )

    def along(self, kind: AttentionKind) -> tuple[tuple[Unit, ...], tuple[Unit, ...]]:
        """Returns the rows and the columns of a kind."""
        rows = self.source if kind is AttentionKind.ENCODER_SELF else self.target
        columns = self.input if kind is AttentionKind.DECODER_SELF else self.source
        return rows, columns

    def without_special(self) -> Units:
        """Returns those that stand for text."""
        return Units(
            source=tuple(unit for unit in self.source if not unit.special),
            target=tuple(unit for unit in self.target if not unit.special),
            input=tuple(unit for unit in self.input if not unit.special),
        )


@dataclass(frozen=True, kw_only=True)
class AttentionArray:
    """Weights, or the columns in which they stand, as bytes.

    Attributes:
        name: Unique among a sentence's.
        kind: Which attention it is.
        element_type: Of its elements.
        axes: Names of its axes; "layer" and "head" only where they were kept apart, and "rank" in the place of the columns
            where only the largest weights were taken.
        shape: Size along each axis.
        layers: Which layers stand along the layer axis, or went into what they became.
        heads: Which heads stand along the head axis, or went into what they became.
        data: Its elements, row-major, little-endian.
    """

    name: str
    kind: AttentionKind
    element_type: ElementType
    axes: tuple[str, ...]
    shape: tuple[int, ...]
    layers: tuple[int, ...]
    heads: tuple[int, ...]
    data: bytes


@torch.inference_mode()
def select_attention(
    output: AttentionOutput, selection: AttentionSelection, units: Units
) -> list[AttentionArray]:
    """Returns what is wanted of a sentence's attention: for each kind one array, or two where only the largest count.

    Args:
        output: The weights, with every kind of ``selection.needed_kinds``.
        selection: What is wanted; its layers and heads exist.
        units: Rows and columns before any is left out; words where ``selection.words``.
    """
    return [array for kind in selection.kinds for array in _select_kind(output, selection, units, kind)]


def _select_kind(
    output: AttentionOutput, selection: AttentionSelection, units: Units, kind: AttentionKind
) -> list[AttentionArray]:
    every = output.of(kind)
    layers = selection.layers or tuple(range(every.size(0)))
    heads = selection.heads or tuple(range(every.size(1)))
    if selection.is_rollout:
        layers = tuple(sorted(layers))[-1 if kind is AttentionKind.CROSS else 0 :]
        weights = _in_units(_roll_out(output, kind, layers, heads), selection, units, kind)
        axes: tuple[str, ...] = ()
    else:
        weights = _in_units(_chosen(every, layers, heads), selection, units, kind)
        weights, axes = _reduce(weights, selection)
    if selection.drop_special_tokens:
        rows, columns = units.along(kind)
        weights = keep(weights, _not_special(rows), _not_special(columns))
    return [
        AttentionArray(
            name=name,
            kind=kind,
            element_type=element_type,
            axes=(*axes, *matrix_axes),
            shape=tuple(values.shape),
            layers=layers,
            heads=heads,
            data=_bytes(values),
        )
        for name, values, element_type, matrix_axes in _written(weights, selection, kind)
    ]


def _in_units(weights: Tensor, selection: AttentionSelection, units: Units, kind: AttentionKind) -> Tensor:
    """Returns weights between pieces, (…, R, C), as weights between words where those are wanted."""
    if not selection.words:
        return weights
    rows, columns = units.along(kind)
    weights = sum_columns(weights, [unit.pieces for unit in columns])
    return average_rows(weights, [unit.pieces for unit in rows])


def _reduce(weights: Tensor, selection: AttentionSelection) -> tuple[Tensor, tuple[str, ...]]:
    """Returns weights, (L, H, R, C), without the axes that are reduced, and the names of the leading axes that stay."""
    axes: list[str] = []
    # The head axis first: then the layer axis is still the first.
    for index, name, reduction in (
        (1, "head", selection.head_reduction),
        (0, "layer", selection.layer_reduction),
    ):
        if reduction is None:
            axes.insert(0, name)
        else:
            weights = (max_over if reduction is Reduction.MAX else mean_over)(weights, index)
    return weights, tuple(axes)


def _written(
    weights: Tensor, selection: AttentionSelection, kind: AttentionKind
) -> Iterator[tuple[str, Tensor, ElementType, tuple[str, str]]]:
    """Yields what is sent of a kind's weights, (…, R, C): names, values, types and names of the last two axes."""
    name, (row_axis, column_axis) = kind.value, _AXES[kind]
    if selection.top_k is not None:
        indices, weights = largest(weights, selection.top_k)  # (…, R, K)
        column_axis = "rank"
        yield f"{name}.indices", indices, ElementType.INT32, (row_axis, column_axis)
        name = f"{name}.weights"
    if selection.element_type is ElementType.UINT8:
        weights = quantise(weights)
    elif selection.element_type is ElementType.FLOAT16:
        weights = weights.half()
    yield name, weights, selection.element_type, (row_axis, column_axis)


def _roll_out(
    output: AttentionOutput, kind: AttentionKind, layers: Sequence[int], heads: Sequence[int]
) -> Tensor:
    """Returns the rollout of a kind's layers, which come in ascending order, (R, C)."""
    means = mean_over(_chosen(output.of(kind), layers, heads), 1)  # (L, R, C)
    if kind is not AttentionKind.CROSS:
        return rollout(means)
    encoder = output.of(AttentionKind.ENCODER_SELF)
    below = mean_over(_chosen(encoder, range(encoder.size(0)), heads), 1)  # (L, S, S)
    return cross_rollout(means[-1], rollout(below))


def _chosen(weights: Tensor, layers: Iterable[int], heads: Iterable[int]) -> Tensor:
    return weights[list(layers)][:, list(heads)]


def _not_special(units: Sequence[Unit]) -> list[int]:
    return [index for index, unit in enumerate(units) if not unit.special]


def _bytes(values: Tensor) -> bytes:
    array = values.contiguous().numpy()
    return (array.byteswap() if sys.byteorder == "big" else array).tobytes()
