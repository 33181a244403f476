"""Values as the kernels take them."""

from __future__ import annotations

import ctypes
from array import array
from collections.abc import Sequence

from torch import Tensor

Pointer = ctypes.c_void_p
long = ctypes.c_int64


def pointer(tensor: Tensor) -> Pointer:
    """Returns where a tensor's numbers stand, one behind the other."""
    return Pointer(tensor.data_ptr())


def longs(values: Sequence[int]) -> ctypes.Array[ctypes.c_int64]:
    """Returns numbers as an array."""
    # By way of Python's own, which takes them at once; ctypes takes them one by one.
    return (long * len(values)).from_buffer(array("q", values))
