"""The served models, and which one a caller gets."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from dragoman_model.checkpoint import LoadedModel
from dragoman_server.engine import Engine
from dragoman_server.engine_process import EngineProcess
from dragoman_server.errors import (
    EngineGoneError,
    EngineHungError,
    FieldViolation,
    InvalidArgumentError,
    NotFoundError,
    OverloadError,
    QueueFullError,
)
from dragoman_server.heartbeat import EngineState, state_of
from dragoman_server.languages import fallbacks
from dragoman_server.metrics import UNKNOWN_MODEL, ModelMetrics
from dragoman_server.request import ModelChoice

# How many of the served models and how much of a caller's own name an error message holds.
_MAX_NAMES = 20
_MAX_NAME_LENGTH = 64


@dataclass(frozen=True)
class ServedModel:
    """A model, the engine that runs it, and the metrics that watch it.

    Attributes:
        read_kernels: Tells what computes it now, which may change while it serves.
        attention_sample_share: Share of the texts whose translation's attention is looked at for the metrics, 0 to 1.
    """

    model: LoadedModel
    engine: Engine | EngineProcess
    metrics: ModelMetrics
    read_kernels: Callable[[], str] = lambda: ""
    attention_sample_share: float = 0.0

    @property
    def name(self) -> str:
        """The name that callers know it by."""
        return self.model.name

    @property
    def kernels(self) -> str:
        """What computes it."""
        return self.read_kernels()

    def find_outage(self) -> EngineHungError | EngineGoneError | None:
        """Returns why no new call is let in where the engine hangs or is gone, or None where it runs."""
        if self.engine.has_failed:
            return EngineGoneError(self.name)
        # In this order, since to see whether a process lives is a system call.
        if not self.engine.heartbeat.is_missed or state_of(self.engine) is not EngineState.HUNG:
            return None
        return EngineHungError(self.name, self.engine.heartbeat.silence_seconds)

    def translates(self, choice: ModelChoice) -> bool:
        """Whether one of its language pairs is what the caller asks for."""
        return any(
            _matches(choice.source_language, source) and _matches(choice.target_language, target)
            for source, target in self.model.config.language_pairs
        )


class Catalogue:
    """The served models in the order in which a language pair picks its default.

    Args:
        models: At least one; their names differ.
    """

    def __init__(self, models: Sequence[ServedModel]) -> None:
        self.models = tuple(models)
        self._by_name = {served.name: served for served in models}

    def label(self, name: str) -> str:
        """Returns a metric label for a name that a caller sent."""
        return name if name in self._by_name else UNKNOWN_MODEL

    def find_refusal(self) -> OverloadError | None:
        """Returns why no model takes a single sentence, or None while one does.

        None, too, where one of several hangs or is gone: then the reasons differ, and who asks for one must not hear of another's. Of
        several full queues it is the one that has room first, since nothing was read that says which the caller means.
        """
        full: list[QueueFullError] = []
        for served in self.models:
            outage = served.find_outage()
            if outage is not None:
                return outage if len(self.models) == 1 else None
            error = served.engine.room.find_refusal()
            if error is None:
                return None
            full.append(error)
        # Before its speed is measured a queue is new, and likely soon worked off.
        return min(full, key=lambda error: error.retry_seconds or 0.0)

    def select(self, choice: ModelChoice) -> ServedModel:
        """Returns the model that a caller asks for.

        Raises:
            NotFoundError: There is none; the message says which there are.
        """
        if choice.name:
            served = self._by_name.get(choice.name)
            if served is None:
                raise self._not_found("model", f"no model is named {choice.name[:_MAX_NAME_LENGTH]!r}")
            if not served.translates(choice):
                raise self._not_found(
                    _field(choice), f"model {served.name!r} doesn't translate {_pair(choice)}"
                )
            return served
        for served in self.models:
            if served.translates(choice):
                return served
        raise self._not_found(_field(choice), f"no model translates {_pair(choice)}")

    def page(self, size: int, token: str) -> tuple[tuple[ServedModel, ...], str]:
        """Returns one page of models and the next page's token, empty on the last.

        Args:
            size: Models at most; 0 means all.
            token: From the page before; empty for the first.

        Raises:
            InvalidArgumentError: The size is negative or the token not one of ours.
        """
        if size < 0:
            raise InvalidArgumentError(
                violations=[FieldViolation("page_size", f"{size} given; must be at least 0 (0: all)")]
            )
        if token and token not in self._by_name:
            raise InvalidArgumentError(
                violations=[FieldViolation("page_token", "not a next_page_token of this server")]
            )
        # The token is the name of the page's first model.
        start = next((i for i, served in enumerate(self.models) if served.name == token), 0)
        end = start + size if size else len(self.models)
        return self.models[start:end], self.models[end].name if end < len(self.models) else ""

    def _not_found(self, field: str, what: str) -> NotFoundError:
        names = [
            f"{served.name} ({', '.join(map(' to '.join, served.model.config.language_pairs))})"
            for served in self.models[:_MAX_NAMES]
        ]
        more = f" and {len(self.models) - _MAX_NAMES} more" if len(self.models) > _MAX_NAMES else ""
        message = f"{what}; served: {', '.join(names)}{more}"
        return NotFoundError(message, [FieldViolation(field, what)])


def _matches(asked: str, served: str) -> bool:
    return not asked or served.lower() in fallbacks(asked)


def _field(choice: ModelChoice) -> str:
    return "source_language_code" if choice.source_language else "target_language_code"


def _pair(choice: ModelChoice) -> str:
    parts = (("from", choice.source_language), ("to", choice.target_language))
    return " ".join(f"{preposition} {language!r}" for preposition, language in parts if language)
