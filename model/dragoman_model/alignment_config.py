"""Which cross-attention of a model links words, as ``config.json`` holds it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, get_args

AlignmentMethod = Literal["naive", "shifted"]
Weighting = Literal["prior", "posterior"]


@dataclass(frozen=True, kw_only=True)
class AlignmentConfig:
    """The heads that align best, found at the end of training.

    Attributes:
        layer: Decoder layer, from 0.
        heads: Its heads, from 0, each once, one or more; their mean counts.
        method: Which row is a word's: that of the step in which it is predicted ("naive"), or that of the step in which the
            decoder reads it ("shifted", Chen et al. 2020).
        weighting: Attention as it is, before the word is known ("prior"), or times what each source position says of the word
            that was written ("posterior", Shankar and Sarawagi 2019).
    """

    layer: int
    heads: tuple[int, ...]
    method: AlignmentMethod = "naive"
    weighting: Weighting = "prior"

    def __post_init__(self) -> None:
        if not _is_index(self.layer):
            raise ValueError(f"layer is {self.layer!r}; it must be a number from 0")
        if not isinstance(self.heads, tuple) or not self.heads or not all(map(_is_index, self.heads)):
            raise ValueError(f"heads is {self.heads!r}; it must hold one or more numbers from 0")
        if len(set(self.heads)) < len(self.heads):
            raise ValueError(f"heads is {self.heads!r}; each may be there once")
        if self.method not in get_args(AlignmentMethod):
            raise ValueError(f"method is {self.method!r}; it must be 'naive' or 'shifted'")
        if self.weighting not in get_args(Weighting):
            raise ValueError(f"weighting is {self.weighting!r}; it must be 'prior' or 'posterior'")

    def check_shape(self, num_layers: int, num_heads: int) -> None:
        """Refuses layers and heads that a model doesn't have.

        Raises:
            ValueError: The message says which.
        """
        if self.layer >= num_layers:
            raise ValueError(f"layer is {self.layer}; the decoder has layers 0 to {num_layers - 1}")
        if max(self.heads) >= num_heads:
            raise ValueError(f"heads is {self.heads!r}; a layer has heads 0 to {num_heads - 1}")


def alignment_from_mapping(values: Mapping[str, object]) -> AlignmentConfig:
    """Returns the choice that ``values``, from JSON, describe.

    Raises:
        ValueError: A key is unknown or missing, or a value is not allowed; the message says which.
    """
    known = {"layer", "heads", "method", "weighting"}
    for name in sorted(set(values) - known):
        raise ValueError(f"unknown key {name!r}; known are {', '.join(sorted(known))}")
    for name in ("layer", "heads"):
        if name not in values:
            raise ValueError(f"{name} is missing")
    heads = values["heads"]
    arguments = {**values, "heads": tuple(heads) if isinstance(heads, list) else heads}
    return AlignmentConfig(**arguments)  # type: ignore[arg-type]  # checked in __post_init__


def _is_index(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0
