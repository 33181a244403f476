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
from dragoman_model.cuda_graphs import CudaRecorder
from dragoman_model.inference import InferenceModel
from dragoman_model.native.cache import NativeCache, SharedColumns
from dragoman_model.native.maps import is_exact
from dragoman_model.native.predictions import NativePredictions
from dragoman_model.native.stacks import Stacks
from dragoman_model.native.structures import Caches
from dragoman_model.native.values import Pointer, long, longs, pointer
from dragoman_model.predictions import Expansion, Predictions
from dragoman_model.source_encoding import EncodedSources
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
        library.scratch_floats.restype = library.logits_floats.restype = long
        library.int8_instructions.restype = library.float_instructions.restype = ctypes.c_char_p
        self._transformer = transformer
        self._scratch = torch.empty(0)
        super().__init__(transformer)

    def _lay_out(self, transformer: Transformer) -> None:
        self._stacks = Stacks(transformer, self._library)
        self._logits_floats = self._library.logits_floats(ctypes.byref(self._stacks.decoder.project))

    @functools.cached_property
    def _operators(self) -> InferenceModel:
        """What the kernels don't know goes through this; made when it is needed, since it has weights of its own."""
        return InferenceModel(self._transformer)

    @property
    def kernels(self) -> str:
        """What computes: the precision and the instructions that the kernels use."""
        if self._is_int8:
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
        # Half precision is far finer than int8, and halves what attention reads.
        cross = NativeCache(self._library, *shape, is_half=self._is_int8)
        rows = SharedColumns(self._library, *shape, is_half=self._is_int8)
        return DecoderCache(cross, rows, self.config.max_target_length, width=width)

    def log_softmax(self, logits: Tensor) -> Tensor:
        """Returns log-probabilities, (R, V), float32."""
        out = torch.empty_like(logits)
        self._library.log_softmax(*_matrix(logits), pointer(out), self._scratch_for(0, 0))
        return out

    def log_probabilities(self, logits: Tensor, token_ids: Tensor) -> Tensor:
        """Returns log p of one token a row, (R,), float32, from logits, (R, V)."""
        out, scratch = torch.empty(len(logits)), self._scratch_for(0, 0)
        self._library.log_probabilities(*_matrix(logits), pointer(token_ids), pointer(out), scratch)
        return out

    def logits(self, states: Tensor) -> Tensor:
        """Returns the logits, (R, V), that belong to what a step has left, (R, D)."""
        logits = torch.empty((len(states), self.config.target_vocab_size))
        self._library.map_rows(
            ctypes.byref(self._stacks.decoder.project), pointer(states), long(len(states)), pointer(logits),
            self._scratch_for(len(states), 0),
        )  # fmt: skip
        return logits

    def step(self, token_ids: Tensor, *caches: DecoderCache) -> Tensor:
        """Returns the logits of each row's next token, (R, V), and counts the step in the caches."""
        return torch.cat([one.logits() for one in self.predict(token_ids, *caches)])

    def predict(
        self, token_ids: Tensor, *caches: DecoderCache, expansions: Sequence[Expansion | None] = ()
    ) -> list[Predictions]:
        """Takes a step and returns what it says of the rows of each cache, as `InferenceModel.predict` does."""
        for cache in caches:
            cache.make_room()
        parts = [token_ids] if len(caches) == 1 else token_ids.split([cache.num_rows for cache in caches])
        predictions: list[Predictions] = []
        for part, cache, expansion in zip(parts, caches, expansions or [None] * len(caches), strict=True):
            asked = NativePredictions(self, cache.num_rows, expansion)
            self._step(part, cache, asked)
            predictions.append(asked)
        for cache in caches:
            cache.end_step()
        return predictions

    def _step(self, token_ids: Tensor, cache: DecoderCache, asked: NativePredictions) -> None:
        assert isinstance(cache.rows, SharedColumns)
        layers = (Caches * self._num_layers)()
        own, own_layer_bytes, own_rows, own_columns = cache.rows.memory()
        cross, cross_layer_bytes, cross_rows, cross_columns = cache.sentences.memory()
        for index in range(self._num_layers):
            layers[index] = Caches(
                own + index * own_layer_bytes, cross + index * cross_layer_bytes,
                own_rows, own_columns, cross_rows, cross_columns, cache.rows.is_half,
            )  # fmt: skip
        self._library.step(
            ctypes.byref(self._stacks.decoder), long(cache.num_rows), long(cache.width), pointer(token_ids),
            longs(cache.rows.lengths), longs(cache.sentences.lengths), layers, pointer(cache.rows.holders()),
            pointer(asked.states), ctypes.byref(asked.wanted),
            self._scratch_for(cache.num_rows, max(own_columns, cross_columns)),
        )  # fmt: skip

    def _scratch_for(self, rows: int, columns: int) -> Pointer:
        floats = self._logits_floats + self._library.scratch_floats(
            long(rows), long(self.config.d_model), long(self.config.d_ff), long(columns)
        )
        if floats > self._scratch.numel():
            self._scratch = torch.empty(floats)
        return pointer(self._scratch)


def _matrix(logits: Tensor) -> tuple[Pointer, ctypes.c_int64, ctypes.c_int64]:
    assert logits.is_contiguous()
    return pointer(logits), long(logits.size(0)), long(logits.size(1))
