"""The models that a server starts with."""

from __future__ import annotations

import torch

from dragoman_model import errors as model_errors
from dragoman_model.batch import RunningBatch
from dragoman_model.checkpoint import LoadedModel, load_model
from dragoman_model.plan import Plan, Sequence
from dragoman_server.config import ServerConfig
from dragoman_server.errors import ModelError


def load_models(config: ServerConfig) -> list[LoadedModel]:
    """Returns the models that the configuration names, each proven to run.

    Raises:
        ModelError: One can't be loaded or run, or two have the same name; one line says which and why.
    """
    # Loading computes a little. With more threads it would start some, and a process that is forked then can't compute with them.
    torch.set_num_threads(1)
    models: list[LoadedModel] = []
    for directory in config.model:
        try:
            model = load_model(directory, device=config.device, precision=config.precision)
        except model_errors.ModelError as error:
            raise ModelError(" ".join(str(error).split())) from error
        if any(model.name == other.name for other in models):
            raise ModelError(f"{directory}: another model is named {model.name!r}; rename the directory")
        _warm_up(model)
        models.append(model)
    return models


def _warm_up(model: LoadedModel) -> None:
    """Runs a sentence, so that the first caller doesn't wait for what a device sets up at first use."""
    sentence = Sequence(id=0, source_ids=(model.config.unk_id, model.config.eos_id), max_length=1)
    try:
        RunningBatch(model.transformer).run(Plan(admit=(sentence,)))
    except RuntimeError as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise ModelError(f"model {model.name!r} doesn't run on {model.device}: {reason}") from error
