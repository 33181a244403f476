"""How a model is trained: a recipe's ``[training]`` table."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from dragoman_model.errors import RecipeError

Precision = Literal["auto", "float32", "bfloat16"]


@dataclass(frozen=True, kw_only=True)
class TrainingOptions:
    """Options of a training run.

    Attributes:
        seed: Seeds weights, dropout, augmentation and the order of batches.
        max_batch_tokens: Padded tokens of one batch on its wider side, at most.
        accumulation_steps: Batches whose gradients make one update; 1 is off.
        learning_rate: Highest learning rate, reached at the end of warm-up.
        warmup_steps: Updates in which the learning rate rises from 0.
        max_steps: Updates at most; the learning rate falls to 0 there.
        weight_decay: AdamW's decoupled decay, on matrices only; 0 is off.
        adam_betas: AdamW's decay rates of the two moments.
        clip_norm: Largest norm of the gradient; 0 is off.
        label_smoothing: Probability mass spread over the whole vocabulary (Szegedy et al. 2016), [0, 1); 0 is off.
        precision: "auto" is bfloat16 autocast where the device multiplies bfloat16 in hardware, else float32.
        evaluate_every_steps: Updates between evaluations on the dev set.
        log_every_steps: Updates between lines of the training log.
        save_every_seconds: Training time between saved states, beside those at evaluations.
        patience: Evaluations without a better dev BLEU after which training stops; 0 is off.
        keep_checkpoints: Best checkpoints kept, and averaged at the end.
    """

    seed: int = 1
    max_batch_tokens: int = 3000
    accumulation_steps: int = 1
    learning_rate: float = 1.5e-3
    warmup_steps: int = 800
    max_steps: int = 20_000
    weight_decay: float = 0.01
    adam_betas: tuple[float, float] = (0.9, 0.98)
    clip_norm: float = 1.0
    label_smoothing: float = 0.1
    precision: Precision = "auto"
    evaluate_every_steps: int = 500
    log_every_steps: int = 50
    save_every_seconds: float = 120.0
    patience: int = 0
    keep_checkpoints: int = 5

    def __post_init__(self) -> None:
        bounds: dict[str, tuple[float, float]] = {
            "max_batch_tokens": (1, 1e9), "accumulation_steps": (1, 1e6), "learning_rate": (1e-9, 10),
            "warmup_steps": (0, 1e9), "max_steps": (1, 1e9), "weight_decay": (0, 10), "clip_norm": (0, 1e9),
            "label_smoothing": (0, 0.999), "evaluate_every_steps": (1, 1e9), "log_every_steps": (1, 1e9),
            "save_every_seconds": (0, 1e9), "patience": (0, 1e9), "keep_checkpoints": (1, 100), "seed": (0, 2**62),
        }  # fmt: skip
        for name, (low, high) in bounds.items():
            value = getattr(self, name)
            whole = isinstance(getattr(type(self), name), int)
            if isinstance(value, bool) or not isinstance(value, int if whole else (int, float)):
                raise ValueError(f"{name} is {value!r}; it must be a {'whole ' if whole else ''}number")
            if not low <= value <= high:
                raise ValueError(f"{name} is {value}; it must lie between {low:g} and {high:g}")
        if self.precision not in ("auto", "float32", "bfloat16"):
            raise ValueError(f"precision is {self.precision!r}; it must be auto, float32 or bfloat16")
        betas: object = self.adam_betas
        if (
            not isinstance(betas, tuple)
            or len(betas) != 2
            or not all(isinstance(beta, (int, float)) and 0 <= beta < 1 for beta in betas)
        ):
            raise ValueError(f"adam_betas is {betas!r}; it must be two numbers from 0 to below 1")


def training_options(table: Mapping[str, object]) -> TrainingOptions:
    """Returns the options that a recipe's ``[training]`` table holds.

    Raises:
        RecipeError: A key is unknown or a value is not allowed; the message says which.
    """
    known = {field.name for field in dataclasses.fields(TrainingOptions)}
    for key in table:
        if key not in known:
            raise RecipeError(f"[training] {key}: unknown key; known are {', '.join(sorted(known))}")
    arguments = dict(table)
    betas = arguments.get("adam_betas")
    if isinstance(betas, list):
        arguments["adam_betas"] = tuple(betas)
    try:
        return TrainingOptions(**arguments)  # type: ignore[arg-type]  # checked in __post_init__
    except (TypeError, ValueError) as error:
        raise RecipeError(f"[training] {error}") from None
