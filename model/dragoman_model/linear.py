"""Linear maps laid out for inference.

Shapes: R rows, K inputs, N outputs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor, nn

Activation = Callable[[Tensor], Tensor]


class Map(Protocol):
    """A linear map, its activation included."""

    def __call__(self, x: Tensor, /) -> Tensor:
        """Returns the map of rows, (R, N), from (R, K)."""


class _FloatMap:
    """A map in the model's floating-point precision."""

    def __init__(self, weight: Tensor, bias: Tensor | None, activation: Activation | None) -> None:
        self._weight, self._bias, self._activation = weight, bias, activation

    def __call__(self, x: Tensor, /) -> Tensor:
        y = F.linear(x, self._weight, self._bias)
        return y if self._activation is None else self._activation(y)


def fused(
    linears: Sequence[nn.Module], scales: Sequence[float] = (), activation: Activation | None = None
) -> Map:
    """Returns one map that gives the outputs of several, which read the same input, side by side.

    Args:
        linears: The maps, all of one kind.
        scales: What the outputs of each are multiplied by; empty is 1 everywhere.
        activation: Applied to the outputs.
    """
    scales = scales or [1.0] * len(linears)
    weights, biases = [], []
    for linear, scale in zip(linears, scales, strict=True):
        assert isinstance(linear, nn.Linear)
        weights.append(linear.weight.detach() * scale)
        biases.append(linear.bias.detach() * scale)
    return _FloatMap(torch.cat(weights), torch.cat(biases), activation)


def output_map(weight: Tensor, bias: Tensor | None) -> Map:
    """Returns the map to the vocabulary."""
    return _FloatMap(weight.detach(), None if bias is None else bias.detach(), None)
