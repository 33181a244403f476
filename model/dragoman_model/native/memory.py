"""Memory for the weights that a step reads from the first to the last."""

from __future__ import annotations

import contextlib
import math
import mmap

import torch
from torch import Tensor

_LINE_BYTES = 64
_LARGE_PAGE_BYTES = 2**21
_BLOCK_BYTES = 2**25  # of addresses; what is not written to takes no memory


class WeightMemory:
    """Hands out room for tensors, one behind the other, in large pages where the system has them.

    A step of one row does little but read weights, and in pages of 4 kB the processor looks up an address for every 64 lines.
    """

    def __init__(self) -> None:
        self._block: mmap.mmap | None = None
        self._used = 0

    def empty(self, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        """Returns a tensor that holds what it may, on a cache line of its own; its memory lives as long as it does."""
        count = math.prod(shape)
        size = count * dtype.itemsize
        if self._block is None or self._used + size > len(self._block):
            num_bytes = max(_BLOCK_BYTES, size + _LARGE_PAGE_BYTES)
            # Private: what could be shared gets no large pages.
            self._block = mmap.mmap(-1, num_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
            self._used = 0
            with contextlib.suppress(AttributeError, OSError):  # not Linux, or a kernel without them
                self._block.madvise(mmap.MADV_HUGEPAGE)
        tensor = torch.frombuffer(self._block, dtype=dtype, count=count, offset=self._used)
        self._used += -(-size // _LINE_BYTES) * _LINE_BYTES
        return tensor.view(shape)
