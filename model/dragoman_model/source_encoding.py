"""The encoder as it serves: sources side by side, without padding, up to the keys and values that the decoder attends to.

Shapes: P source tokens of all sentences, S those of one, n sentences of one length, D width, L decoder layers, H heads, K head width.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from typing import NamedTuple, cast

import torch
import torch.nn.functional as F
from torch import Tensor

from dragoman_model.attention import Mechanism
from dragoman_model.inference_layers import encoder_maps, norm_of
from dragoman_model.inference_stack import Stack, joined, parted
from dragoman_model.layers import DecoderLayer, EncoderLayer
from dragoman_model.linear import fused
from dragoman_model.positions import rotation
from dragoman_model.transformer import Transformer


class EncodedSources(NamedTuple):
    """What the decoder needs of some sources.

    Attributes:
        keys_values: Cross-attention keys and values of every token, (P, L, 2, H, K), one sentence behind the other.
        lengths: Tokens of each sentence.
        padding: Tokens that may not be attended to, by place in ``keys_values``; as good as always none.
    """

    keys_values: Tensor
    lengths: tuple[int, ...]
    padding: frozenset[int] = frozenset()


class SourceEncoder(Stack):
    """Encodes sources with a `Transformer`'s weights as they are when it is made."""

    def __init__(self, transformer: Transformer) -> None:
        super().__init__(transformer)
        self._positions_to = transformer.source_positions
        self._positions = transformer.source_positions(self.config.max_source_length).detach()
        self._embedding = transformer.source_embedding.weight.detach()
        self._layers = [
            encoder_maps(layer, self._scale) for layer in cast(Iterable[EncoderLayer], transformer.encoder)
        ]
        self._norm = norm_of(transformer.encoder_norm) if self._pre_norm else None
        # Of all layers together: they read the same memory.
        self._cross_keys_values = fused(
            [
                projection
                for layer in cast(Iterable[DecoderLayer], transformer.decoder)
                for projection in (layer.cross_attention.k_proj, layer.cross_attention.v_proj)
            ]
        )

    def encode(self, sources: Sequence[Sequence[int]]) -> EncodedSources:
        """Returns what the decoder needs of tokenised sources, end-of-sentence last, in their order.

        Sentences of one length stand together, so that nothing is padded and a sentence's numbers are those that it has alone.
        """
        pad_id = self.config.pad_id
        order = sorted(range(len(sources)), key=lambda index: (len(sources[index]), pad_id in sources[index]))
        # Sentences, their length, whether padding is among their tokens.
        runs: list[tuple[int, int, bool]] = []
        for (length, is_padded), indices in itertools.groupby(
            order, key=lambda index: (len(sources[index]), pad_id in sources[index])
        ):
            runs.append((len(list(indices)), length, is_padded))
        lengths = [len(source) for source in sources]
        token_ids = torch.tensor([token for index in order for token in sources[index]], device=self.device)
        places = torch.tensor(
            [place for index in order for place in range(lengths[index])], device=self.device
        )
        longest, table = max(lengths, default=0), self._positions
        if longest > len(table):
            table = self._positions_to(longest)
        x = self._embed(self._embedding, token_ids, table[places])  # (P, D)
        turns = rotation(places, self._head_width, x.dtype) if self._is_rotary else None
        masks = [
            token_ids_of.view(count, 1, 1, length) != pad_id if is_padded else None
            for (count, length, is_padded), token_ids_of in zip(
                runs, token_ids.split([count * length for count, length, _ in runs]), strict=True
            )
        ]
        for layer in self._layers:
            projected = layer.queries_keys_values(self._before(layer.norm, x))  # (P, 3 D)
            if turns:
                projected = self._turned(projected, turns)
            gathered = self._attend_within(projected, runs, masks, layer.mechanism)
            x = self._after(layer.norm, x + layer.out(gathered))
            x = self._feed_forward(x, layer.feed_forward)
        if self._norm:
            x = self._norm(x)
        projected = self._cross_keys_values(x).view(
            -1, self._num_layers, 2, self._num_heads, self._head_width
        )
        if order != sorted(order):  # back in the callers' order
            starts = dict(
                zip(order, itertools.accumulate((lengths[i] for i in order), initial=0), strict=False)
            )
            rows = [starts[i] + place for i in range(len(sources)) for place in range(lengths[i])]
            projected = projected[torch.tensor(rows, device=self.device)]
        padding = frozenset(
            place
            for place, token in enumerate(token for source in sources for token in source)
            if token == pad_id
        )
        return EncodedSources(projected, tuple(lengths), padding)

    def _attend_within(
        self,
        projected: Tensor,
        runs: list[tuple[int, int, bool]],
        masks: list[Tensor | None],
        mechanism: Mechanism | None,
    ) -> Tensor:
        """Returns what the tokens of each sentence, (P, 3 D), gather from one another, (P, D)."""
        gathered = []
        parts = parted(projected, [count * length for count, length, _ in runs])
        for (count, length, _), part, mask in zip(runs, parts, masks, strict=True):
            heads = part.view(count, length, 3, self._num_heads, self._head_width)
            queries, keys, values = heads.permute(2, 0, 3, 1, 4)  # each (n, H, S, K)
            if mechanism is None:
                out = F.scaled_dot_product_attention(queries, keys, values, attn_mask=mask, scale=1.0)
            else:
                out, _ = mechanism(queries, keys, values, mask)
            gathered.append(out.transpose(1, 2).reshape(count * length, -1))
        return joined(gathered)
