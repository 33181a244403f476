"""Linear maps laid out as the kernels multiply them: in 8-bit integers or in float32.

Shapes: K inputs, N outputs.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Sequence
from typing import NamedTuple, cast

import torch
from torch import Tensor, nn

from dragoman_model.native.memory import WeightMemory
from dragoman_model.native.structures import Map
from dragoman_model.native.values import long, pointer
from dragoman_model.quantization import Int8Linear
from dragoman_model.transformer import Transformer


class HeldMap(NamedTuple):
    """A map, and what it points to."""

    map: Map
    tensors: tuple[Tensor, ...]


def fused(
    library: ctypes.CDLL, memory: WeightMemory, linears: Sequence[nn.Module], factors: Sequence[float] = ()
) -> HeldMap:
    """Returns one map with the outputs of several, all of one kind, side by side.

    Args:
        library: The kernels.
        memory: Where the weights go.
        linears: The maps, `Int8Linear` or `torch.nn.Linear`.
        factors: What the outputs of each are multiplied by; empty is 1 everywhere.
    """
    factors = factors or [1.0] * len(linears)
    if isinstance(linears[0], Int8Linear):
        linear = Int8Linear.fused(cast(Sequence[Int8Linear], linears), factors)
        return int8_map(library, memory, linear.weight, linear.scales, linear.bias)
    floats = cast(Sequence[nn.Linear], linears)
    return float_map(
        library,
        memory,
        torch.cat([one.weight.detach() * factor for one, factor in zip(floats, factors, strict=True)]),
        torch.cat([one.bias.detach() * factor for one, factor in zip(floats, factors, strict=True)]),
    )


def output_map(library: ctypes.CDLL, memory: WeightMemory, transformer: Transformer) -> HeldMap:
    """Returns the map to the vocabulary."""
    if transformer.int8_output is not None:
        return fused(library, memory, [transformer.int8_output])
    bias = transformer.output_bias
    return float_map(
        library, memory, transformer.output_weight.detach(), None if bias is None else bias.detach()
    )


def int8_map(
    library: ctypes.CDLL, memory: WeightMemory, weight: Tensor, scales: Tensor, bias: Tensor | None
) -> HeldMap:
    """Returns the map of weights, (N, K), int8, scales, (N,), and a bias, (N,)."""
    outputs, inputs = weight.shape
    weight, packed = weight.contiguous(), memory.empty((outputs, inputs), torch.int8)
    sums = torch.empty(outputs, dtype=torch.int32)
    library.pack(pointer(weight), long(outputs), long(inputs), pointer(packed), pointer(sums))
    bias = torch.zeros(outputs) if bias is None else bias.contiguous()
    tensors = packed, scales.contiguous(), bias, sums
    return HeldMap(Map(*(tensor.data_ptr() for tensor in tensors), inputs, outputs), tensors)


def float_map(library: ctypes.CDLL, memory: WeightMemory, weight: Tensor, bias: Tensor | None) -> HeldMap:
    """Returns the map of weights, (N, K), float32, and a bias, (N,)."""
    outputs, inputs = weight.shape
    weight, packed = weight.contiguous(), memory.empty((outputs, inputs), torch.float32)
    library.pack_floats(pointer(weight), long(outputs), long(inputs), pointer(packed))
    bias = torch.zeros(outputs) if bias is None else bias.contiguous()
    return HeldMap(Map(packed.data_ptr(), None, bias.data_ptr(), None, inputs, outputs), (packed, bias))


@functools.cache
def is_exact(library: ctypes.CDLL, *, int8: bool) -> bool:
    """Returns whether the kernels' products of integers are those of the definition, the largest numbers among them.

    All sums are below 2^21, so that float32, too, holds each of them exactly, in whatever order they are added up.
    """
    levels = int(library.levels())
    memory, generator = WeightMemory(), torch.Generator().manual_seed(0)
    for num_rows in (1, 2, 3, 4, 5, 7, 64):
        x = torch.randint(-levels, levels + 1, (num_rows, 96), generator=generator).float()
        weight = torch.randint(-127, 128, (80, 96), generator=generator, dtype=torch.int8)
        x[0], weight[0], weight[1] = levels, 127, -127
        x[:, 0] = levels  # so that a level is 1 in every row
        held = (
            int8_map(library, memory, weight, torch.ones(80), None)
            if int8
            else float_map(library, memory, weight.float(), None)
        )
        out, scratch = torch.empty((num_rows, 80)), torch.empty(num_rows * 97 + 16)
        library.map_rows(
            ctypes.byref(held.map), pointer(x), long(num_rows), pointer(out), pointer(scratch)
        )  # fmt: skip
        found = out.round() if int8 else out  # scales are off by less than a half
        if not found.double().equal(x.double() @ weight.double().t()):
            return False
    return True
