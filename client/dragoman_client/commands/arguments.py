"""What the commands that translate hand to the client."""

from typing import Any

import click

from dragoman_client.commands.choices import ModelChoice
from dragoman_client.errors import InvalidRequestError
from dragoman_client.options import DecodingOptions
from dragoman_client.requests import check_encodable


class Search(ModelChoice):
    """Arguments that the client's translating methods share."""

    options: DecodingOptions | None
    include_tokens: bool
    include_alignments: str | bool
    split: str


_FLAGS = {
    "max_decoding_length": "--max-length",
    "min_decoding_length": "--min-length",
    "include_tokens": "--tokens",
    "include_alignments": "--alignments",
}


def flags(search: Search, **others: Any) -> dict[str, Any]:
    """Returns what was given, by the names that it has on the command line."""
    options = vars(search["options"]) if search["options"] else {}
    given = {**{name: value for name, value in search.items() if name != "options"}, **options, **others}
    return {
        _FLAGS.get(name, "--" + name.replace("_", "-")): value
        for name, value in given.items()
        if value is not None and value is not False
    }


def check_texts(texts: tuple[str, ...], name: str = "TEXT number {}") -> None:
    """Refuses arguments that are not text.

    Args:
        texts: The arguments.
        name: What to call one, by its number.

    Raises:
        click.UsageError: An argument's bytes are not UTF-8.
    """
    for number, text in enumerate(texts, 1):
        try:
            check_encodable(text, name.format(number))
        except InvalidRequestError as error:
            raise click.UsageError(str(error)) from error
