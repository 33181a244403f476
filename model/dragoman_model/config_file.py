"""Reads ``config.json``, and says exactly what is wrong with a bad one."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path

from dragoman_model.alignment_config import alignment_from_mapping
from dragoman_model.config import FORMAT_VERSION, ModelConfig
from dragoman_model.errors import ModelDirectoryError


def config_from_mapping(values: Mapping[str, object]) -> ModelConfig:
    """Returns the configuration that ``values`` describe.

    Raises:
        ValueError: A key is unknown or missing, or a value is not allowed; the message says which.
    """
    known = {field.name for field in dataclasses.fields(ModelConfig)}
    unknown = sorted(set(values) - known)
    if unknown:
        raise ValueError(f"unknown key {unknown[0]!r}; known are {', '.join(sorted(known))}")
    for field in dataclasses.fields(ModelConfig):
        required = field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
        if required and field.name not in values:
            raise ValueError(f"{field.name} is missing")
    arguments = dict(values)
    pairs = arguments.get("language_pairs")
    if isinstance(pairs, list):  # JSON and TOML have no tuples
        arguments["language_pairs"] = tuple(tuple(pair) if isinstance(pair, list) else pair for pair in pairs)
    alignment = arguments.get("alignment")
    if isinstance(alignment, dict):
        try:
            arguments["alignment"] = alignment_from_mapping(alignment)
        except ValueError as error:
            raise ValueError(f"alignment: {error}") from None
    return ModelConfig(**arguments)  # type: ignore[arg-type]  # checked in __post_init__


def read_config(path: Path) -> ModelConfig:
    """Returns the configuration in ``path``, a model directory's ``config.json``.

    Raises:
        ModelDirectoryError: The file is missing, is no JSON object, or is not one of ours.
    """
    try:
        if path.exists() and not path.is_file():
            raise ModelDirectoryError(f"{path}: not a file")
        values = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ModelDirectoryError(f"{path}: no such file; a model directory holds config.json") from None
    except (OSError, ValueError, RecursionError) as error:
        raise ModelDirectoryError(f"{path}: not readable as JSON ({error})") from None
    if not isinstance(values, dict) or "format_version" not in values:
        raise ModelDirectoryError(f"{path}: not a dragoman model (no format_version)")
    version = values.pop("format_version")
    if version != FORMAT_VERSION:
        raise ModelDirectoryError(
            f"{path}: format_version is {version!r}; this release reads {FORMAT_VERSION}"
        )
    try:
        return config_from_mapping(values)
    except ValueError as error:
        raise ModelDirectoryError(f"{path}: {error}") from None
