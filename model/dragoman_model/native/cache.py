"""The caches that the kernels read: nothing is masked, and rows of one sentence share the columns that they have in common."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

import torch
from torch import Tensor

from dragoman_model.key_value_cache import KeyValueCache
from dragoman_model.native.values import long, longs, pointer


class NativeCache(KeyValueCache):
    """Keys and values that only the kernels read, which look at no column that a row doesn't use.

    Attributes:
        is_half: They are kept in half precision, and in float32 otherwise.
    """

    def __init__(
        self, library: ctypes.CDLL, num_layers: int, num_heads: int, head_width: int, *, is_half: bool
    ) -> None:
        super().__init__(
            num_layers,
            num_heads,
            head_width,
            dtype=torch.float16 if is_half else torch.float32,
            rounds=is_half,
        )
        self.is_half = is_half
        self._library = library

    def copy_rows(self, sources: Sequence[int], targets: Sequence[int]) -> None:
        """Overwrites rows ``targets`` with what rows ``sources`` held before the call."""
        if not set(sources).isdisjoint(targets):
            super().copy_rows(sources, targets)
            return
        self._copy_used(self._buffer, sources, self._buffer, targets)
        self._copy_lengths(sources, targets)

    def take(self, keys_values: Tensor, starts: Sequence[int], lengths: Sequence[int]) -> None:
        """Adds a row for each of some sentences.

        Args:
            keys_values: Of all positions, (P, L, 2, H, K).
            starts: The first position of each sentence.
            lengths: Its positions.
        """
        first = self.num_rows
        self.add_rows(len(lengths), max(lengths, default=0))
        self.lengths[first:] = lengths
        num_layers, _, rows, num_heads, columns, head_width = self._buffer.shape
        self._library.fill(
            pointer(self._buffer), long(num_layers), long(rows), long(num_heads), long(columns), long(head_width),
            long(self.is_half), long(first), longs(starts), longs(lengths), long(len(lengths)), pointer(keys_values),
        )  # fmt: skip

    def _move(self, buffer: Tensor, num_rows: int, num_columns: int) -> None:
        rows = range(num_rows)
        self._copy_used(self._buffer, rows, buffer, rows)

    def _copy_used(
        self, from_buffer: Tensor, sources: Sequence[int], to_buffer: Tensor, targets: Sequence[int]
    ) -> None:
        """Copies rows, (L, 2, rows, H, C, K), each as far as it is used."""
        num_layers, _, from_rows, num_heads, from_columns, head_width = from_buffer.shape
        _, _, to_rows, _, to_columns, _ = to_buffer.shape
        lengths = [self.lengths[source] for source in sources]
        self._library.copy_rows(
            pointer(from_buffer), long(from_rows), long(from_columns), pointer(to_buffer), long(to_rows), long(to_columns),
            long(num_layers), long(num_heads), long(head_width * from_buffer.element_size()),
            longs(sources), longs(targets), longs(lengths), long(len(lengths)),
        )  # fmt: skip

    def _new_buffer(self, shape: tuple[int, ...]) -> Tensor:
        return self._buffer.new_empty(shape)


class SharedColumns(NativeCache):
    """Self-attention keys and values of rows that branch off from one another.

    A column stays in the row that wrote it, and each row knows in which row of its sentence it finds each of its columns. So
    nothing is copied when a hypothesis goes on in several rows, and their common past is read once.
    """

    def __init__(
        self, library: ctypes.CDLL, num_layers: int, num_heads: int, head_width: int, *, is_half: bool
    ) -> None:
        super().__init__(library, num_layers, num_heads, head_width, is_half=is_half)
        self._holders = torch.zeros((0, 0), dtype=torch.int32)

    def holders(self) -> Tensor:
        """Returns which row of its sentence, from 0, holds each column, (rows, columns there is room for), int32.

        The kernels add each new column, which its own row holds.
        """
        return self._holders

    def branch(self, sources: Sequence[int], targets: Sequence[int]) -> None:
        """Has rows ``targets`` go on from what rows ``sources`` of the same sentences held before the call.

        All rows of a sentence are of one length.
        """
        self._copy_holders(sources, targets)

    def copy_rows(self, sources: Sequence[int], targets: Sequence[int]) -> None:
        """Overwrites rows ``targets`` with what rows ``sources`` held before the call: of whole sentences."""
        if sources:
            super().copy_rows(sources, targets)
            self._copy_holders(sources, targets)

    def append(self, other: KeyValueCache) -> None:
        """Takes the rows of ``other`` behind its own."""
        assert isinstance(other, SharedColumns)
        first = self.num_rows
        super().append(other)
        columns = other.num_columns
        self._holders[first : self.num_rows, :columns] = other._holders[: other.num_rows, :columns]

    def _copy_holders(self, sources: Sequence[int], targets: Sequence[int]) -> None:
        if set(sources).isdisjoint(targets):
            self._library.branch(
                pointer(self._holders), long(self._holders.size(1)), longs(sources), longs(targets),
                long(self.num_columns), long(len(sources)),
            )  # fmt: skip
            return
        from_rows, to_rows = torch.tensor([list(sources), list(targets)])
        self._holders.index_copy_(0, to_rows, self._holders.index_select(0, from_rows))

    def _resize(self, rows: int, columns: int) -> None:
        super()._resize(rows, columns)
        holders = self._holders.new_zeros((rows, columns))
        kept_rows, kept_columns = map(min, holders.shape, self._holders.shape)
        holders[:kept_rows, :kept_columns] = self._holders[:kept_rows, :kept_columns]
        self._holders = holders
