"""The Transformer as it serves: the same weights laid out for generating, in flat functions.

The modules of `transformer.py` are for training and for looking into; here layers are the maps of `inference_layers.py`, sources
are packed without padding (`source_encoding.py`), and a step costs as few calls as we know to make it.

Shapes: D width, V vocabulary, H heads, K head width. In a step R rows are N sentences of W rows each, C columns of the cache; one
position a row.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from typing import cast

import torch
from torch import Tensor

from dragoman_model.cache import DecoderCache
from dragoman_model.inference_layers import Scores, decoder_maps, norm_of
from dragoman_model.inference_stack import Stack, joined, parted
from dragoman_model.key_value_cache import KeyValueCache
from dragoman_model.layers import DecoderLayer
from dragoman_model.linear import output_map
from dragoman_model.positions import rotation
from dragoman_model.predictions import Expansion, Predictions
from dragoman_model.search import log_probabilities
from dragoman_model.source_encoding import EncodedSources, SourceEncoder
from dragoman_model.transformer import Transformer


class InferenceModel(Stack):
    """Encodes sources and takes decoder steps, with a `Transformer`'s weights as they are when it is made.

    Attributes:
        spare_bytes: Memory that caches without sentences may keep for the next, beside that of the last one used.
    """

    spare_bytes = 2**26

    def __init__(self, transformer: Transformer) -> None:
        super().__init__(transformer)
        config = transformer.config
        self._is_int8 = transformer.int8_output is not None
        self._softmax_dtype = torch.promote_types(self._dtype, torch.float32)
        self._positions = transformer.positions
        self._target_positions = transformer.target_positions(config.max_target_length).detach()
        self._is_relative = config.positions == "relative"
        self._target_embedding = transformer.target_embedding.weight.detach()
        self._lay_out(transformer)

    def _lay_out(self, transformer: Transformer) -> None:
        """Makes the layers' maps of their weights."""
        self._source_encoder = SourceEncoder(transformer)
        self._decoder = [
            decoder_maps(layer, self._scale) for layer in cast(Iterable[DecoderLayer], transformer.decoder)
        ]
        self._decoder_norm = norm_of(transformer.decoder_norm) if self._pre_norm else None
        self._project = output_map(transformer)

    @property
    def kernels(self) -> str:
        """What computes: "PyTorch", also with CUDA graphs, or the precision and the instructions that our own kernels use."""
        return "PyTorch"

    def encode(self, sources: Sequence[Sequence[int]]) -> EncodedSources:
        """Returns what the decoder needs of tokenised sources, end-of-sentence last, in their order."""
        return self._source_encoder.encode(sources)

    def empty_cache(self, width: int = 1) -> DecoderCache:
        """Returns a cache without rows for sentences with ``width`` rows each."""
        shape = self._num_layers, self._num_heads, self._head_width
        cross = KeyValueCache(*shape, device=self.device, dtype=self._dtype, rounds=self._is_int8)
        window = self.config.attention_window if self.config.decoder_attention == "window" else None
        rows = KeyValueCache(
            *shape, window=window, device=self.device, dtype=self._dtype, rounds=self._is_int8
        )
        return DecoderCache(cross, rows, self.config.max_target_length, width=width)

    def admit(self, cache: DecoderCache, encoded: EncodedSources, sentences: Sequence[int]) -> None:
        """Adds some of the sentences, by index, behind those in ``cache``; their rows have yet to take a step."""
        cross, first = cache.sentences, cache.sentences.num_rows
        starts = list(itertools.accumulate(encoded.lengths, initial=0))
        tokens_of: list[Sequence[int]] = [range(starts[index], starts[index + 1]) for index in sentences]
        if encoded.padding:  # left out: a column is never one that a row may not attend to
            tokens_of = [[token for token in tokens if token not in encoded.padding] for tokens in tokens_of]
        lengths = list(map(len, tokens_of))
        cross.add_rows(len(sentences), max(lengths, default=0))
        cross.lengths[first:] = lengths
        places = [
            (row, column, token)
            for row, tokens in enumerate(tokens_of, start=first)
            for column, token in enumerate(tokens)
        ]
        if places:
            to_rows, to_columns, tokens = torch.tensor(places, device=self.device).unbind(1)
            in_order = len(places) == len(encoded.keys_values) and list(sentences) == sorted(sentences)
            held = encoded.keys_values if in_order else encoded.keys_values[tokens]
            cross.fill(to_rows, to_columns, held)
        cache.rows.add_rows(len(sentences) * cache.width, 1)

    def start(self, encoded: EncodedSources, sentences: Sequence[int], width: int = 1) -> DecoderCache:
        """Returns a cache of some of the sentences, by index, with ``width`` rows each that have yet to take a step."""
        cache = self.empty_cache(width)
        self.admit(cache, encoded, sentences)
        return cache

    def prefill(self, sources: Sequence[Sequence[int]], width: int = 1) -> DecoderCache:
        """Encodes sources and returns a cache of all of them, in order, at step 0."""
        return self.start(self.encode(sources), range(len(sources)), width)

    def predict(
        self, token_ids: Tensor, *caches: DecoderCache, expansions: Sequence[Expansion | None] = ()
    ) -> list[Predictions]:
        """Takes a step and returns what it says of the rows of each cache.

        Args:
            token_ids: As in `step`.
            caches: As in `step`.
            expansions: For each cache the one that is wanted, or None for the best tokens; empty is None for each.
        """
        parts = parted(self.step(token_ids, *caches), [cache.num_rows for cache in caches])
        wanted = expansions or [None] * len(caches)
        return [Predictions(self, part, expansion) for part, expansion in zip(parts, wanted, strict=True)]

    def step(self, token_ids: Tensor, *caches: DecoderCache) -> Tensor:
        """Returns the logits of each row's next token, (R, V), and counts the step in the caches.

        All rows go through the linear maps together; attention runs cache by cache.

        Args:
            token_ids: The token each row reads: the start token at step 0, then what it wrote last, (R,).
            caches: One or more, each with sentences of one width; their rows, one cache after the other, are the R rows.

        Raises:
            CacheFullError: A row has taken the model's ``max_target_length`` steps.
        """
        places = [cache.begin_step() for cache in caches]
        positions = joined([self._positions_of(cache.rows.lengths) for cache in caches])
        turns = offsets = None
        if self._is_rotary or self._is_relative:
            steps = [torch.tensor(cache.rows.lengths, device=self.device) for cache in caches]
            if self._is_rotary:
                turns = self._turns_at(joined(steps))
            else:
                offsets = [
                    self._offsets_from(of_cache, cache.rows)
                    for of_cache, cache in zip(steps, caches, strict=True)
                ]
        logits = self._decode(token_ids, positions, caches, places, turns, offsets)
        for cache in caches:
            cache.end_step()
        return logits

    def _decode(
        self,
        token_ids: Tensor,
        positions: Tensor,
        caches: Sequence[DecoderCache],
        places: Sequence[tuple[Tensor, Tensor] | int],
        turns: tuple[Tensor, Tensor] | None,
        offsets: Sequence[Tensor] | None,
    ) -> Tensor:
        """Returns the logits of each row's next token, (R, V): what of a step the device computes.

        Args:
            token_ids: The token each row reads, (R,).
            positions: Of those tokens, (R, D).
            caches: As in `step`.
            places: Where each cache's new columns go.
            turns: With rotary positions, from `_turns_at`, of all rows.
            offsets: With relative positions, from `_offsets_from`, of each cache.
        """
        sizes = [cache.num_rows for cache in caches]
        x = self._embed(self._target_embedding, token_ids, positions)  # (R, D)
        d_model = x.size(1)
        for index, layer in enumerate(self._decoder):
            projected = layer.queries_keys_values(self._before(layer.self_norm, x))  # (R, 3 D)
            if turns:
                projected = self._turned(projected, turns)
            heads = []
            for number, (cache, part) in enumerate(zip(caches, parted(projected, sizes), strict=True)):
                keys_values = part[:, d_model:].unflatten(1, (2, self._num_heads, self._head_width))
                cache.rows.write(index, places[number], keys_values)
                queries = part[:, :d_model].reshape(-1, 1, self._head_width)  # (R × H, 1, K)
                added = None
                if layer.relative and offsets:
                    by_head = queries.view(-1, self._num_heads, 1, self._head_width)
                    added = layer.relative.scores(by_head, offsets[number])  # (R, H, 1, C)
                gathered = self._attend(queries, cache.rows, index, added_scores=added)
                heads.append(gathered.view(-1, d_model))
            x = self._after(layer.self_norm, x + layer.self_out(joined(heads)))
            projected = layer.cross_queries(self._before(layer.cross_norm, x))  # (R, D)
            heads = [
                self._attend_to_source(part, cache, index, layer.cross_scores)
                for cache, part in zip(caches, parted(projected, sizes), strict=True)
            ]
            x = self._after(layer.cross_norm, x + layer.cross_out(joined(heads)))
            x = self._feed_forward(x, layer.feed_forward)
        return self._project(self._decoder_norm(x) if self._decoder_norm else x)

    def log_softmax(self, logits: Tensor) -> Tensor:
        """Returns log-probabilities, (R, V), float32."""
        return logits.log_softmax(-1)

    def log_probabilities(self, logits: Tensor, token_ids: Tensor) -> Tensor:
        """Returns log p of one token a row, (R,), float32, from logits, (R, V)."""
        return log_probabilities(logits, token_ids)

    def _positions_of(self, steps: Sequence[int]) -> Tensor:
        """Returns the position of each row's next token, (R, D), given the steps behind it."""
        if min(steps) == max(steps):
            return self._target_positions[steps[0] : steps[0] + 1].expand(len(steps), -1)
        return self._target_positions[torch.tensor(steps, device=self.device)]

    def _turns_at(self, steps: Tensor) -> tuple[Tensor, Tensor]:
        """Returns by what each row's query and key turn at its step, (R,), as `rotation` does."""
        return rotation(steps, self._head_width, self._dtype)

    def _offsets_from(self, steps: Tensor, cache: KeyValueCache) -> Tensor:
        """Returns how far each column stands from what a row writes next at its step, (R,), as (R, 1, 1, C)."""
        return torch.arange(cache.num_columns, device=self.device) - steps[:, None, None, None]

    def _attend_to_source(
        self, queries: Tensor, cache: DecoderCache, layer: int, scores_of: Scores
    ) -> Tensor:
        """Returns what each row's query, (R, D), gathers from its sentence's source, (R, D)."""
        heads, width = self._num_heads, cache.width
        if width == 1:
            queries = queries.reshape(-1, 1, self._head_width)
            return self._attend(queries, cache.sentences, layer, scores_of).view(len(queries) // heads, -1)
        # The rows of a sentence are so many queries to the same keys.
        shape = -1, width, heads, self._head_width
        queries = queries.reshape(shape).transpose(1, 2).reshape(-1, width, self._head_width)  # (N × H, W, K)
        out = self._attend(queries, cache.sentences, layer, scores_of)
        return (
            out.view(-1, heads, width, self._head_width).transpose(1, 2).reshape(-1, heads * self._head_width)
        )

    def _attend(
        self,
        queries: Tensor,
        cache: KeyValueCache,
        layer: int,
        scores_of: Scores = torch.bmm,
        added_scores: Tensor | None = None,
    ) -> Tensor:
        """Returns attention of the queries of each row and head, (R × H, W, K), over its columns, (R × H, W, K).

        For one query two plain products take half the time of the fused kernels.
        """
        keys, values = cache.layer(layer)
        mask = cache.mask()
        scores = scores_of(queries, keys)  # (R × H, W, C)
        if scores.dtype != self._softmax_dtype:
            scores = scores.to(self._softmax_dtype)
        by_row = scores.view(len(mask), self._num_heads, -1, mask.size(-1))
        if added_scores is not None:
            by_row += added_scores
        by_row += mask
        weights = torch.softmax(scores, -1)
        if weights.dtype != values.dtype:
            weights = weights.to(values.dtype)
        return torch.bmm(weights, values)
