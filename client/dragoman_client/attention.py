"""Attention weights as the client hands them over: plain buffers, no numpy needed."""

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from dragoman_client.results import TextSpan, Translation
from dragoman_client.selection import AttentionKind

if TYPE_CHECKING:
    import numpy as np


@dataclass(frozen=True)
class AttentionUnit:
    """A row or a column of a weight matrix: a vocabulary piece or a word.

    Attributes:
        text: The piece or the word.
        span: Where it stands in the source text or in the sentence's translation; None for special tokens.
        special: It stands for no text, such as end-of-sentence.
    """

    text: str
    span: TextSpan | None
    special: bool


@dataclass(frozen=True, eq=False)
class AttentionTensor:
    """Attention weights of one kind, row-major.

    Attributes:
        kind: Which attention.
        shape: Size along each axis.
        axes: Names of the axes: "layer" and "head" where they were kept apart, then "target" and "source" for
            cross-attention, "query" and "key" for the encoder's, "target" and "input" for the decoder's; "rank" in the place
            of the last where only the largest weights were asked for.
        layers: Which layers stand along the layer axis, or went into what they were reduced to.
        heads: Which heads stand along the head axis, or went into what they were reduced to.
        values: All weights, one float32 after the other; a read-only view.
        indices: The column of each weight, int32, where only the largest were asked for; None otherwise.
        num_columns: Columns of a matrix, whether all came or only the largest of a row.
    """

    kind: AttentionKind
    shape: tuple[int, ...]
    axes: tuple[str, ...]
    layers: tuple[int, ...]
    heads: tuple[int, ...]
    values: memoryview
    indices: memoryview | None
    num_columns: int

    def row(self, layer: int | None, head: int | None, target: int) -> memoryview:
        """Returns the weights of one row, of its largest only where only those came.

        Args:
            layer: Layer, counted as in ``layers``; None where there is no layer axis.
            head: Head, counted as in ``heads``; None where there is no head axis.
            target: The row, from 0.

        Raises:
            IndexError: There is no such layer, head or row.
        """
        return self.values[self._row_range(layer, head, target)]

    def places(
        self, *, layer: int | None = None, head: int | None = None
    ) -> Iterator[tuple[int | None, int | None]]:
        """Yields the layer and head of each matrix, in the order of the values; None for an axis that is not there.

        Args:
            layer: Only this layer, counted as in ``layers``; None takes those kept apart.
            head: Only this head, counted as in ``heads``; None takes those kept apart.
        """
        layers = (None,) if "layer" not in self.axes else self.layers if layer is None else (layer,)
        heads = (None,) if "head" not in self.axes else self.heads if head is None else (head,)
        return itertools.product(layers, heads)

    def mean(self, *, layer: int | None = None, head: int | None = None) -> list[list[float]]:
        """Returns one matrix with all its columns; a weight that did not come counts as 0.

        Args:
            layer: Only this layer, counted as in ``layers``; None takes the mean of those kept apart.
            head: Only this head, counted as in ``heads``; None takes the mean of those kept apart.

        Raises:
            IndexError: There is no such layer or head.
        """
        places = list(self.places(layer=layer, head=head))
        matrix = []
        for target in range(self.shape[-2]):
            rows = [self._full_row(*place, target) for place in places]
            matrix.append([math.fsum(column) / len(rows) for column in zip(*rows, strict=True)])
        return matrix

    def tolist(self) -> list[Any]:
        """Returns the weights as lists within lists, one level for each axis."""
        return nested(self.values, self.shape)

    def numpy(self) -> "np.ndarray[Any, np.dtype[np.float32]]":
        """Returns the weights as a read-only numpy array of shape ``shape``, without copying.

        Raises:
            ImportError: numpy, which the client does not need, is not installed.
        """
        import numpy as np  # noqa: PLC0415 - optional

        return np.frombuffer(self.values, dtype=np.float32).reshape(self.shape)

    def _full_row(self, layer: int | None, head: int | None, target: int) -> list[float]:
        place = self._row_range(layer, head, target)
        weights = [float(weight) for weight in self.values[place]]
        if self.indices is None:
            return weights
        full = [0.0] * self.num_columns
        for column, weight in zip(self.indices[place].tolist(), weights, strict=True):
            full[column] = weight
        return full

    def _row_range(self, layer: int | None, head: int | None, target: int) -> slice:
        """Returns where a row stands among the values."""
        num_rows, width = self.shape[-2:]
        if not 0 <= target < num_rows:
            raise IndexError(f"{self.axes[-2]} {target}: there are 0 to {num_rows - 1}")
        matrix = 0
        for axis, wanted, present in (("layer", layer, self.layers), ("head", head, self.heads)):
            if axis in self.axes:
                matrix = matrix * len(present) + _index(axis, wanted, present)
        start = (matrix * num_rows + target) * width
        return slice(start, start + width)


@dataclass(frozen=True)
class Attention:
    """What one sentence's translation attended to.

    Attributes:
        text: The text as it was sent; source spans count in it.
        sentence_index: Which of the text's sentences this is, from 0.
        sentence_count: Sentences of the text.
        translation: The sentence's translation; target spans count in its text.
        source_units: What the encoder read, end-of-sentence last: columns of cross-attention, rows and columns of the
            encoder's.
        target_units: What the decoder predicted, end-of-sentence last: rows of cross-attention and of the decoder's.
        input_units: What the decoder read, begin-of-sentence first: columns of the decoder's.
        tensors: The weights, one for each kind asked for, in that order.
        model: Name of the model that translated.
        model_digest: SHA-256 of its weights, in hexadecimal.
    """

    text: str
    sentence_index: int
    sentence_count: int
    translation: Translation
    source_units: tuple[AttentionUnit, ...]
    target_units: tuple[AttentionUnit, ...]
    input_units: tuple[AttentionUnit, ...]
    tensors: tuple[AttentionTensor, ...]
    model: str
    model_digest: str

    @property
    def weights(self) -> AttentionTensor:
        """The weights of the first kind asked for: cross-attention, unless told otherwise."""
        return self.tensors[0]

    def rows(self, kind: AttentionKind) -> tuple[AttentionUnit, ...]:
        """Returns what the rows of a kind are."""
        return self.source_units if kind is AttentionKind.ENCODER_SELF else self.target_units

    def columns(self, kind: AttentionKind) -> tuple[AttentionUnit, ...]:
        """Returns what the columns of a kind are."""
        return self.input_units if kind is AttentionKind.DECODER_SELF else self.source_units


def nested(values: memoryview, shape: tuple[int, ...]) -> list[Any]:
    """Returns a tensor's values as lists within lists, one level for each axis."""
    if not len(values):
        return [nested(values, shape[1:]) for _ in range(shape[0])] if shape else []
    return cast("list[Any]", values.cast("B").cast(cast("Any", values.format), list(shape)).tolist())


def _index(axis: str, wanted: int | None, present: tuple[int, ...]) -> int:
    """Returns where a layer or head stands along its axis."""
    if wanted is None or wanted not in present:
        raise IndexError(f"{axis} {wanted}: there are {', '.join(map(str, present))}")
    return present.index(wanted)
