"""Options that several commands have: which model, and in what form."""

import functools
from collections.abc import Callable
from typing import Any, TypedDict

from dragoman_client.commands.shared import option, with_options


class ModelChoice(TypedDict):
    """Arguments that choose a model."""

    source_language: str | None
    target_language: str | None
    model: str | None


def model_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds the options that choose a model, which the command gets together, as ``choice``."""

    @functools.wraps(command)
    def with_choice(
        *, source_language: str | None, target_language: str | None, model: str | None, **others: Any
    ) -> Any:
        choice = ModelChoice(source_language=source_language, target_language=target_language, model=model)
        return command(choice=choice, **others)

    return with_options(with_choice, _MODEL_OPTIONS)


tokens_option = option(
    "--tokens", "include_tokens", is_flag=True, help="Show each target token with its probability."
)


def json_option(text: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Returns the option that asks for objects instead of text; ``text`` is its help."""
    return option("--json", "as_json", is_flag=True, help=text)


_MODEL_OPTIONS = [
    option(
        "--source-language",
        metavar="CODE",
        help="BCP-47 code of what is translated; by default the model's own.",
    ),
    option(
        "--target-language",
        metavar="CODE",
        help="BCP-47 code to translate into; by default the model's own.",
    ),
    option(
        "--model", metavar="NAME", envvar="DRAGOMAN_MODEL_NAME", help="A name that `dragoman models` lists."
    ),
]
