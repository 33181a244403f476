"""Linear maps in 8-bit integers: a quarter of the weights' bytes, and several products an instruction.

Weights are quantised once, with one scale for each output. Activations are quantised as they come, with one scale for each
row, and products of integers are exact: what a row gets depends on nothing that stands beside it, to the last bit.

    y = (q · W_q) s_row s_output + b,   q = round(x / s_row),   s_row = max |x| / levels

Shapes: R rows, K inputs, N outputs.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

_log = logging.getLogger(__name__)

_MOST_HALF = torch.finfo(torch.float16).max

# Sums of products of integers, (R, N), from activations, (R, K), int8.
_Product = Callable[[Tensor], Tensor]

_WEIGHT_LEVELS = 127
# Added to a row's scale, so that a row of zeros is not divided by 0; far below what float32 adds to any other scale.
_TINY = 1e-30


class Kernel:
    """How matrices of 8-bit integers are multiplied on some processors.

    Attributes:
        name: For the log.
        levels: Largest absolute value of an activation that it multiplies exactly.
        is_fast: Faster than the same product in float32.
    """

    name: str
    levels: int
    is_fast: bool = True

    def product(self, weight: Tensor) -> _Product:
        """Returns the product with ``weight``, (N, K), int8, laid out as the kernel likes it."""
        raise NotImplementedError


class _IntegerKernel(Kernel):
    """PyTorch's own integer product, which oneDNN computes where the processor adds four products an instruction."""

    name, levels = "int8 dot products", 127

    def product(self, weight: Tensor) -> _Product:
        transposed = weight.contiguous().t()
        return lambda q: torch._int_mm(q, transposed)


class _PackedKernel(Kernel):
    """oneDNN's quantised linear map on packed weights.

    Without instructions for it, products of unsigned activations and signed weights are added in pairs of 16 bits:
    2 × 127 × 127 just fits, 2 × 255 × 127 does not. So activations have 7 bits.
    """

    name, levels = "packed int8, 7-bit activations", 63
    _ZERO = 64

    def product(self, weight: Tensor) -> _Product:
        packed = torch.ops.onednn.qlinear_prepack(weight.contiguous(), None)
        scales = torch.ones(len(weight))
        zeros = torch.zeros(len(weight), dtype=torch.long)

        def multiply(q: Tensor) -> Tensor:
            return torch.ops.onednn.qlinear_pointwise(
                (q + self._ZERO).view(torch.uint8), 1.0, self._ZERO, packed, scales, zeros,
                None, 1.0, 0, torch.float32, "none", [], "",
            )  # fmt: skip

        return multiply


class _FloatKernel(Kernel):
    """Integers as float32, which holds them exactly up to 2^24: right everywhere, and no faster than float32."""

    name, levels, is_fast = "integers as float32", 127, False

    def product(self, weight: Tensor) -> _Product:
        levels = weight.float()
        return lambda q: F.linear(q.float(), levels)


def best_kernel() -> Kernel:
    """Returns the fastest kernel of this processor that multiplies exactly, as a product of known numbers shows."""
    candidates: list[Kernel] = []
    if torch.backends.mkldnn.is_available():
        if torch.cpu._is_vnni_supported():
            candidates.append(_IntegerKernel())
        elif torch.backends.cpu.get_cpu_capability() in ("AVX2", "AVX512"):
            candidates.append(_PackedKernel())
    for kernel in candidates:
        try:
            if is_exact(kernel):
                return kernel
            _log.warning("int8 kernel %r gives wrong products here; using float32 for them", kernel.name)
        except RuntimeError as error:  # an operator that this PyTorch lacks or builds differently
            _log.warning("int8 kernel %r does not run here (%s); using float32 for it", kernel.name, error)
    return _FloatKernel()


def is_exact(kernel: Kernel) -> bool:
    """Returns whether a kernel's products are those of the definition, the largest numbers among them."""
    generator = torch.Generator().manual_seed(0)
    for num_rows in (1, 7, 64):
        q = torch.randint(-kernel.levels, kernel.levels + 1, (num_rows, 96), generator=generator)
        weight = torch.randint(-_WEIGHT_LEVELS, _WEIGHT_LEVELS + 1, (80, 96), generator=generator)
        q[0], weight[0], weight[1] = kernel.levels, _WEIGHT_LEVELS, -_WEIGHT_LEVELS
        product = kernel.product(weight.to(torch.int8))(q.to(torch.int8))
        if not product.double().equal(q.double() @ weight.double().t()):
            return False
    return True


class Int8Linear(nn.Module):
    """A linear map with 8-bit weights, in the place of a `torch.nn.Linear`."""

    def __init__(self, weight: Tensor, scales: Tensor, bias: Tensor | None, kernel: Kernel) -> None:
        """Takes quantised weights.

        Args:
            weight: (N, K), int8.
            scales: What an output's integers stand for, (N,), float32.
            bias: (N,), float32, or None.
            kernel: From `best_kernel`.
        """
        super().__init__()
        self.register_buffer("weight", weight, persistent=False)
        self.register_buffer("scales", scales, persistent=False)
        self.register_buffer("bias", bias, persistent=False)
        self.weight: Tensor
        self.scales: Tensor
        self.bias: Tensor | None
        self._kernel = kernel
        self._product = kernel.product(weight)
        self._tiny = torch.tensor(_TINY)
        self._step = 1 / kernel.levels

    @classmethod
    def quantize(cls, weight: Tensor, bias: Tensor | None, kernel: Kernel) -> Int8Linear:
        """Returns the map of float32 weights, (N, K), and a bias, (N,), in 8 bits."""
        weight = weight.detach()
        scales = weight.abs().amax(1).clamp_min(_TINY) / _WEIGHT_LEVELS
        levels = (weight / scales[:, None]).round_().to(torch.int8)
        return cls(levels, scales, None if bias is None else bias.detach().clone(), kernel)

    @classmethod
    def fused(cls, maps: Sequence[Int8Linear], factors: Sequence[float]) -> Int8Linear:
        """Returns one map with the outputs of several side by side, those of each multiplied by a factor."""
        biases = [
            None if one.bias is None else one.bias * factor for one, factor in zip(maps, factors, strict=True)
        ]
        return cls(
            torch.cat([one.weight for one in maps]),
            torch.cat([one.scales * factor for one, factor in zip(maps, factors, strict=True)]),
            None if biases[0] is None else torch.cat([bias for bias in biases if bias is not None]),
            maps[0]._kernel,
        )

    def forward(self, x: Tensor) -> Tensor:
        """Returns the map of ``x``, (…, K), float32, as (…, N)."""
        return self.rows(x.flatten(0, -2)).unflatten(0, x.shape[:-1])

    def rows(self, x: Tensor) -> Tensor:
        """Returns the map of rows, (R, K), float32, as (R, N)."""
        steps = torch.add(self._tiny, x.abs().amax(-1, keepdim=True), alpha=self._step)  # (R, 1)
        q = torch.div(x, steps).round_().to(torch.int8)
        sums = self._product(q) * self.scales
        return sums.mul_(steps) if self.bias is None else torch.addcmul(self.bias, sums, steps)


def in_half_precision(keys_values: Tensor) -> Tensor:
    """Returns a decoder's keys or values as they are kept beside 8-bit weights, float16; what is too large becomes its largest number."""
    return keys_values.clamp(-_MOST_HALF, _MOST_HALF).half()


def quantize(module: nn.Module, kernel: Kernel) -> None:
    """Puts an `Int8Linear` in the place of every linear map in ``module``."""
    for name, child in module.named_children():
        if isinstance(child, nn.Linear):
            setattr(module, name, Int8Linear.quantize(child.weight, child.bias, kernel))
        else:
            quantize(child, kernel)
