"""An `InferenceModel` whose encoder and decoder steps are one call each into the kernels."""

from __future__ import annotations

import ctypes
import functools
import itertools
import logging
import os
from collections.abc import Iterable, Sequence
from typing import Any, cast

import torch
from torch import Tensor, nn

from dragoman_model.attention import MultiHeadAttention
from dragoman_model.cache import DecoderCache
from dragoman_model.constraints import FREE, Constraint
from dragoman_model.cuda_graphs import CudaRecorder
from dragoman_model.inference import EncodedSources, InferenceModel
from dragoman_model.layers import DecoderLayer, EncoderLayer, FeedForward, Residual
from dragoman_model.native.cache import NativeCache, SharedColumns
from dragoman_model.native.values import Pointer, long, longs, pointer
from dragoman_model.quantization import Int8Linear
from dragoman_model.static_step import StaticModel
from dragoman_model.transformer import Transformer

_log = logging.getLogger(__name__)


class _Map(ctypes.Structure):
    _fields_ = (
        ("weight", Pointer), ("scales", Pointer), ("bias", Pointer), ("sums", Pointer),
        ("inputs", long), ("outputs", long),
    )  # fmt: skip


class _Norm(ctypes.Structure):
    _fields_ = (("gain", Pointer), ("bias", Pointer), ("eps", ctypes.c_float))


class _FeedForward(ctypes.Structure):
    _fields_ = (("norm", _Norm), ("inner", _Map), ("outer", _Map))


class _Layer(ctypes.Structure):
    _fields_ = (
        ("self_norm", _Norm), ("self_in", _Map), ("self_out", _Map),
        ("cross_norm", _Norm), ("cross_in", _Map), ("cross_out", _Map),
        ("feed_forward", _FeedForward),
    )  # fmt: skip


class _Stack(ctypes.Structure):
    _fields_ = (
        ("layers", Pointer), ("embedding", Pointer), ("positions", Pointer), ("last", _Norm), ("project", _Map),
        ("num_layers", long), ("num_heads", long), ("width", long), ("inner", long),
        ("embedding_scale", ctypes.c_float),
    )  # fmt: skip


class _Caches(ctypes.Structure):
    _fields_ = (
        ("self", Pointer), ("cross", Pointer), ("self_rows", long), ("self_columns", long),
        ("cross_rows", long), ("cross_columns", long),
    )  # fmt: skip


def is_supported(transformer: Transformer) -> bool:
    """Returns whether the kernels know a quantised model's shape.

    Pre-norm, ReLU, dot products with all positions, sinusoidal ones, and sizes that fill vectors.
    """
    config = transformer.config
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
    """Returns the fastest form of a model: through the kernels where it is quantised and they can be had.

    On a GPU through CUDA graphs; ``DRAGOMAN_KERNELS=none`` does without either.
    """
    if transformer.device.type == "cuda" and os.environ.get("DRAGOMAN_KERNELS") != "none":
        return StaticModel(transformer, CudaRecorder(transformer.device))
    kernels = transformer.native_kernels
    if kernels is not None and is_supported(transformer):
        if is_exact(kernels):
            return NativeModel(transformer, kernels)
        _log.warning("the int8 kernels give wrong products here; PyTorch's operators serve instead")
    return InferenceModel(transformer)


@functools.cache
def is_exact(library: ctypes.CDLL) -> bool:
    """Returns whether the kernels' products are those of the definition, the largest numbers among them."""
    levels = int(library.levels())
    generator = torch.Generator().manual_seed(0)
    for num_rows in (1, 7, 64):
        x = torch.randint(-levels, levels + 1, (num_rows, 96), generator=generator).float()
        weight = torch.randint(-127, 128, (80, 96), generator=generator, dtype=torch.int8)
        x[0], weight[0], weight[1] = levels, 127, -127
        x[:, 0] = levels  # so that a level is 1 in every row
        packed, sums = torch.empty_like(weight), torch.empty(80, dtype=torch.int32)
        library.pack(pointer(weight), long(80), long(96), pointer(packed), pointer(sums))
        ones, zeros = torch.ones(80), torch.zeros(80)
        pointers = (tensor.data_ptr() for tensor in (packed, ones, zeros, sums))
        out, scratch = torch.empty((num_rows, 80)), torch.empty(num_rows * 97 + 16)
        library.map_rows(
            ctypes.byref(_Map(*pointers, 96, 80)),
            pointer(x),
            long(num_rows),
            pointer(out),
            pointer(scratch),
        )
        # Below 2^21, so that float32 is off by less than a half.
        if not out.round().double().equal(x.double() @ weight.double().t()):
            return False
    return True


class NativeModel(InferenceModel):
    """Encodes sources and takes decoder steps through the kernels; what they don't know goes the other way."""

    def __init__(self, transformer: Transformer, library: ctypes.CDLL) -> None:
        """Takes a quantised model that `is_supported`."""
        super().__init__(transformer)
        self._library = library
        library.scratch_floats.restype = long
        library.instructions.restype = ctypes.c_char_p
        self._held: list[Any] = []  # what the structures point to
        config = transformer.config
        scale = self._head_width**-0.5
        encoder = [
            _Layer(**self._self_attention(layer, scale), feed_forward=self._feed_forward_of(layer))
            for layer in cast(Iterable[EncoderLayer], transformer.encoder)
        ]
        decoder = [
            _Layer(
                **self._self_attention(layer, scale),
                cross_norm=self._norm_of(layer.cross_attention_residual),
                cross_in=self._map_of([layer.cross_attention.q_proj], [scale]),
                cross_out=self._map_of([layer.cross_attention.out_proj]),
                feed_forward=self._feed_forward_of(layer),
            )
            for layer in cast(Iterable[DecoderLayer], transformer.decoder)
        ]
        cross = [
            projection
            for layer in cast(Iterable[DecoderLayer], transformer.decoder)
            for projection in (layer.cross_attention.k_proj, layer.cross_attention.v_proj)
        ]
        assert transformer.int8_output is not None
        self._encoder_stack = self._stack(
            encoder, transformer.source_embedding, transformer.encoder_norm, self._map_of(cross)
        )
        self._decoder_stack = self._stack(
            decoder,
            transformer.target_embedding,
            transformer.decoder_norm,
            self._map_of([transformer.int8_output]),
        )
        self._inner = config.d_ff
        self._scratch = torch.empty(0)

    @property
    def kernels(self) -> str:
        """What computes: "int8" and the instructions that the kernels use."""
        return f"int8 {self._library.instructions().decode()}"

    def encode(self, sources: Sequence[Sequence[int]]) -> EncodedSources:
        """Returns what the decoder needs of tokenised sources, end-of-sentence last, in their order."""
        pad_id, vocab_size = self.config.pad_id, self.config.source_vocab_size
        tokens = [token for source in sources for token in source]
        if not tokens or pad_id in tokens:
            return super().encode(sources)
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
            ctypes.byref(self._encoder_stack), pointer(token_ids), longs(lengths), long(len(lengths)),
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
        layers = (_Caches * self._num_layers)()
        own, own_layer_bytes, own_rows, own_columns = cache.rows.memory()
        cross, cross_layer_bytes, cross_rows, cross_columns = cache.sentences.memory()
        for index in range(self._num_layers):
            layers[index] = _Caches(
                own + index * own_layer_bytes, cross + index * cross_layer_bytes,
                own_rows, own_columns, cross_rows, cross_columns,
            )  # fmt: skip
        columns = max(own_columns, cross_columns)
        lengths = cache.rows.lengths
        if cache.idle:
            lengths = [-1 if row in cache.idle else length for row, length in enumerate(lengths)]
        self._library.step(
            ctypes.byref(self._decoder_stack), long(cache.num_rows), long(cache.width), pointer(token_ids),
            longs(lengths), longs(cache.sentences.lengths), layers, pointer(holders), pointer(logits),
            self._scratch_for(cache.num_rows, columns),
        )  # fmt: skip

    def _scratch_for(self, rows: int, columns: int) -> Pointer:
        floats = self._library.scratch_floats(
            long(rows), long(self.config.d_model), long(self._inner), long(columns)
        )
        if floats > self._scratch.numel():
            self._scratch = torch.empty(floats)
        return pointer(self._scratch)

    def _stack(self, layers: list[_Layer], embedding: nn.Embedding, last: nn.Module, project: _Map) -> _Stack:
        config = self.config
        array = (_Layer * len(layers))(*layers)
        self._held.append(array)
        return _Stack(
            layers=ctypes.addressof(array),
            embedding=self._hold(embedding.weight.detach()),
            positions=self._hold(self._positions),
            last=self._norm_of(last),
            project=project,
            num_layers=len(layers),
            num_heads=config.num_heads,
            width=config.d_model,
            inner=config.d_ff,
            embedding_scale=self._embedding_scale,
        )

    def _self_attention(self, layer: EncoderLayer | DecoderLayer, scale: float) -> dict[str, Any]:
        attention: MultiHeadAttention = layer.self_attention
        projections = [attention.q_proj, attention.k_proj, attention.v_proj]
        return {
            "self_norm": self._norm_of(layer.self_attention_residual),
            "self_in": self._map_of(projections, [scale, 1.0, 1.0]),
            "self_out": self._map_of([attention.out_proj]),
        }

    def _feed_forward_of(self, layer: EncoderLayer | DecoderLayer) -> _FeedForward:
        block: FeedForward = layer.feed_forward
        return _FeedForward(
            self._norm_of(layer.feed_forward_residual),
            self._map_of([block.in_proj]),
            self._map_of([block.out_proj]),
        )

    def _norm_of(self, module: nn.Module) -> _Norm:
        norm = module.norm if isinstance(module, Residual) else module
        assert isinstance(norm, nn.LayerNorm)
        return _Norm(self._hold(norm.weight.detach()), self._hold(norm.bias.detach()), norm.eps)

    def _map_of(self, linears: Sequence[nn.Module], factors: Sequence[float] = ()) -> _Map:
        linear = Int8Linear.fused(cast(Sequence[Int8Linear], linears), factors or [1.0] * len(linears))
        outputs, inputs = linear.weight.shape
        packed = torch.empty(outputs * inputs, dtype=torch.int8)
        sums = torch.empty(outputs, dtype=torch.int32)
        weight = linear.weight.contiguous()
        self._library.pack(pointer(weight), long(outputs), long(inputs), pointer(packed), pointer(sums))
        bias = torch.zeros(outputs) if linear.bias is None else linear.bias
        return _Map(
            self._hold(packed), self._hold(linear.scales), self._hold(bias), self._hold(sums), inputs, outputs
        )

    def _hold(self, tensor: Tensor) -> int:
        tensor = tensor.contiguous()
        self._held.append(tensor)
        return tensor.data_ptr()


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
