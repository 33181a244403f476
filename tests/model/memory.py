"""How large the tensors are that attention makes."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from dragoman_model.attention import Mechanism


def largest_tensor(mechanism: Mechanism, length: int, *, trained: bool) -> int:
    """Returns the elements of the largest tensor made by attention over so many positions, in training backward, too."""
    inputs = [torch.randn(1, 2, length, 5, requires_grad=True) for _ in range(3)]
    with _Watch() as watch, torch.set_grad_enabled(trained):
        out, _ = mechanism(*inputs)
        if trained:
            out.sum().backward()
    return watch.largest


class _Watch(TorchDispatchMode):
    """Notes the largest tensor that any operator returns."""

    largest = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        for one in out if isinstance(out, tuple | list) else (out,):
            if isinstance(one, torch.Tensor):
                self.largest = max(self.largest, one.numel())
        return out
