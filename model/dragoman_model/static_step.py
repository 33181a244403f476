"""Decoder steps in few fixed shapes, each recorded once and then replayed.

A step runs over more rows and columns than there are, rounded up, so that few shapes come up. What differs from step to step
lies in tensors of their own: the tokens that are read and how far each row is. Everything else is the same from one step of a
shape to the next, so that a recording of it (`cuda_graphs`) serves them all.

Shapes: N sentences, W rows of each, R rows (N × W), C columns, V vocabulary.
"""

from __future__ import annotations

import itertools
import logging
import weakref
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from dragoman_model.cache import DecoderCache
from dragoman_model.cuda_graphs import Recorder, Replay
from dragoman_model.inference import InferenceModel
from dragoman_model.key_value_cache import COLUMN_BLOCK
from dragoman_model.transformer import Transformer

_log = logging.getLogger(__name__)

# Shapes that are kept recorded. A cache of sentences up to 64 tokens and 256 rows comes in some 30 of them.
MAX_RECORDINGS = 256
# Room that a cache has from the start, since one that grows moves, and its recordings are lost.
FIRST_ROWS = 64
FIRST_COLUMNS = 64
# For the same reason a cache gives no memory back below this.
KEPT_BYTES = 2**30


class Bucket(NamedTuple):
    """The shape of a step.

    Attributes:
        sentences: N, of a power of two the next that there is room for.
        columns: C of the rows, likewise, in blocks.
        source_columns: C of the sentences, likewise. Both are rounded up from the greater: attending to some more masked
            columns is cheap, another shape to be recorded isn't.
    """

    sentences: int
    columns: int
    source_columns: int


def bucket_of(cache: DecoderCache) -> Bucket:
    """Returns the least shape that a cache's next step fits in; it has the room for that."""
    rows_room, columns_room = cache.rows.room
    sentences_room, source_room = cache.sentences.room
    sentences = _next_power(cache.sentences.num_rows)
    columns = COLUMN_BLOCK * _next_power(
        -(-max(cache.rows.num_columns, cache.sentences.num_columns) // COLUMN_BLOCK)
    )
    return Bucket(
        min(sentences, sentences_room, rows_room // cache.width),
        min(columns, columns_room),
        min(columns, source_room),
    )


class StaticStep:
    """A cache's memory as it was when this was made, with what else its steps read and write.

    Attributes:
        number: Its own, unlike that of any other.
        token_ids: The token that each row reads, (rows there is room for,).
        lengths: Steps that each row has behind it, likewise.
        rows: 0, 1, …, likewise.
        logits: Of each row, (rows there is room for, V).
    """

    _numbers = itertools.count()

    def __init__(self, cache: DecoderCache, vocab_size: int, dtype: torch.dtype) -> None:
        self.number = next(self._numbers)
        device, (rows, _) = cache.device, cache.rows.room
        self.token_ids = torch.zeros(rows, dtype=torch.long, device=device)
        self.lengths = torch.zeros(rows, dtype=torch.long, device=device)
        self.rows = torch.arange(rows, device=device)
        self.logits = torch.zeros((rows, vocab_size), dtype=dtype, device=device)
        self._cache = self._cut(cache, *cache.rows.room, *cache.sentences.room)

    def fits(self, cache: DecoderCache) -> bool:
        """Returns whether a cache is still where it was."""
        held = self._cache
        return held.rows.shares_memory(cache.rows) and held.sentences.shares_memory(cache.sentences)

    def cache(self, bucket: Bucket) -> DecoderCache:
        """Returns the part of the cache that a step of this shape works in."""
        rows = bucket.sentences * self._cache.width
        return self._cut(self._cache, rows, bucket.columns, bucket.sentences, bucket.source_columns)

    def take(self, token_ids: Tensor, cache: DecoderCache, bucket: Bucket) -> None:
        """Takes what a step reads: the tokens, and how far the rows are; those that are only there to fill up stand at step 0.

        What these write is in no row's way: one that joins in their place is cleared (`KeyValueCache.add_rows`).
        """
        num_rows, device = cache.num_rows, self.lengths.device
        self.token_ids[:num_rows] = token_ids
        lengths = cache.rows.lengths + [0] * (bucket.sentences * cache.width - num_rows)
        # Pinned, and of this step alone, so that nobody has to wait until the device has read it.
        held = torch.tensor(lengths, pin_memory=device.type == "cuda")
        self.lengths[: len(lengths)].copy_(held, non_blocking=True)

    @staticmethod
    def _cut(
        cache: DecoderCache, rows: int, columns: int, sentences: int, source_columns: int
    ) -> DecoderCache:
        return DecoderCache(
            cache.sentences.fixed(sentences, source_columns),
            cache.rows.fixed(rows, columns),
            cache.max_length,
            width=cache.width,
        )


class StaticModel(InferenceModel):
    """Takes decoder steps by replaying what was recorded; where that can't be, its steps are an `InferenceModel`'s.

    The first step in a shape records it. Each cache has recordings of its own: of several in one step each is replayed, so that
    their combinations needn't recur. That the weights are read once for each then costs less than launching would.
    """

    spare_bytes = KEPT_BYTES

    def __init__(self, transformer: Transformer, recorder: Recorder) -> None:
        """Takes a model, and tries whether its steps can be recorded."""
        super().__init__(transformer)
        self._recorder: Recorder | None = recorder
        self._static_steps: weakref.WeakKeyDictionary[DecoderCache, StaticStep] = weakref.WeakKeyDictionary()
        self._replays: dict[tuple[int, Bucket], Replay] = {}
        self._try_out()

    @property
    def kernels(self) -> str:
        """What computes: "PyTorch", and "CUDA graphs" as long as there are any."""
        return "PyTorch, CUDA graphs" if self._recorder else "PyTorch"

    def empty_cache(self, width: int = 1) -> DecoderCache:
        """Returns a cache without rows for sentences with ``width`` rows each."""
        cache = super().empty_cache(width)
        if self._recorder:
            sentences = max(FIRST_ROWS // width, 1)
            cache.rows.reserve(sentences * width, FIRST_COLUMNS, KEPT_BYTES)
            cache.sentences.reserve(sentences, FIRST_COLUMNS, KEPT_BYTES)
        return cache

    def step(self, token_ids: Tensor, *caches: DecoderCache) -> Tensor:
        """Returns the logits of each row's next token, (R, V), valid until the next step, and counts it in the caches."""
        if self._recorder:
            for cache in caches:
                cache.make_room()
            try:
                logits = self._replay(self._recorder, token_ids, caches)
            except RuntimeError as error:
                self._give_up(str(error))
            else:
                for cache in caches:
                    cache.end_step()
                return logits
        # After a replay that failed, too: until it is counted a step can be taken again.
        return super().step(token_ids, *caches)

    def _replay(self, recorder: Recorder, token_ids: Tensor, caches: Sequence[DecoderCache]) -> Tensor:
        steps = [(cache, self._static_step(cache), bucket_of(cache)) for cache in caches]
        parts = token_ids.split([cache.num_rows for cache in caches])
        for part, (cache, step, bucket) in zip(parts, steps, strict=True):
            step.take(part, cache, bucket)
        for _, step, bucket in steps:
            replay = self._replays.get((step.number, bucket))
            if replay:
                replay()
            else:
                self._record(recorder, step, bucket)
        logits = [step.logits[: cache.num_rows] for cache, step, _ in steps]
        return logits[0] if len(logits) == 1 else torch.cat(logits)

    def _record(self, recorder: Recorder, step: StaticStep, bucket: Bucket) -> None:
        """Takes a step in a shape that hasn't come up yet, and records it."""
        if len(self._replays) >= MAX_RECORDINGS:
            self._forget(recorder)  # all of them: a recorder can't forget one
        cache = step.cache(bucket)
        self._replays[step.number, bucket] = recorder.record(lambda: self._compute(step, cache))

    def _compute(self, step: StaticStep, cache: DecoderCache) -> None:
        """Does what of a step the device does: here is nothing but tensors, and their shapes depend on the cache's alone."""
        num_rows, window = cache.num_rows, cache.rows.window
        lengths = step.lengths[:num_rows]
        places = step.rows[:num_rows], lengths if window is None else lengths % window
        cache.rows.open_columns(places)
        step.logits[:num_rows] = self._decode(
            step.token_ids[:num_rows],
            self._target_positions[lengths],
            [cache],
            [places],
            self._turns_at(lengths) if self._is_rotary else None,
            [self._offsets_from(lengths, cache.rows)] if self._is_relative else None,
        )

    def _static_step(self, cache: DecoderCache) -> StaticStep:
        step = self._static_steps.get(cache)
        if step is None or not step.fits(cache):
            step = StaticStep(cache, self.config.target_vocab_size, self._dtype)
            self._static_steps[cache] = step
        return step

    @torch.inference_mode()
    def _try_out(self) -> None:
        """Takes a sentence's first steps both ways, so that what can't be recorded, or goes wrong, is known from the start."""
        config = self.config
        token_ids = torch.tensor([config.decoder_start_id], device=self.device)
        encoded = self.encode([[config.eos_id]])
        caches = [self.start(encoded, [0]) for _ in range(2)]
        for _ in range(min(2, config.max_target_length)):  # the second is the first to be replayed
            replayed, expected = self.step(token_ids, caches[0]), super().step(token_ids, caches[1])
        if self._recorder:
            # In half precision both round, and in shapes that differ not alike.
            difference, greatest = (replayed - expected).abs().max().item(), expected.abs().max().item()
            if difference <= 0.05 * greatest:
                self._forget(self._recorder)
            else:
                self._give_up(f"logits are off by {difference:.3g}, of {greatest:.3g}")

    def _give_up(self, reason: str) -> None:
        _log.warning("CUDA graphs can't be had here; steps launch their kernels one by one: %s", reason)
        recorder, self._recorder = self._recorder, None
        self._static_steps.clear()
        if recorder:
            self._forget(recorder)

    def _forget(self, recorder: Recorder) -> None:
        self._replays.clear()
        recorder.forget()


def _next_power(number: int) -> int:
    return 1 << max(number - 1, 0).bit_length()
