"""What the decoder keeps between steps, so that a step costs one position.

Shapes: N sentences, W rows of each sentence, R rows (N × W).
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from dragoman_model.errors import CacheFullError
from dragoman_model.key_value_cache import KeyValueCache


class DecoderCache:
    """What is kept of sentences with W rows each; the rows of a sentence stand together.

    Sentences join (`concatenate`) and leave (`select`) between steps. Self-attention keys and values gain one column a
    step, written at each row's own length, since rows may have come a different number of steps; of a decoder with a window only
    the last columns are kept.

    Attributes:
        sentences: Cross-attention keys and values, once for each sentence however many rows translate it.
        rows: Self-attention keys and values of each row.
        width: Rows W of each sentence.
        max_length: Steps that a row may take at most.
    """

    def __init__(
        self, sentences: KeyValueCache, rows: KeyValueCache, max_length: int, *, width: int = 1
    ) -> None:
        self.sentences = sentences
        self.rows = rows
        self.width = width
        self.max_length = max_length

    @property
    def num_rows(self) -> int:
        """Rows R held now."""
        return self.rows.num_rows

    @property
    def size_bytes(self) -> int:
        """Memory that its keys and values take, used or not."""
        return self.sentences.size_bytes + self.rows.size_bytes

    @property
    def device(self) -> torch.device:
        """Where it is."""
        return self.rows.mask().device

    def make_room(self) -> int:
        """Makes room for one more step of every row and returns how many steps the longest has behind it.

        Raises:
            CacheFullError: A row already holds ``max_length`` steps.
        """
        longest = max(self.rows.lengths)
        if longest >= self.max_length:
            raise CacheFullError(f"the cache holds {self.max_length} steps already, its limit")
        self.rows.make_room(longest + 1)
        return longest

    def begin_step(self) -> tuple[Tensor, Tensor] | int:
        """Makes room for one more step of every row and returns where it goes, as `KeyValueCache.write` takes it.

        Raises:
            CacheFullError: A row already holds ``max_length`` steps.
        """
        self.make_room()
        places = self.rows.next_places()
        self.rows.open_columns(places)
        return places

    def end_step(self) -> None:
        """Counts the step whose keys and values every layer has written."""
        self.rows.lengths = [length + 1 for length in self.rows.lengths]

    def branch(self, sources: Sequence[int], targets: Sequence[int]) -> None:
        """Has rows ``targets`` go on from what rows ``sources`` of the same sentences held before the call."""
        self.rows.branch(sources, targets)

    def select(self, sentences: Sequence[int]) -> None:
        """Keeps only ``sentences``, indices in the new order, with all their rows."""
        self.sentences.select(sentences)
        self.rows.select([sentence * self.width + row for sentence in sentences for row in range(self.width)])

    def concatenate(self, other: DecoderCache) -> None:
        """Takes the sentences of ``other``, of the same width, behind its own."""
        assert other.width == self.width
        self.sentences.append(other.sentences)
        self.rows.append(other.rows)


def least_moves(kept: Sequence[int]) -> list[int]:
    """Returns which slots are kept, in the order that moves the fewest: the last fill the gaps."""
    held = set(kept)
    behind = [slot for slot in kept if slot >= len(kept)]
    return [slot if slot in held else behind.pop() for slot in range(len(kept))]
