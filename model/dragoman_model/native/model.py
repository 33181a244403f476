"""An `InferenceModel` whose encoder and decoder steps are one call each into the kernels."""

from __future__ import annotations

import ctypes
import functools
import itertools
import logging
import os
from collections.abc import Sequence

import torch
from torch import Tensor

from dragoman_model.cache import DecoderCache
from dragoman_model.constraints import FREE, Constraint
from dragoman_model.cuda_graphs import CudaRecorder
from dragoman_model.inference import EncodedSources, InferenceModel
from dragoman_model.native.cache import NativeCache, SharedColumns
from dragoman_model.native.maps import is_exact
from dragoman_model.native.stacks import Stacks
from dragoman_model.native.structures import Caches
from dragoman_model.native.values import Pointer, long, longs, pointer
from dragoman_model.static_step import StaticModel
from dragoman_model.transformer import Transformer

_log = logging.getLogger(__name__)


def is_supported(transformer: Transformer) -> bool:
    """Returns whether the kernels know a model's shape, and its numbers are where and what they take.

    Pre-norm, ReLU, dot products with all positions, sinusoidal ones, and sizes that fill vectors.
    """
    config, weight = transformer.config, transformer.output_weight
    if (weight.device.type, weight.dtype) != ("cpu", torch.float32):  # as it is in int8, too
        return False
    if (config.norm, config.activation, config.positions) != ("pre", "relu", "sinusoidal"):
        return False
    if (config.encoder_attention, config.decoder_attention, config.cross_attention) != (
        "full",
        "full",
        "dot",
    ):
        return False
    return not any(size % 16 for size in (config.d_model, config.d_ff, config.target_vocab_size))


def inference_model(transformer: Transformer) -> InferenceModel:
    """Returns the fastest form of a model: through the kernels where they can be had and know it.

    On a GPU through CUDA graphs; ``DRAGOMAN_KERNELS=none`` does without either.
    """
    if transformer.device.type == "cuda" and os.environ.get("DRAGOMAN_KERNELS") != "none":
        return StaticModel(transformer, CudaRecorder(transformer.device))
    kernels = transformer.native_kernels
    if kernels is not None and is_supported(transformer):
        if is_exact(kernels, int8=transformer.int8_output is not None):
            return NativeModel(transformer, kernels)
        _log.warning("the kernels give wrong products here; PyTorch's operators serve instead")
    return InferenceModel(transformer)


class NativeModel(InferenceModel):
    """Encodes sources and takes decoder steps through the kernels; what they don't know goes the other way."""

    def __init__(self, transformer: Transformer, library: ctypes.CDLL) -> None:
        """Takes a model that `is_supported`, in int8 or float32 on a CPU."""
        self._library = library
        library.scratch_floats.restype = long
        library.int8_instructions.restype = library.float_instructions.restype = ctypes.c_char_p
        self._transformer = transformer
        self._scratch = torch.empty(0)
        super().__init__(transformer)

    def _lay_out(self, transformer: Transformer) -> None:
        self._stacks = Stacks(transformer, self._library)

    @functools.cached_property
    def _operators(self) -> InferenceModel:
        """What the kernels don't know goes through this; made when it is needed, since it has weights of its own."""
        return InferenceModel(self._transformer)

    @property
    def kernels(self) -> str:
        """What computes: the precision and the instructions that the kernels use."""
        if self._transformer.int8_output is not None:
            return f"int8 {self._library.int8_instructions().decode()}"
        return f"float32 {self._library.float_instructions().decode()}"

    def encode(self, sources: Sequence[Sequence[int]]) -> EncodedSources:
        """Returns what the decoder needs of tokenised sources, end-of-sentence last, in their order."""
        pad_id, vocab_size = self.config.pad_id, self.config.source_vocab_size
        tokens = [token for source in sources for token in source]
        if not tokens or pad_id in tokens:
            return self._operators.encode(sources)
        if not 0 <= min(tokens) <= max(tokens) < vocab_size:
            raise IndexError(f"a source token is not in the vocabulary of {vocab_size}")
        lengths = [len(source) for source in sources]
        if max(lengths) > len(self._positions):
            raise IndexError(
                f"a source of {max(lengths)} tokens; the model has {len(self._positions)} positions"
            )
        token_ids = torch.tensor(tokens)
        shape = len(tokens), self._num_layers, 2, self._num_heads, self._head_width
        keys_values = torch.empty(shape)
        self._library.encode(
            ctypes.byref(self._stacks.encoder), pointer(token_ids), longs(lengths), long(len(lengths)),
            pointer(keys_values), self._scratch_for(len(tokens), max(lengths)),
        )  # fmt: skip
        return EncodedSources(keys_values, tuple(lengths))

    def admit(self, cache: DecoderCache, encoded: EncodedSources, sentences: Sequence[int]) -> None:
        """Adds some of the sentences, by index, behind those in ``cache``; their rows have yet to take a step."""
        if encoded.padding:
            super().admit(cache, encoded, sentences)
            return
        starts = list(itertools.accumulate(encoded.lengths, initial=0))
        assert isinstance(cache.sentences, NativeCache)
        cache.sentences.take(
            encoded.keys_values.contiguous(),
            [starts[index] for index in sentences],
            [encoded.lengths[index] for index in sentences],
        )
        cache.rows.add_rows(len(sentences) * cache.width, 1)

    def empty_cache(self, width: int = 1) -> DecoderCache:
        """Returns a cache without rows for sentences with ``width`` rows each."""
        shape = self._num_layers, self._num_heads, self._head_width
        cross, rows = NativeCache(self._library, *shape), SharedColumns(self._library, *shape)
        return DecoderCache(cross, rows, self.config.max_target_length, width=width)

    def best(self, logits: Tensor) -> tuple[Tensor, Tensor]:
        """Returns the token of each row's largest logit, (R,), and its log-probability, (R,), float32, from (R, V)."""
        tokens = torch.empty(len(logits), dtype=torch.long)
        log_probabilities = torch.empty(len(logits))
        self._library.best(*_matrix(logits), pointer(tokens), pointer(log_probabilities))
        return tokens, log_probabilities

    def log_softmax(self, logits: Tensor) -> Tensor:
        """Returns log-probabilities, (R, V), float32."""
        out = torch.empty_like(logits)
        self._library.log_softmax(*_matrix(logits), pointer(out))
        return out

    def log_probabilities(self, logits: Tensor, token_ids: Tensor) -> Tensor:
        """Returns log p of one token a row, (R,), float32, from logits, (R, V)."""
        out = torch.empty(len(logits))
        self._library.log_probabilities(*_matrix(logits), pointer(token_ids), pointer(out))
        return out

    def expand(
        self, logits: Tensor, constraints: Sequence[Constraint], sums: Tensor, count: int
    ) -> tuple[Tensor, ...]:
        """Returns each sentence's best continuations, as `search.expand` does."""
        num_sentences, width = sums.shape
        count = min(count, width * logits.size(1))
        places = torch.empty((2, num_sentences, count), dtype=torch.long)
        ranks = torch.empty((num_sentences, count), dtype=torch.float64)
        sums = sums.float()
        self._library.expand(
            pointer(logits), long(num_sentences), long(width), long(logits.size(1)), pointer(sums), long(count),
            pointer(places), pointer(ranks),
        )  # fmt: skip
        parents, tokens = places
        bound = _bound_sentences(constraints, parents, tokens)
        if not bound:
            return parents, tokens, ranks, ranks
        log_probs = ranks.clone()
        held = [constraints[index * width + row] for index in bound for row in range(width)]
        rows = logits.view(num_sentences, width, -1)[bound].flatten(0, 1)
        parts = super().expand(rows, held, sums[bound], count)
        for whole, part in zip((parents, tokens, ranks, log_probs), parts, strict=True):
            whole[bound] = part
        return parents, tokens, ranks, log_probs

    def step(self, token_ids: Tensor, *caches: DecoderCache, out: Tensor | None = None) -> Tensor:
        """Returns the logits of each row's next token, (R, V), and counts the step in the caches."""
        for cache in caches:
            cache.make_room()
        shape = len(token_ids), self.config.target_vocab_size
        room = 0 if out is None else out.untyped_storage().nbytes() // (4 * shape[1])
        if out is None or not shape[0] <= room <= 4 * shape[0]:
            # Not what memory held before, for rows that are idle: with a number that is none there, −∞ for the row would no
            # longer keep it out.
            logits = torch.zeros(shape)
        else:
            logits = out.as_strided(shape, (shape[1], 1), 0)
        first = 0
        for cache in caches:
            rows = slice(first, first + cache.num_rows)
            self._step(token_ids[rows], cache, logits[rows])
            cache.end_step()
            first += cache.num_rows
        return logits

    def _step(self, token_ids: Tensor, cache: DecoderCache, logits: Tensor) -> None:
        assert isinstance(cache.rows, SharedColumns)
        holders = cache.rows.holders()
        layers = (Caches * self._num_layers)()
        own, own_layer_bytes, own_rows, own_columns = cache.rows.memory()
        cross, cross_layer_bytes, cross_rows, cross_columns = cache.sentences.memory()
        for index in range(self._num_layers):
            layers[index] = Caches(
                own + index * own_layer_bytes, cross + index * cross_layer_bytes,
                own_rows, own_columns, cross_rows, cross_columns,
            )  # fmt: skip
        columns = max(own_columns, cross_columns)
        lengths = cache.rows.lengths
        if cache.idle:
            lengths = [-1 if row in cache.idle else length for row, length in enumerate(lengths)]
        self._library.step(
            ctypes.byref(self._stacks.decoder), long(cache.num_rows), long(cache.width), pointer(token_ids),
            longs(lengths), longs(cache.sentences.lengths), layers, pointer(holders), pointer(logits),
            self._scratch_for(cache.num_rows, columns),
        )  # fmt: skip

    def _scratch_for(self, rows: int, columns: int) -> Pointer:
        floats = self._library.scratch_floats(
            long(rows), long(self.config.d_model), long(self.config.d_ff), long(columns)
        )
        if floats > self._scratch.numel():
            self._scratch = torch.empty(floats)
        return pointer(self._scratch)


def _bound_sentences(constraints: Sequence[Constraint], parents: Tensor, tokens: Tensor) -> list[int]:
    """Returns the sentences, by index, that have a candidate which may not be; parents and tokens are (N, C)."""
    if not constraints:
        return []
    width = len(constraints) // len(parents)
    bound = []
    for index, candidates in enumerate(zip(parents.tolist(), tokens.tolist(), strict=True)):
        held = constraints[index * width : (index + 1) * width]
        if any(
            held[parent] is not FREE and not held[parent].allows(token) for parent, token in zip(*candidates)
        ):
            bound.append(index)
    return bound


def _matrix(logits: Tensor) -> tuple[Pointer, ctypes.c_int64, ctypes.c_int64]:
    assert logits.is_contiguous()
    return pointer(logits), long(logits.size(0)), long(logits.size(1))
