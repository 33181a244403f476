"""DumpAttention's stream of headers and chunks → attention."""

import math
import struct
import sys
from array import array
from collections.abc import Iterator, Sequence
from typing import TypeAlias

from dragoman.v1 import AttentionHeader, DumpAttentionResponse, TensorChunk, TensorInfo, TensorType
from dragoman.v1 import AttentionUnit as WireUnit
from dragoman_client.attention import Attention, AttentionTensor, AttentionUnit
from dragoman_client.errors import ServerError
from dragoman_client.responses import read_span, read_translation
from dragoman_client.selection import AttentionKind
from dragoman_client.wire_selection import WIRE_KINDS

_KINDS = {wire: kind for kind, wire in WIRE_KINDS.items()}
_AXES = {
    AttentionKind.CROSS: ("target", "source"),
    AttentionKind.ENCODER_SELF: ("query", "key"),
    AttentionKind.DECODER_SELF: ("target", "input"),
}
_ITEM_BYTES = {
    TensorType.TENSOR_TYPE_FLOAT32: 4,
    TensorType.TENSOR_TYPE_FLOAT16: 2,
    TensorType.TENSOR_TYPE_UINT8: 1,
    TensorType.TENSOR_TYPE_INT32: 4,
}

# A tensor's description and its bytes.
_Part: TypeAlias = tuple[TensorInfo, bytearray]


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
        tensors = tuple(_read_tensors(header, self._buffers))
        if not tensors:
            raise _broken("no tensor came")
        self._attentions.append(
            Attention(
                text=self._text,
                sentence_index=header.sentence_index,
                sentence_count=header.sentence_count,
                translation=read_translation(header.translation, header.model, header.model_digest),
                source_units=_read_units(header.source_units),
                target_units=_read_units(header.target_units),
                input_units=_read_units(header.input_units),
                tensors=tensors,
                model=header.model,
                model_digest=header.model_digest,
            )
        )


def _read_tensors(header: AttentionHeader, buffers: Sequence[bytearray]) -> Iterator[AttentionTensor]:
    parts = iter(zip(header.tensors, buffers, strict=True))
    for info, buffer in parts:
        if info.type != TensorType.TENSOR_TYPE_INT32:
            yield _read_tensor((info, buffer), None, header)
            continue
        weights = next(parts, None)
        if weights is None or list(weights[0].shape) != list(info.shape):
            raise _broken(f"tensor {info.name} holds indices without their weights")
        yield _read_tensor(weights, (info, buffer), header)


def _read_tensor(weights: _Part, indices: _Part | None, header: AttentionHeader) -> AttentionTensor:
    """Checks a tensor against what its header promised."""
    info, _ = weights
    kind = _KINDS.get(info.kind)
    if kind is None:
        raise _broken(f"tensor {info.name} is of kind {info.kind}, which this client does not know")
    row_axis, column_axis = _AXES[kind]
    num_rows = len(header.source_units if kind is AttentionKind.ENCODER_SELF else header.target_units)
    num_columns = len(header.input_units if kind is AttentionKind.DECODER_SELF else header.source_units)
    sizes = {
        "layer": len(info.layers),
        "head": len(info.heads),
        row_axis: num_rows,
        column_axis: num_columns,
        "rank": min(info.shape[-1], num_columns) if info.shape else 0,
    }
    leading = [axis for axis in info.axes if axis in ("layer", "head")]
    axes = (*leading, row_axis, column_axis if indices is None else "rank")
    expected = [sizes[axis] for axis in axes]
    if list(info.axes) != list(axes) or list(info.shape) != expected:
        raise _broken(
            f"tensor {info.name} is {list(info.axes)} {list(info.shape)}, not {list(axes)} {expected}"
        )
    return AttentionTensor(
        kind=kind,
        shape=tuple(info.shape),
        axes=axes,
        layers=tuple(info.layers),
        heads=tuple(info.heads),
        values=_read_weights(*weights),
        indices=None if indices is None else _read_indices(*indices, num_columns),
        num_columns=num_columns,
    )


def _read_weights(info: TensorInfo, buffer: bytearray) -> memoryview:
    """Returns weights as float32, whatever they travelled as."""
    _check_size(info, buffer)
    if info.type == TensorType.TENSOR_TYPE_FLOAT16:
        values = array("f", struct.unpack(f"<{len(buffer) // 2}e", buffer))
    elif info.type == TensorType.TENSOR_TYPE_UINT8:
        values = array("f", (byte / 255 for byte in buffer))
    elif info.type == TensorType.TENSOR_TYPE_FLOAT32:
        values = _numbers("f", buffer)
    else:
        raise _broken(f"tensor {info.name} holds no weights")
    return memoryview(values).toreadonly()


def _read_indices(info: TensorInfo, buffer: bytearray, num_columns: int) -> memoryview:
    _check_size(info, buffer)
    values = _numbers("i", buffer)
    if any(not 0 <= index < num_columns for index in values):
        raise _broken(f"tensor {info.name} has an index beyond {num_columns} columns")
    return memoryview(values).toreadonly()


def _check_size(info: TensorInfo, buffer: bytearray) -> None:
    item_bytes = _ITEM_BYTES.get(info.type)
    if item_bytes is None:
        raise _broken(f"tensor {info.name} is of type {info.type}, which this client does not know")
    if len(buffer) != info.size_bytes or len(buffer) != item_bytes * math.prod(info.shape):
        raise _broken(f"tensor {info.name} has {len(buffer)} of {info.size_bytes} bytes")


def _numbers(code: str, buffer: bytearray) -> "array[float] | array[int]":
    """Returns four-byte numbers, which travel little-endian."""
    values = array(code)
    assert values.itemsize == 4
    values.frombytes(buffer)
    if sys.byteorder == "big":
        values.byteswap()
    return values


def _read_units(units: Sequence[WireUnit]) -> tuple[AttentionUnit, ...]:
    return tuple(AttentionUnit(unit.text, read_span(unit), unit.special) for unit in units)


def _broken(what: str) -> ServerError:
    return ServerError(f"the server sent a broken attention stream: {what}")
