"""The structures of ``kernels.c``, as its comments describe them."""

from __future__ import annotations

import ctypes

from dragoman_model.native.values import Pointer, long


class Map(ctypes.Structure):
    """A linear map."""

    _fields_ = (
        ("weight", Pointer), ("scales", Pointer), ("bias", Pointer), ("sums", Pointer),
        ("inputs", long), ("outputs", long),
    )  # fmt: skip


class Norm(ctypes.Structure):
    """A layer normalisation."""

    _fields_ = (("gain", Pointer), ("bias", Pointer), ("eps", ctypes.c_float))


class FeedForward(ctypes.Structure):
    """A feed-forward block."""

    _fields_ = (("norm", Norm), ("inner", Map), ("outer", Map))


class Layer(ctypes.Structure):
    """A layer of either stack; an encoder's has no cross-attention."""

    _fields_ = (
        ("self_norm", Norm), ("self_in", Map), ("self_out", Map),
        ("cross_norm", Norm), ("cross_in", Map), ("cross_out", Map),
        ("feed_forward", FeedForward),
    )  # fmt: skip


class Stack(ctypes.Structure):
    """An encoder or a decoder."""

    _fields_ = (
        ("layers", Pointer), ("embedding", Pointer), ("positions", Pointer), ("last", Norm), ("project", Map),
        ("num_layers", long), ("num_heads", long), ("width", long), ("inner", long),
        ("embedding_scale", ctypes.c_float),
    )  # fmt: skip


class Caches(ctypes.Structure):
    """Keys and values of one layer."""

    _fields_ = (
        ("self", Pointer), ("cross", Pointer), ("self_rows", long), ("self_columns", long),
        ("cross_rows", long), ("cross_columns", long), ("is_half", long),
    )  # fmt: skip


class Wanted(ctypes.Structure):
    """What is asked of the rows' next tokens, and where the answers go."""

    _fields_ = (
        ("sums", Pointer), ("count", long), ("parents", Pointer), ("tokens", Pointer), ("ranks", Pointer),
        ("log_probabilities", Pointer),
    )  # fmt: skip
