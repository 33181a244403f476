"""How a model knows where a token stands.

`sinusoidal_positions` are added to the embeddings, as are learned ones, which are the `Transformer`'s parameters: a row for
each position (Gehring et al. 2017, section 3.1). `rotate` turns queries and keys inside self-attention; relative positions
are a mechanism of their own, `RelativeAttention`.

Shapes: T positions, D width, K head width.
"""

from __future__ import annotations

import torch
from torch import Tensor

from dragoman_model.config import SinusoidLayout


def sinusoidal_positions(length: int, d_model: int, layout: SinusoidLayout = "interleaved") -> Tensor:
    """Returns the position table, (T, D), float32.

    PE(p, 2i) = sin(p / 10000^(2i/D)) and PE(p, 2i+1) = cos(p / 10000^(2i/D)): PE(p + Δ) is a fixed rotation of PE(p),
    the same for every p. "concatenated" holds the same sines in the first half and the cosines in the second, as Marian
    does. Angles are computed in float64, since float32 loses digits at late positions.

    Args:
        length: Number of positions T, from 0.
        d_model: Width D, even.
        layout: "interleaved" or "concatenated".
    """
    positions = torch.arange(length, dtype=torch.float64)
    frequencies = 10000.0 ** (-torch.arange(0, d_model, 2, dtype=torch.float64) / d_model)  # (D/2,)
    angles = torch.outer(positions, frequencies)  # (T, D/2)
    if layout == "interleaved":
        table = torch.stack((angles.sin(), angles.cos()), dim=-1).flatten(1)  # (T, D)
    else:
        table = torch.cat((angles.sin(), angles.cos()), dim=-1)  # (T, D)
    return table.float()


def rotation(positions: Tensor, width: int, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Returns cos(m θᵢ) and sin(m θᵢ) of the angles by which `rotate` turns a vector at position m.

    θᵢ = 10000^(−2i/K), i = 0 … K/2 − 1 (Su et al. 2021, eq. 15, counted from 0). Angles are computed in float64, since
    float32 loses digits at late positions.

    Args:
        positions: Positions m, whole numbers, (…).
        width: Width K of the vectors, even.
        dtype: Of the result.

    Returns:
        Cosines and sines, each (…, K/2).
    """
    frequencies = 10000.0 ** (
        -torch.arange(0, width, 2, dtype=torch.float64, device=positions.device) / width
    )
    angles = positions[..., None].double() * frequencies  # (…, K/2)
    return angles.cos().to(dtype), angles.sin().to(dtype)


def rotate(x: Tensor, cosines: Tensor, sines: Tensor) -> Tensor:
    """Returns vectors whose coordinates are turned pair by pair.

    (x₂ᵢ, x₂ᵢ₊₁) becomes (x₂ᵢ cos mθᵢ − x₂ᵢ₊₁ sin mθᵢ, x₂ᵢ sin mθᵢ + x₂ᵢ₊₁ cos mθᵢ) (Su et al. 2021, eq. 34). With
    R_m for that rotation, ⟨R_m q, R_n k⟩ = ⟨q, R_{n−m} k⟩: a score knows how far the key is from the query, and neither's
    own place. There are angles for every position, so no sequence is too long.

    Args:
        x: (…, K).
        cosines: From `rotation`, broadcasts to (…, K/2).
        sines: Likewise.
    """
    first, second = x.unflatten(-1, (-1, 2)).unbind(-1)  # (…, K/2) each
    turned = first * cosines - second * sines, first * sines + second * cosines
    return torch.stack(turned, dim=-1).flatten(-2)
