"""What a training run needs to go on after it was stopped, and the files that hold it."""

from __future__ import annotations

import dataclasses
import json
import os
import pickle
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from dragoman_model.errors import TrainingError

TRAINING_FOLDER = "training"  # of a model directory: what is here
STATE_FILE = "state.pt"
LOG_FILE = "log.jsonl"

# What reading a file that is cut short, foreign or of another model may raise, beside OSError.
_MISFITS = (
    RuntimeError,
    ValueError,
    LookupError,
    TypeError,
    AttributeError,
    EOFError,
    pickle.UnpicklingError,
)


@dataclass
class RunState:
    """Where a run stands.

    Attributes:
        recipe_digest: SHA-256 of the recipe that it follows.
        step: Updates made.
        epoch: The epoch under way, from 0.
        batch_index: Batches of that epoch that are done.
        seconds: Training time so far, over all runs.
        best: (dev BLEU, step) of the checkpoints kept, best first.
        evaluations_since_best: Evaluations since dev BLEU last rose.
    """

    recipe_digest: str
    step: int = 0
    epoch: int = 0
    batch_index: int = 0
    seconds: float = 0.0
    best: list[tuple[float, int]] = field(default_factory=list)
    evaluations_since_best: int = 0


def write_atomically(path: Path, write: Callable[[Path], None]) -> None:
    """Writes a file so that ``path`` holds the old content or the new one, never a part."""
    temporary = path.with_name(path.name + ".partial")
    write(temporary)
    with temporary.open("rb") as file:
        os.fsync(file.fileno())
    temporary.replace(path)


def save_state(
    directory: Path, state: RunState, weights: Mapping[str, Tensor], optimizer: torch.optim.Optimizer
) -> None:
    """Writes the run's state, with the random generators', in one atomic step."""
    content: dict[str, Any] = {
        "state": dataclasses.asdict(state),
        "weights": dict(weights),
        "optimizer": optimizer.state_dict(),
        "cpu_rng": torch.get_rng_state(),
        "cuda_rng": torch.cuda.get_rng_state_all() if torch.cuda.is_available() else [],
    }
    write_atomically(directory / STATE_FILE, lambda path: torch.save(content, path))


def require_state(directory: Path) -> Path:
    """Returns the file of a run's saved state.

    Raises:
        TrainingError: There is none.
    """
    path = directory / STATE_FILE
    if not path.is_file():
        raise TrainingError(
            f"{path}: no such file; there is no run to resume here, start one without --resume"
        )
    return path


def restore_state(
    directory: Path, weights: Mapping[str, Tensor], optimizer: torch.optim.Optimizer
) -> RunState:
    """Puts a saved state into weights, optimizer and random generators, and returns the rest of it.

    Raises:
        TrainingError: There is no state, or it does not fit.
    """
    path = require_state(directory)
    try:
        content = torch.load(path, map_location="cpu", weights_only=True)
        if content["weights"].keys() != weights.keys():
            raise TrainingError(
                f"{path}: the saved weights are of another model; use the recipe that the run began with"
            )
        with torch.no_grad():
            for name, parameter in weights.items():
                parameter.copy_(content["weights"][name])
        optimizer.load_state_dict(content["optimizer"])
        torch.set_rng_state(content["cpu_rng"])
        if content["cuda_rng"] and torch.cuda.is_available():
            torch.cuda.set_rng_state_all(content["cuda_rng"])
        values = content["state"]
        values["best"] = [(float(bleu), int(step)) for bleu, step in values["best"]]
        return RunState(**values)
    except (OSError, *_MISFITS) as error:
        raise TrainingError(f"{path}: not a state of this run ({error})") from None


class CheckpointStore:
    """Weights of the best checkpoints, one safetensors file each."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def save(self, step: int, weights: Mapping[str, Tensor]) -> None:
        """Keeps the weights of a step."""
        self._directory.mkdir(parents=True, exist_ok=True)
        tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in weights.items()}
        write_atomically(self.path(step), lambda path: save_file(tensors, path, metadata={"format": "pt"}))

    def keep_only(self, steps: set[int]) -> None:
        """Removes the weights of all other steps."""
        for path in self._directory.glob("step-*.safetensors"):
            if path not in {self.path(step) for step in steps}:
                path.unlink()

    def path(self, step: int) -> Path:
        """Returns where the weights of a step lie."""
        return self._directory / f"step-{step:07d}.safetensors"


def average_checkpoints(paths: list[Path]) -> dict[str, Tensor]:
    """Returns the mean of several checkpoints' weights, computed in float64.

    Args:
        paths: Safetensors files with the same tensor names and shapes; at least one.
    """
    total: dict[str, Tensor] = {}
    for path in paths:
        for name, tensor in load_file(path).items():
            total[name] = total[name] + tensor.double() if name in total else tensor.double()
    return {name: (tensor / len(paths)).float() for name, tensor in total.items()}


class TrainingLog:
    """One JSON object a line: training lines (loss, learning_rate, …) and evaluations (dev_bleu, …), by step."""

    def __init__(self, path: Path, *, from_step: int) -> None:
        """Opens the log; lines of later steps than ``from_step``, which will be made again, are cut."""
        self._path = path
        lines = path.read_text(encoding="utf-8").splitlines() if path.is_file() and from_step else []
        kept = [line for line in lines if _step_of(line) <= from_step]
        write_atomically(path, lambda partial: _write_lines(partial, kept))

    def write(self, **values: float | int | str) -> None:
        """Appends a line."""
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(values) + "\n")


def _step_of(line: str) -> float:
    try:
        return float(json.loads(line)["step"])
    except (ValueError, KeyError, TypeError):
        return float("inf")  # a line cut short by a kill


def _write_lines(path: Path, lines: list[str]) -> None:
    path.write_text("".join(line + "\n" for line in lines), encoding="utf-8")
