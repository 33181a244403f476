"""Which device and which precision a model runs in."""

from __future__ import annotations

import torch

from dragoman_model.errors import DeviceError

_PRECISIONS = {
    "float32": torch.float32,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
    "int8": torch.int8,
}


def resolve_device(device: str) -> torch.device:
    """Returns the device that ``device`` names: "auto", "cpu", "cuda" or "cuda:N".

    Raises:
        DeviceError: There is no such device here.
    """
    if device == "auto":
        return torch.device("cuda", 0) if torch.cuda.is_available() else torch.device("cpu")
    try:
        resolved = torch.device(device)
    except RuntimeError:
        resolved = None
    if resolved is None or resolved.type not in ("cpu", "cuda"):
        raise DeviceError(f"device {device!r} is not known; use auto, cpu, cuda or cuda:N")
    if resolved.type == "cpu":
        return torch.device("cpu")
    if not torch.cuda.is_available():
        raise DeviceError(
            f"device {device!r} asks for a GPU, but PyTorch sees none here; use cpu, or install a CUDA build"
        )
    index = resolved.index or 0
    if index >= torch.cuda.device_count():
        raise DeviceError(
            f"device {device!r}: there are {torch.cuda.device_count()} GPUs here, numbered from 0"
        )
    return torch.device("cuda", index)


def resolve_precision(precision: str, device: torch.device) -> torch.dtype:
    """Returns the dtype that ``precision`` names on ``device``; "auto" is bfloat16 on a GPU, float32 elsewhere.

    Raises:
        DeviceError: The precision is unknown or not supported there.
    """
    if precision == "auto":
        return torch.bfloat16 if device.type == "cuda" else torch.float32
    if precision not in _PRECISIONS:
        raise DeviceError(f"precision {precision!r} is not supported; use auto, {', '.join(_PRECISIONS)}")
    if precision == "float16" and device.type == "cpu":
        raise DeviceError("precision 'float16' needs a GPU; use float32 or bfloat16 on a CPU")
    if precision == "int8" and device.type != "cpu":
        raise DeviceError("precision 'int8' runs on a CPU; use bfloat16 or float32 on a GPU")
    return _PRECISIONS[precision]


def computes_bfloat16(device: torch.device) -> bool:
    """Returns whether ``device`` multiplies bfloat16 matrices in hardware, so that it is the faster choice there."""
    if device.type == "cuda":
        return torch.cuda.is_bf16_supported(including_emulation=False)
    return bool(torch.cpu._is_avx512_bf16_supported())
