"""Attention weights as the client hands them over: plain buffers, no numpy needed."""

import math
import sys
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from dragoman.v1 import (
    AttentionHeader,
    AttentionKind,
    DumpAttentionResponse,
    TensorChunk,
    TensorInfo,
    TensorType,
)
from dragoman.v1 import AttentionUnit as WireUnit
from dragoman_client.errors import ServerError
from dragoman_client.responses import read_span, read_translation
from dragoman_client.results import TextSpan, Translation

if TYPE_CHECKING:
    import numpy as np


@dataclass(frozen=True)
class AttentionUnit:
    """A row or a column of a weight matrix: one vocabulary piece.

    Attributes:
        text: The piece.
        span: Where it stands in the source text or in the sentence's translation; None for special tokens.
        special: It stands for no text, such as end-of-sentence.
    """

    text: str
    span: TextSpan | None
    special: bool


@dataclass(frozen=True, eq=False)
class AttentionTensor:
    """Attention weights of every layer and head, row-major.

    Attributes:
        name: The server's name for it, such as ``cross``.
        shape: Size along each axis.
        axes: Names of the axes; ``("layer", "head", "target", "source")`` for cross-attention.
        layers: Which layers stand along the layer axis.
        heads: Which heads stand along the head axis.
        values: All weights, one float32 after the other; a read-only view.
    """

    name: str
    shape: tuple[int, ...]
    axes: tuple[str, ...]
    layers: tuple[int, ...]
    heads: tuple[int, ...]
    values: memoryview

    def row(self, layer: int, head: int, target: int) -> memoryview:
        """Returns the weights with which one target piece attends to the source: they sum to 1.

        Args:
            layer: Layer, counted as in ``layers``.
            head: Head, counted as in ``heads``.
            target: Target piece, from 0.

        Raises:
            IndexError: There is no such layer, head or target piece.
        """
        _, num_heads, num_targets, num_sources = self._sizes()
        if not 0 <= target < num_targets:
            raise IndexError(f"target piece {target}: there are 0 to {num_targets - 1}")
        matrix = _index("layer", layer, self.layers) * num_heads + _index("head", head, self.heads)
        start = (matrix * num_targets + target) * num_sources
        return self.values[start : start + num_sources]

    def mean(self, *, layer: int | None = None, head: int | None = None) -> list[list[float]]:
        """Returns one matrix, target pieces down and source pieces across.

        Args:
            layer: Only this layer, counted as in ``layers``; None takes the mean of all.
            head: Only this head, counted as in ``heads``; None takes the mean of all.

        Raises:
            IndexError: There is no such layer or head.
        """
        _, _, num_targets, num_sources = self._sizes()
        layers = self.layers if layer is None else (layer,)
        heads = self.heads if head is None else (head,)
        count = len(layers) * len(heads)
        matrix = []
        for target in range(num_targets):
            rows = [self.row(layer, head, target) for layer in layers for head in heads]
            matrix.append([math.fsum(row[source] for row in rows) / count for source in range(num_sources)])
        return matrix

    def tolist(self) -> list[Any]:
        """Returns the weights as lists within lists, one level for each axis."""
        return cast("list[Any]", self.values.cast("B").cast("f", list(self.shape)).tolist())

    def numpy(self) -> "np.ndarray[Any, np.dtype[np.float32]]":
        """Returns the weights as a read-only numpy array of shape ``shape``, without copying.

        Raises:
            ImportError: numpy, which the client does not need, is not installed.
        """
        import numpy as np  # noqa: PLC0415 - optional

        return np.frombuffer(self.values, dtype=np.float32).reshape(self.shape)

    def _sizes(self) -> tuple[int, int, int, int]:
        """Returns the four sizes; the reader has checked that there are four."""
        return cast("tuple[int, int, int, int]", self.shape)


@dataclass(frozen=True)
class Attention:
    """What one sentence's translation attended to.

    Attributes:
        text: The text as it was sent; source spans count in it.
        sentence_index: Which of the text's sentences this is, from 0.
        sentence_count: Sentences of the text.
        translation: The sentence's translation; target spans count in its text.
        source_units: What the encoder read, end-of-sentence last: the columns.
        target_units: What the decoder predicted, end-of-sentence last: the rows.
        input_units: What the decoder read, begin-of-sentence first: row for row the unit before the target's.
        weights: Cross-attention, (layer, head, target, source).
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
    weights: AttentionTensor
    model: str
    model_digest: str


class AttentionReader:
    """Puts a stream of headers and chunks together; it does no input or output of its own.

    Feed it every message in order, then call :meth:`finish`.
    """

    def __init__(self, text: str) -> None:
        self._text = text
        self._header: AttentionHeader | None = None
        self._buffers: list[bytearray] = []
        self._attentions: list[Attention] = []

    def feed(self, response: DumpAttentionResponse) -> None:
        """Takes the next message.

        Raises:
            ServerError: The message does not follow those before it.
        """
        part = response.WhichOneof("part")
        if part == "header":
            self._close_sentence()
            self._header = response.header
            self._buffers = [bytearray() for _ in response.header.tensors]
        elif part == "chunk":
            self._append(response.chunk)

    def finish(self) -> list[Attention]:
        """Returns the sentences' attention, in their order.

        Raises:
            ServerError: The stream ended too early.
        """
        self._close_sentence()
        promised = self._attentions[0].sentence_count if self._attentions else 0
        if len(self._attentions) != promised:
            raise _broken(f"{len(self._attentions)} of {promised} sentences came")
        return self._attentions

    def _append(self, chunk: TensorChunk) -> None:
        if self._header is None or not 0 <= chunk.tensor_index < len(self._buffers):
            raise _broken(f"a chunk belongs to tensor {chunk.tensor_index}, which no header names")
        buffer = self._buffers[chunk.tensor_index]
        if chunk.offset_bytes != len(buffer):
            raise _broken(f"a chunk starts at byte {chunk.offset_bytes}, not {len(buffer)}")
        buffer.extend(chunk.data)

    def _close_sentence(self) -> None:
        header, self._header = self._header, None
        if header is None:
            return
        if not (header.sentence_count or header.tensors):
            return  # a blank text: it is its own translation, and nothing attends to anything
        if header.sentence_index != len(self._attentions):
            raise _broken(f"sentence {header.sentence_index} came as number {len(self._attentions)}")
        tensors = [
            _read_tensor(info, buffer, header)
            for info, buffer in zip(header.tensors, self._buffers)
            if info.kind == AttentionKind.ATTENTION_KIND_CROSS
        ]
        if len(tensors) != 1:
            raise _broken(f"{len(tensors)} cross-attention tensors came, not 1")
        self._attentions.append(
            Attention(
                text=self._text,
                sentence_index=header.sentence_index,
                sentence_count=header.sentence_count,
                translation=read_translation(header.translation, header.model, header.model_digest),
                source_units=_read_units(header.source_units),
                target_units=_read_units(header.target_units),
                input_units=_read_units(header.input_units),
                weights=tensors[0],
                model=header.model,
                model_digest=header.model_digest,
            )
        )


def _read_tensor(info: TensorInfo, buffer: bytearray, header: AttentionHeader) -> AttentionTensor:
    """Checks a tensor against what its header promised."""
    expected = (len(info.layers), len(info.heads), len(header.target_units), len(header.source_units))
    if tuple(info.shape) != expected or tuple(info.axes) != ("layer", "head", "target", "source"):
        raise _broken(f"tensor {info.name} is {list(info.axes)} {list(info.shape)}, not {list(expected)}")
    values = array("f")
    if info.type != TensorType.TENSOR_TYPE_FLOAT32 or values.itemsize != 4:
        raise _broken(f"tensor {info.name} is not float32")
    if len(buffer) != info.size_bytes or len(buffer) != 4 * math.prod(expected):
        raise _broken(f"tensor {info.name} has {len(buffer)} of {info.size_bytes} bytes")
    values.frombytes(buffer)
    if sys.byteorder == "big":
        values.byteswap()  # the wire is little-endian
    return AttentionTensor(
        name=info.name,
        shape=expected,
        axes=tuple(info.axes),
        layers=tuple(info.layers),
        heads=tuple(info.heads),
        values=memoryview(values).toreadonly(),
    )


def _read_units(units: Sequence[WireUnit]) -> tuple[AttentionUnit, ...]:
    return tuple(AttentionUnit(unit.text, read_span(unit), unit.special) for unit in units)


def _index(axis: str, wanted: int, present: tuple[int, ...]) -> int:
    """Returns where a layer or head stands along its axis."""
    if wanted not in present:
        raise IndexError(f"{axis} {wanted}: there are {', '.join(map(str, present))}")
    return present.index(wanted)


def _broken(what: str) -> ServerError:
    return ServerError(f"the server sent a broken attention stream: {what}")
