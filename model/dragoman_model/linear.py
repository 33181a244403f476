"""Linear maps laid out for inference.

Shapes: R rows, K inputs, N outputs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dragoman_model.quantization import Int8Linear
from dragoman_model.transformer import Transformer

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
    quantized = [linear for linear in linears if isinstance(linear, Int8Linear)]
    if quantized:
        return _rows_of(Int8Linear.fused(quantized, scales), activation)
    weights, biases = [], []
    for linear, scale in zip(linears, scales, strict=True):
        assert isinstance(linear, nn.Linear)
        weights.append(linear.weight.detach() * scale)
        biases.append(linear.bias.detach() * scale)
    return _FloatMap(torch.cat(weights), torch.cat(biases), activation)


def output_map(transformer: Transformer) -> Map:
    """Returns the map to the vocabulary."""
    if transformer.int8_output is not None:
        return transformer.int8_output.rows
    bias = transformer.output_bias
    return _FloatMap(transformer.output_weight.detach(), None if bias is None else bias.detach(), None)


def _rows_of(linear: Int8Linear, activation: Activation | None) -> Map:
    if activation is None:
        return linear.rows
    return lambda x: activation(linear.rows(x))
