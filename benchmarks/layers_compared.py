"""One layer each of what can carry information along a sequence, and what there is to measure of one.

Shapes: n positions of width D. Every layer maps (1, n, D) to (1, n, D).
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from dragoman_model.attention import Mechanism, MultiHeadAttention
from dragoman_model.favor_attention import FavorAttention
from dragoman_model.window_attention import WindowAttention

WIDTH = 64
KERNEL = 9
WINDOW = 64
FEATURES = 64

Apply = Callable[[Tensor], Tensor]


@dataclass(frozen=True, kw_only=True)
class Layer:
    """One layer, and what the literature says of it (Vaswani et al. 2017, table 1).

    Attributes:
        name: As the table and the JSON show it.
        family: "recurrence", "convolution" or "self-attention".
        apply: The layer.
        update: What it does to all positions in one step, each reading what its neighbours had before: the layer itself, but
            for a recurrent one, which takes n of them.
        time: Exponent of n in its time.
        memory: Exponent of n in its memory.
        steps: Operations that must wait for one another.
        path: Updates until the first position reaches the last.
    """

    name: str
    family: str
    apply: Apply
    update: Apply
    time: int
    memory: int
    steps: str
    path: str


def make_layers(seed: int = 0) -> list[Layer]:
    """Returns the layers with random weights, all of the same width, attention with one head."""
    torch.manual_seed(seed)
    lstm = nn.LSTM(WIDTH, WIDTH, batch_first=True)
    convolution = nn.Conv1d(WIDTH, WIDTH, KERNEL, padding=KERNEL // 2)
    full = MultiHeadAttention(WIDTH, 1)
    window = MultiHeadAttention(WIDTH, 1, WindowAttention(WINDOW, causal=False))
    linear = MultiHeadAttention(WIDTH, 1, FavorAttention(FEATURES, WIDTH))

    def recur_once(x: Tensor) -> Tensor:
        """One step of the LSTM at all positions at once, each with the state that the one before it had."""
        before = nn.functional.pad(x, (0, 0, 1, -1))
        out, _ = lstm(x.transpose(0, 1), (before, torch.zeros_like(before)))  # n sequences of one position
        return out.transpose(0, 1)

    def convolve(x: Tensor) -> Tensor:
        return convolution(x.transpose(1, 2)).transpose(1, 2)

    def attention(module: MultiHeadAttention, need_weights: bool = False) -> Apply:
        return lambda x: module(x, x, need_weights=need_weights)[0]

    def layer(name: str, apply: Apply, update: Apply | None = None, **theory: Any) -> Layer:
        return Layer(name=name, apply=apply, update=update or apply, **theory)

    assert type(full.mechanism) is Mechanism
    return [
        layer(
            "LSTM", lambda x: lstm(x)[0], recur_once,
            family="recurrence", time=1, memory=1, steps="n", path="n − 1",
        ),
        layer(
            f"convolution, kernel {KERNEL}", convolve,
            family="convolution", time=1, memory=1, steps="1", path=f"⌈(n − 1) / {KERNEL // 2}⌉",
        ),
        layer(
            "full, explicit", attention(full, need_weights=True),
            family="self-attention", time=2, memory=2, steps="1", path="1",
        ),
        layer("full, fused", attention(full), family="self-attention", time=2, memory=1, steps="1", path="1"),
        layer(
            f"sliding window, {WINDOW}", attention(window),
            family="self-attention", time=1, memory=1, steps="1", path=f"⌈(n − 1) / {WINDOW - 1}⌉",
        ),
        layer(
            f"linear (FAVOR+), {FEATURES} features", attention(linear),
            family="self-attention", time=1, memory=1, steps="1", path="1",
        ),
    ]  # fmt: skip


@torch.inference_mode()
def cpu_seconds(apply: Apply, n: int, least: float = 0.02) -> float:
    """Returns the processor's time for one pass over n positions, the mean of as many as take ``least`` seconds together."""
    x = torch.randn(1, n, WIDTH)
    apply(x)  # gets the memory that the others find
    passes = 0
    started = time.process_time()
    while (taken := time.process_time() - started) < least:
        apply(x)
        passes += 1
    return taken / passes


@torch.inference_mode()
def peak_bytes(apply: Apply, n: int) -> int:
    """Returns the most that PyTorch held at any time of one pass, without the input and the weights."""
    x = torch.randn(1, n, WIDTH)
    apply(x)  # what a first pass allocates for good is no part of the next
    activities = [torch.profiler.ProfilerActivity.CPU]
    with torch.profiler.profile(activities=activities, profile_memory=True) as profile:
        out = apply(x)
    del out
    assert profile.profiler is not None
    held = most = 0
    for event in profile.profiler.kineto_results.events():
        if event.name() == "[memory]":
            held += event.nbytes()
            most = max(most, held)
    return most


def positions_reached(update: Apply, n: int) -> Tensor:
    """Returns from which positions a gradient reaches which, (n, n): row t is True where the output at t depends on s."""
    x = torch.randn(1, n, WIDTH, requires_grad=True)
    sums = update(x)[0].sin().sum(-1)  # of no linear map of the outputs: a normalised one would cancel out
    rows = [torch.autograd.grad(one, x, retain_graph=True)[0][0] for one in sums]
    return torch.stack([(row != 0).any(-1) for row in rows])


def path_length(reached: Tensor) -> int:
    """Returns after how many updates the last position has heard of the first, or 0 if it never does.

    Args:
        reached: What one update reaches, from `positions_reached`.
    """
    heard = torch.zeros(len(reached), dtype=torch.bool)
    heard[0] = True
    for updates in range(1, len(reached) + 1):
        heard = (reached & heard).any(1)
        if heard[-1]:
            return updates
    return 0


def sequential_steps(apply: Apply, n: int) -> int:
    """Returns how many operations over n positions must wait for one another, counted in positions.

    A layer whose longest chain of operators, each reading the last one's result, is as long for 2n positions as for n takes one
    step; one whose chain grows with every position takes n.
    """
    growth = longest_chain(apply, 2 * n) - longest_chain(apply, n)
    return n if growth >= n else 1


@torch.no_grad()
def longest_chain(apply: Apply, n: int) -> int:
    """Returns how many operators must run one after another for n positions, an LSTM taken apart into its own."""
    x = torch.randn(1, n, WIDTH)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # of a setting that isn't touched
        with torch.backends.mkldnn.flags(enabled=False), _Chains() as chains:
            apply(x)
    return chains.longest


class _Chains(TorchDispatchMode):
    """Notes for each memory by how many operators in a row it came about."""

    def __init__(self) -> None:
        super().__init__()
        self.longest = 0
        self._chains: dict[int, int] = {}
        self._held: list[Tensor] = []  # so that no address comes twice

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        out = func(*args, **(kwargs or {}))
        read = [self._chains.get(_address(one), 0) for one in _tensors((args, dict(kwargs or {})))]
        made = _tensors(out)
        read_addresses = {_address(one) for one in _tensors((args, dict(kwargs or {})))}
        is_view = all(_address(one) in read_addresses for one in made) and not func._schema.is_mutable
        chain = max(read, default=0) + (not is_view)
        for one in made:
            self._chains[_address(one)] = chain
            self._held.append(one)
        self.longest = max(self.longest, chain)
        return out


def _tensors(value: Any) -> list[Tensor]:
    if isinstance(value, Tensor):
        return [value]
    if isinstance(value, dict):
        value = list(value.values())
    return [one for part in value for one in _tensors(part)] if isinstance(value, list | tuple) else []


def _address(tensor: Tensor) -> int:
    return tensor.untyped_storage().data_ptr()
