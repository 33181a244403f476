"""Keys and values that are kept between steps, in memory that has room for more rows and columns.

Rows stand in slots of buffers. A row that joins takes the next slot, the last rows move into the slots of those that leave, and
nothing else is copied. What a step reads is a view.

Shapes: R rows, C columns, H heads, K head width, L layers. Columns are steps or source positions.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence

import torch
from torch import Tensor

from dragoman_model.quantization import in_half_precision

# Columns come in multiples of this. Attention over them then adds up in the same order however many of them are padding,
# so that a row's numbers don't depend on its neighbours' lengths, and the kernels meet no odd ends.
COLUMN_BLOCK = 16
# PyTorch multiplies matrices in one of two ways, and the smaller one adds up in another order: below so many products of numbers in a
# row and head. Blocks of a narrow head are longer, so that all of its products are of one kind, however many columns.
_SMALL_PRODUCT = 400
# A buffer that was made for many more or much longer rows than are left is kept up to this size, since to make it anew takes as
# long as a step: a batch of usual sentences fits. There may be one for each kind of search.
KEPT_BYTES = 2**25


class KeyValueCache:
    """Keys and values of rows that each use as many columns as they need.

    With a window a row uses no more columns than that: it goes round, and each new one takes the place of the oldest.

    Beside int8 they are rounded to half precision: the kernels keep them so, and what else computes is to give the same.

    Attributes:
        lengths: Columns that each row has written, known without asking the device.
        window: Columns that a row uses at most; None is no limit.
    """

    def __init__(
        self,
        num_layers: int,
        num_heads: int,
        head_width: int,
        *,
        window: int | None = None,
        device: torch.device | None = None,
        dtype: torch.dtype = torch.float32,
        rounds: bool = False,
    ) -> None:
        """Starts without rows."""
        self._rounds = rounds
        self.lengths: list[int] = []
        self.window = window
        # Zeros and never what memory held before: a column that is masked counts 0 times its value, which must be a number.
        block = max(COLUMN_BLOCK, _rounded_up(-(-_SMALL_PRODUCT // head_width), COLUMN_BLOCK))
        self._column_block = block
        self._buffer = torch.zeros(
            (num_layers, 2, 0, num_heads, block, head_width), device=device, dtype=dtype
        )
        # In float32 at least, as the scores are, however small the weights: 0 where a row has a column, elsewhere the least number.
        # That hides a column as −∞ would, but leaves numbers to a row that has none, which fills up a `static_step`.
        self._mask = torch.empty((0, block), device=device, dtype=torch.promote_types(dtype, torch.float32))
        self._masked = torch.finfo(self._mask.dtype).min
        self._kept_bytes = KEPT_BYTES
        self._views: tuple[list[tuple[Tensor, Tensor]], Tensor] | None = None
        self._num_columns = block

    @property
    def num_rows(self) -> int:
        """Rows held now."""
        return len(self.lengths)

    @property
    def size_bytes(self) -> int:
        """Memory that keys and values take, used or not."""
        return self._buffer.numel() * self._buffer.element_size()

    @property
    def num_columns(self) -> int:
        """Columns that a step reads, padding included."""
        return self._num_columns

    def layer(self, index: int) -> tuple[Tensor, Tensor]:
        """Returns a layer's keys, transposed for the product, (R × H, K, C), and its values, (R × H, C, K); views."""
        return self._current_views()[0][index]

    def mask(self) -> Tensor:
        """Returns what is added to the scores of each row, 0 or the least number, (R, 1, 1, C); a view."""
        return self._current_views()[1]

    @property
    def room(self) -> tuple[int, int]:
        """Rows and columns that there is memory for."""
        rows, columns = self._mask.shape
        return rows, columns

    def reserve(self, rows: int, columns: int, kept_bytes: int) -> None:
        """Makes room ahead and keeps it up to a size, for whoever needs the memory to stay in its place."""
        self._kept_bytes = kept_bytes
        rows_there, columns_there = self.room
        self._resize(max(rows, rows_there), max(self._columns_for(columns), columns_there))

    def fixed(self, rows: int, columns: int) -> KeyValueCache:
        """Returns the first rows and columns of the memory as it is now, as a cache whose shape doesn't change.

        It sees what is written through either, until this one moves to other memory (`shares_memory`).
        """
        fixed = copy.copy(self)
        fixed.lengths, fixed._num_columns, fixed._views = [0] * rows, columns, None
        return fixed

    def shares_memory(self, other: KeyValueCache) -> bool:
        """Returns whether both are in the same memory."""
        return self._buffer is other._buffer

    def memory(self) -> tuple[int, int, int, int]:
        """Returns the address of the keys and values, (L, 2, rows, H, columns, K), a layer's bytes, and rows and columns there."""
        rows, columns = self._mask.shape
        return self._buffer.data_ptr(), self._buffer.stride(0) * self._buffer.element_size(), rows, columns

    def add_rows(self, count: int, columns: int) -> None:
        """Adds rows that use no column yet, and makes room for so many columns."""
        first = self.num_rows
        self.lengths += [0] * count
        self.make_room(columns)
        self._mask[first : self.num_rows] = self._masked
        self._views = None

    def make_room(self, columns: int) -> None:
        """Has every step read so many columns at least, as far as there is no window, rounded up to whole blocks."""
        self._num_columns = max(self._columns_for(columns), self._num_columns)
        rows_there, columns_there = self._mask.shape
        if self.num_rows <= rows_there and self._num_columns <= columns_there:
            return
        # Twice what was there, so that growing by one at a time copies little; the first rows come as they are.
        rows = rows_there if self.num_rows <= rows_there else max(self.num_rows, 2 * rows_there)
        columns = columns_there
        if self._num_columns > columns_there:
            columns = max(self._num_columns, self._columns_for(columns_there * 3 // 2))
        self._resize(rows, columns)

    def next_places(self) -> tuple[Tensor, Tensor] | int:
        """Returns where the next column of each row goes, as `write` takes it."""
        columns = self.lengths if self.window is None else [length % self.window for length in self.lengths]
        if min(columns) == max(columns):
            return columns[0]
        device = self._buffer.device
        return torch.arange(len(columns), device=device), torch.tensor(columns, device=device)

    def fill(self, rows: Tensor, columns: Tensor, keys_values: Tensor) -> None:
        """Writes keys and values of all layers at (row, column) pairs, P of them, and lets the rows attend to them.

        Args:
            rows: (P,).
            columns: (P,).
            keys_values: (P, L, 2, H, K).
        """
        self._buffer[:, :, rows, :, columns] = self._as_kept(keys_values)
        self._mask[rows, columns] = 0.0

    def write(self, layer: int, places: tuple[Tensor, Tensor] | int, keys_values: Tensor) -> None:
        """Writes one new column of each row.

        Args:
            layer: Decoder layer, from 0.
            places: Where: (rows, columns), or one column for all.
            keys_values: (R, 2, H, K).
        """
        keys_values = self._as_kept(keys_values)
        if isinstance(places, int):  # a plain copy is several times as fast as one by index
            self._buffer[layer, :, : self.num_rows, :, places] = keys_values.transpose(0, 1)
        else:
            rows, columns = places
            self._buffer[layer][:, rows, :, columns] = keys_values

    def open_columns(self, places: tuple[Tensor, Tensor] | int) -> None:
        """Lets each row attend to one new column: ``places`` as in `write`."""
        if isinstance(places, int):
            self._mask[: self.num_rows, places] = 0.0
        else:
            # By a number and not a tensor, which would have to be copied to the device.
            self._mask[: self.num_rows].scatter_(1, places[1][:, None], 0.0)

    def append(self, other: KeyValueCache) -> None:
        """Takes the rows of ``other`` behind its own."""
        first, columns = self.num_rows, other._num_columns
        self.add_rows(other.num_rows, columns)
        self.lengths[first:] = other.lengths
        self._buffer[:, :, first : self.num_rows, :, :columns] = other._buffer[
            :, :, : other.num_rows, :, :columns
        ]
        self._mask[first : self.num_rows, :columns] = other._mask[: other.num_rows, :columns]

    def copy_rows(self, sources: Sequence[int], targets: Sequence[int]) -> None:
        """Overwrites rows ``targets`` with what rows ``sources`` held before the call."""
        if not sources:
            return
        device = self._buffer.device
        from_rows, to_rows = torch.tensor([list(sources), list(targets)], device=device)
        held = self._buffer[..., : self._num_columns, :]
        held.index_copy_(2, to_rows, held.index_select(2, from_rows))
        self._mask.index_copy_(0, to_rows, self._mask.index_select(0, from_rows))
        self._copy_lengths(sources, targets)

    def branch(self, sources: Sequence[int], targets: Sequence[int]) -> None:
        """Has rows ``targets`` go on from what rows ``sources`` of the same sentences held before the call."""
        self.copy_rows(sources, targets)

    def select(self, rows: Sequence[int]) -> None:
        """Keeps only ``rows``, in the new order; each that stays in its slot costs nothing."""
        if len(rows) > self.num_rows:
            self.add_rows(len(rows) - self.num_rows, 0)
        moves = [(source, target) for target, source in enumerate(rows) if source != target]
        self.copy_rows([source for source, _ in moves], [target for _, target in moves])
        del self.lengths[len(rows) :]
        self._num_columns = self._columns_for(max(self.lengths, default=0))
        rows_there, columns_there = self._mask.shape
        rows_left = rows_there if rows_there < 4 * self.num_rows else 2 * self.num_rows
        columns_left = columns_there if columns_there < 4 * self._num_columns else 2 * self._num_columns
        if (rows_left, columns_left) != (rows_there, columns_there) and self.size_bytes > self._kept_bytes:
            self._resize(rows_left, columns_left)
        self._views = None

    def _as_kept(self, keys_values: Tensor) -> Tensor:
        """Returns numbers as they are kept: what is too large for half precision becomes its largest number."""
        if self._rounds:
            keys_values = in_half_precision(keys_values)
        return keys_values.to(self._buffer.dtype)

    def _copy_lengths(self, sources: Sequence[int], targets: Sequence[int]) -> None:
        moved = [self.lengths[source] for source in sources]
        for target, length in zip(targets, moved, strict=True):
            self.lengths[target] = length

    def _columns_for(self, length: int) -> int:
        columns = length if self.window is None else min(length, self.window)
        return max(_rounded_up(columns, self._column_block), self._column_block)

    def _resize(self, rows: int, columns: int) -> None:
        num_layers, _, old_rows, num_heads, old_columns, head_width = self._buffer.shape
        buffer = self._new_buffer((num_layers, 2, rows, num_heads, columns, head_width))
        mask = self._mask.new_full((rows, columns), self._masked)
        # What is used and no more: the rest has never been touched, and costs nothing as long as it isn't.
        kept_rows = min(rows, old_rows, self.num_rows)
        kept_columns = min(columns, old_columns, self._columns_for(max(self.lengths, default=0)))
        self._move(buffer, kept_rows, kept_columns)
        mask[:kept_rows, :kept_columns] = self._mask[:kept_rows, :kept_columns]
        self._buffer, self._mask, self._views = buffer, mask, None

    def _move(self, buffer: Tensor, num_rows: int, num_columns: int) -> None:
        """Copies what is used into another buffer."""
        buffer[:, :, :num_rows, :, :num_columns] = self._buffer[:, :, :num_rows, :, :num_columns]

    def _new_buffer(self, shape: tuple[int, ...]) -> Tensor:
        return self._buffer.new_zeros(shape)

    def _current_views(self) -> tuple[list[tuple[Tensor, Tensor]], Tensor]:
        if self._views is None or self._views[1].size(-1) != self._num_columns:
            held = self._buffer[:, :, : self.num_rows, :, : self._num_columns]  # (L, 2, R, H, C, K)
            layers = [(keys.transpose(1, 2), values) for keys, values in held.flatten(2, 3)]
            self._views = layers, self._mask[: self.num_rows, None, None, : self._num_columns]
        return self._views


def _rounded_up(number: int, multiple: int) -> int:
    return -(-number // multiple) * multiple
