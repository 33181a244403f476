"""A `Transformer`'s encoder and decoder as the kernels read them."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Iterable, Sequence
from typing import Any, cast

from torch import Tensor, nn

from dragoman_model.layers import DecoderLayer, EncoderLayer, Residual
from dragoman_model.native.maps import HeldMap, fused, output_map
from dragoman_model.native.memory import WeightMemory
from dragoman_model.native.structures import FeedForward, Layer, Map, Norm, Stack
from dragoman_model.transformer import Transformer


class Stacks:
    """Both stacks, with the weights that they point to.

    Attributes:
        encoder: With the cross-attention keys and values of all decoder layers behind it.
        decoder: With the map to the vocabulary behind it.
    """

    def __init__(self, transformer: Transformer, library: ctypes.CDLL) -> None:
        self._transformer, self._library, self._memory = transformer, library, WeightMemory()
        self._held: list[Any] = []
        scale = (transformer.config.d_model // transformer.config.num_heads) ** -0.5
        encoder = [
            Layer(**self._self_attention(layer, scale), feed_forward=self._feed_forward(layer))
            for layer in cast(Iterable[EncoderLayer], transformer.encoder)
        ]
        decoder = [
            Layer(
                **self._self_attention(layer, scale),
                cross_norm=self._norm(layer.cross_attention_residual),
                cross_in=self._map([layer.cross_attention.q_proj], [scale]),
                cross_out=self._map([layer.cross_attention.out_proj]),
                feed_forward=self._feed_forward(layer),
            )
            for layer in cast(Iterable[DecoderLayer], transformer.decoder)
        ]
        cross = [
            projection
            for layer in cast(Iterable[DecoderLayer], transformer.decoder)
            for projection in (layer.cross_attention.k_proj, layer.cross_attention.v_proj)
        ]
        self.encoder = self._stack(
            encoder, transformer.source_embedding, transformer.encoder_norm, self._map(cross)
        )
        self.decoder = self._stack(
            decoder,
            transformer.target_embedding,
            transformer.decoder_norm,
            self._hold_map(output_map(library, self._memory, transformer)),
        )

    def _stack(self, layers: list[Layer], embedding: nn.Embedding, last: nn.Module, project: Map) -> Stack:
        config = self._transformer.config
        array = (Layer * len(layers))(*layers)
        self._held.append(array)
        return Stack(
            layers=ctypes.addressof(array),
            embedding=self._hold(embedding.weight.detach()),
            positions=self._hold(self._transformer.positions),
            last=self._norm(last),
            project=project,
            num_layers=len(layers),
            num_heads=config.num_heads,
            width=config.d_model,
            inner=config.d_ff,
            embedding_scale=math.sqrt(config.d_model) if config.scale_embeddings else 1.0,
        )

    def _self_attention(self, layer: EncoderLayer | DecoderLayer, scale: float) -> dict[str, Any]:
        attention = layer.self_attention
        return {
            "self_norm": self._norm(layer.self_attention_residual),
            "self_in": self._map([attention.q_proj, attention.k_proj, attention.v_proj], [scale, 1.0, 1.0]),
            "self_out": self._map([attention.out_proj]),
        }

    def _feed_forward(self, layer: EncoderLayer | DecoderLayer) -> FeedForward:
        block = layer.feed_forward
        return FeedForward(
            self._norm(layer.feed_forward_residual), self._map([block.in_proj]), self._map([block.out_proj])
        )

    def _norm(self, module: nn.Module) -> Norm:
        norm = module.norm if isinstance(module, Residual) else module
        assert isinstance(norm, nn.LayerNorm)
        return Norm(self._hold(norm.weight.detach()), self._hold(norm.bias.detach()), norm.eps)

    def _map(self, linears: Sequence[nn.Module], factors: Sequence[float] = ()) -> Map:
        return self._hold_map(fused(self._library, self._memory, linears, factors))

    def _hold_map(self, held: HeldMap) -> Map:
        self._held += held.tensors
        return held.map

    def _hold(self, tensor: Tensor) -> int:
        tensor = tensor.contiguous()
        self._held.append(tensor)
        return tensor.data_ptr()
