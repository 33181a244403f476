"""Attention as numpy's archive of arrays (``.npz``), written without numpy.

The format is a zip of ``.npy`` files, each a line that describes an array and then its bytes (NumPy Enhancement Proposal 1).
"""

import io
import struct
import sys
import zipfile
from array import array
from collections.abc import Iterator, Sequence
from typing import Any

from dragoman_client.attention import Attention, AttentionTensor, AttentionUnit

_MAGIC = b"\x93NUMPY\x01\x00"
_ALIGNMENT = 64  # of an array's first byte, so that it can be mapped into memory
_NO_TEXT = -1  # span of a special token
_EPOCH = (1980, 1, 1, 0, 0, 0)  # the earliest a zip knows: equal numbers make equal files


def pack_archive(attentions: Sequence[Attention]) -> bytes:
    """Returns sentences' attention as the bytes of an ``.npz``, which ``numpy.load`` reads.

    Names of arrays start with the sentence's number: ``0/cross``, ``0/cross.layers``, ``0/source_units``, ….

    Args:
        attentions: The sentences, in their order.
    """
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for attention in attentions:
            for name, content in _arrays(attention):
                entry = zipfile.ZipInfo(f"{attention.sentence_index}/{name}.npy", _EPOCH)
                entry.compress_type = zipfile.ZIP_DEFLATED
                archive.writestr(entry, content)
    return buffer.getvalue()


def _arrays(attention: Attention) -> Iterator[tuple[str, bytes]]:
    """Yields names and ``.npy`` files of all that is known of a sentence."""
    yield "text", _strings([attention.text], ())
    yield "translation", _strings([attention.translation.text], ())
    yield "model", _strings([attention.model], ())
    for name, units in (
        ("source", attention.source_units),
        ("target", attention.target_units),
        ("input", attention.input_units),
    ):
        yield f"{name}_units", _strings([unit.text for unit in units], (len(units),))
        yield f"{name}_spans", _integers(_spans(units), (len(units), 2))
    for tensor in attention.tensors:
        yield from _tensor_arrays(tensor)


def _tensor_arrays(tensor: AttentionTensor) -> Iterator[tuple[str, bytes]]:
    name = tensor.kind.value.replace("-", "_")
    yield name, _array("f4", tensor.shape, _little_endian(array("f", tensor.values)))
    if tensor.indices is not None:
        yield f"{name}.indices", _integers(tensor.indices, tensor.shape)
    yield f"{name}.layers", _integers(tensor.layers, (len(tensor.layers),))
    yield f"{name}.heads", _integers(tensor.heads, (len(tensor.heads),))


def _spans(units: Sequence[AttentionUnit]) -> list[int]:
    return [
        bound
        for unit in units
        for bound in ((unit.span.start, unit.span.end) if unit.span else (_NO_TEXT, _NO_TEXT))
    ]


def _integers(values: Sequence[int] | memoryview, shape: tuple[int, ...]) -> bytes:
    return _array("i4", shape, _little_endian(array("i", values)))


def _strings(texts: Sequence[str], shape: tuple[int, ...]) -> bytes:
    """Returns texts as fixed-width UTF-32, each padded with NUL."""
    width = max(map(len, texts), default=0) or 1
    return _array(f"U{width}", shape, "".join(text.ljust(width, "\0") for text in texts).encode("utf-32-le"))


def _array(kind: str, shape: tuple[int, ...], content: bytes) -> bytes:
    """Returns a ``.npy`` file of little-endian, row-major content."""
    header = f"{{'descr': '<{kind}', 'fortran_order': False, 'shape': {shape!r}, }}".encode("ascii")
    before = len(_MAGIC) + 2  # the header's length takes two bytes
    padding = -(before + len(header) + 1) % _ALIGNMENT
    header += b" " * padding + b"\n"
    return _MAGIC + struct.pack("<H", len(header)) + header + content


def _little_endian(values: "array[Any]") -> bytes:
    if sys.byteorder == "big":
        values.byteswap()
    return values.tobytes()
