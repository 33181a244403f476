"""What each source position, looked at alone, says of each word that was written.

Shapes: T target length, S source length, D width, H heads, K head width.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from dragoman_model.layers import DecoderLayer
from dragoman_model.transformer import Transformer


def direct_logits(
    transformer: Transformer,
    memory: Tensor,
    states: Tensor,
    target_ids: Tensor,
    heads: Sequence[tuple[int, int]],
) -> Tensor:
    """Returns what full attention to each source position would add to the logit of each target token, (T, S).

    A head that looks at position j alone adds W_O v_j to the decoder's state. What reaches the logit of token y of it without
    passing through another layer is e_y · (γ ⊙ (W_O v_j − mean)) / σ, with γ and σ those of the last normalisation.

    Args:
        transformer: The model.
        memory: From `encode`, (1, S, D).
        states: The decoder's states before the last normalisation, (1, T, D).
        target_ids: The tokens that were written, (T,).
        heads: (layer, head) pairs, whose contributions add up.
    """
    config = transformer.config
    added = torch.zeros(memory.size(1), config.d_model, device=memory.device)
    for layer in sorted({layer for layer, _ in heads}):
        attention = _decoder_layer(transformer, layer).cross_attention
        _, values = attention.project_keys_values(memory)  # (1, H, S, K)
        chosen = torch.zeros_like(values)
        indices = [head for index, head in heads if index == layer]
        chosen[:, indices] = values[:, indices]
        # The difference leaves the bias out, in integers, too.
        gathered = attention.merge_heads(chosen) - attention.merge_heads(torch.zeros_like(chosen))
        added += gathered[0].float()
    embeddings = transformer.output_weight[target_ids].float()  # (T, D)
    norm = transformer.decoder_norm
    if not isinstance(norm, nn.LayerNorm):  # post-norm: what was added has been scaled with everything else
        return embeddings @ added.T
    added = (added - added.mean(-1, keepdim=True)) * norm.weight.float()
    scale = (states[0].float().var(-1, unbiased=False, keepdim=True) + norm.eps).sqrt()  # (T, 1)
    return embeddings @ added.T / scale


def _decoder_layer(transformer: Transformer, index: int) -> DecoderLayer:
    layer = transformer.decoder[index]
    assert isinstance(layer, DecoderLayer)
    return layer
