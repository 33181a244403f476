"""The encoder-decoder Transformer (Vaswani et al. 2017).

Shapes: B batch, S source length, T target length, D width, V vocabulary. Masks are bool, True = may attend.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dragoman_model.attention import causal_mask
from dragoman_model.config import ModelConfig
from dragoman_model.errors import UnknownPositionError
from dragoman_model.layers import DecoderLayer, Dropout, EncoderLayer
from dragoman_model.positions import sinusoidal_positions
from dragoman_model.quantization import Int8Linear, Kernel, quantize


@dataclass(frozen=True)
class AttentionRecord:
    """Attention weights of a pass, one tensor a layer; asking for them runs the explicit form.

    Attributes:
        encoder_self: (B, H, S, S) each.
        decoder_self: (B, H, T, T) each.
        cross: (B, H, T, S) each.
        decoder_states: The decoder's states before the last normalisation, (B, T, D), alone.
    """

    encoder_self: list[Tensor] = field(default_factory=list)
    decoder_self: list[Tensor] = field(default_factory=list)
    cross: list[Tensor] = field(default_factory=list)
    decoder_states: list[Tensor] = field(default_factory=list)


class Transformer(nn.Module):
    """Reads a source sentence and writes its translation, one token a step.

    `encode` and `decode` see whole sequences, for training and for attention; `inference.py` writes with a cache.
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        self.source_embedding = nn.Embedding(config.source_vocab_size, config.d_model)
        self.target_embedding = (
            self.source_embedding
            if config.shared_vocabulary
            else nn.Embedding(config.target_vocab_size, config.d_model)
        )
        self.output_weight = (
            self.target_embedding.weight
            if config.tie_output
            else nn.Parameter(torch.empty(config.target_vocab_size, config.d_model))
        )
        self.output_bias = nn.Parameter(torch.zeros(config.target_vocab_size)) if config.output_bias else None
        self.encoder = nn.ModuleList(EncoderLayer(config) for _ in range(config.num_encoder_layers))
        self.decoder = nn.ModuleList(DecoderLayer(config) for _ in range(config.num_decoder_layers))
        pre_norm = config.norm == "pre"
        self.encoder_norm = (
            nn.LayerNorm(config.d_model, eps=config.layer_norm_eps) if pre_norm else nn.Identity()
        )
        self.decoder_norm = (
            nn.LayerNorm(config.d_model, eps=config.layer_norm_eps) if pre_norm else nn.Identity()
        )
        self.embedding_dropout = Dropout(config.dropout)
        length = max(config.max_source_length, config.max_target_length)
        self.register_buffer("positions", self._position_table(length), persistent=False)
        self.positions: Tensor
        is_learned = config.positions == "learned"
        self.source_position_embedding, self.target_position_embedding = (
            nn.Parameter(torch.empty(limit, config.d_model)) if is_learned else None
            for limit in (config.max_source_length, config.max_target_length)
        )
        self._embedding_scale = math.sqrt(config.d_model) if config.scale_embeddings else 1.0
        self.int8_output: Int8Linear | None = None  # in the place of the output weight, once quantised
        self.native_kernels: ctypes.CDLL | None = None  # whole sentences and steps may run through these
        self._reset_parameters()

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return self.output_weight.device

    def source_mask(self, src_ids: Tensor) -> Tensor:
        """Returns which source positions hold tokens rather than padding, (B, S)."""
        return src_ids != self.config.pad_id

    def source_positions(self, length: int) -> Tensor:
        """Returns what is added to a source's scaled embeddings, (S, D).

        Raises:
            UnknownPositionError: Positions are learnt, and for fewer tokens.
        """
        return self._added_positions(self.source_position_embedding, length, "source")

    def target_positions(self, length: int) -> Tensor:
        """Returns what is added to a target's scaled embeddings, (T, D); raises as `source_positions` does."""
        return self._added_positions(self.target_position_embedding, length, "target")

    def encode(self, src_ids: Tensor, src_mask: Tensor, record: AttentionRecord | None = None) -> Tensor:
        """Returns the memory: what the encoder makes of the source, (B, S, D).

        Args:
            src_ids: Source tokens, end-of-sentence included, padded at the end, (B, S).
            src_mask: True at real positions, (B, S).
            record: Takes each layer's self-attention weights.
        """
        x = self._embed(self.source_embedding, src_ids, self.source_positions(src_ids.size(1)))
        mask = src_mask[:, None, None]  # (B, 1, 1, S)
        for layer in self.encoder:
            x = layer(x, mask, record.encoder_self if record else None)
        return self.encoder_norm(x)

    def decode(
        self, tgt_ids: Tensor, memory: Tensor, src_mask: Tensor, record: AttentionRecord | None = None
    ) -> Tensor:
        """Returns the logits of every next token, (B, T, V), given all target tokens before it.

        Args:
            tgt_ids: What the decoder reads, begin-of-sentence first, padded at the end, (B, T).
            memory: From `encode`, (B, S, D).
            src_mask: True at real source positions, (B, S).
            record: Takes each layer's self- and cross-attention weights.
        """
        return self.project(self.decode_states(tgt_ids, memory, src_mask, record))

    def decode_states(
        self, tgt_ids: Tensor, memory: Tensor, src_mask: Tensor, record: AttentionRecord | None = None
    ) -> Tensor:
        """Returns the decoder's output before the projection to the vocabulary, (B, T, D); arguments as in `decode`."""
        x = self._embed(self.target_embedding, tgt_ids, self.target_positions(tgt_ids.size(1)))
        # A window is causal by itself: no matrix as large as the square of the length is needed.
        is_full = self.config.decoder_attention == "full"
        self_mask = causal_mask(tgt_ids.size(1), tgt_ids.device) if is_full else None
        cross_mask = src_mask[:, None, None]  # (B, 1, 1, S)
        for layer in self.decoder:
            records = (record.decoder_self, record.cross) if record else (None, None)
            x = layer(x, memory, self_mask, cross_mask, *records)
        if record:
            record.decoder_states.append(x)
        return self.decoder_norm(x)

    def project(self, states: Tensor) -> Tensor:
        """Returns the logits, (…, V), of decoder outputs, (…, D)."""
        if self.int8_output is not None:
            return self.int8_output(states)
        return F.linear(states, self.output_weight, self.output_bias)

    def quantize(self, kernel: Kernel) -> None:
        """Turns every linear map into 8-bit integers, which ``kernel`` multiplies, for good; all else stays float32."""
        quantize(self, kernel)
        self.int8_output = Int8Linear.quantize(self.output_weight, self.output_bias, kernel)
        for layer in cast(Iterable[DecoderLayer], self.decoder):
            for attention in (layer.self_attention, layer.cross_attention):
                attention.keeps_half_precision = True

    def _embed(self, embedding: nn.Embedding, token_ids: Tensor, positions: Tensor) -> Tensor:
        return self.embedding_dropout(embedding(token_ids) * self._embedding_scale + positions)

    def _added_positions(self, learned: Tensor | None, length: int, side: str) -> Tensor:
        if learned is not None:
            if length > len(learned):
                raise UnknownPositionError(
                    f"a {side} of {length} tokens, but positions are learnt for {len(learned)}; split the sentence, "
                    f"or train a model with a larger max_{side}_length or with other positions"
                )
            # Drawn and scaled as tokens are, so that both start with the same weight and learn at the same pace.
            return learned[:length] * self._embedding_scale
        if length > len(self.positions):  # no training has gone so far, but the formula does
            return self._position_table(length).to(self.positions)
        return self.positions[:length]

    def _position_table(self, length: int) -> Tensor:
        config = self.config
        if config.positions == "sinusoidal":
            return sinusoidal_positions(length, config.d_model, config.sinusoid_layout)
        return torch.zeros(length, config.d_model)  # attention itself knows where tokens stand

    def _reset_parameters(self) -> None:
        for name, parameter in self.named_parameters():
            if parameter.dim() < 2:
                continue  # biases 0 and normalisation gains 1, as their modules set them
            if "embedding" in name or name == "output_weight":
                # With the embedding scaled by sqrt(D), a token starts at unit variance beside its position.
                nn.init.normal_(parameter, std=self.config.d_model**-0.5)
            else:
                nn.init.xavier_uniform_(parameter)
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.zeros_(module.bias)
