"""Sinusoidal positions (Vaswani et al. 2017, section 3.5).

Shapes: T positions, D width.
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
