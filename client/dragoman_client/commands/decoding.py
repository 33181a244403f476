"""Options of the command line that say how to search for a translation."""

from collections.abc import Callable
from typing import Any, TypeVar

import click

from dragoman_client.commands.shared import option, with_options
from dragoman_client.options import DecodingOptions

_Command = TypeVar("_Command", bound=Callable[..., Any])

max_length_option = option(
    "--max-length",
    "max_decoding_length",
    metavar="TOKENS",
    type=click.IntRange(min=1, max=2**31 - 1),
    help="Target tokens of a sentence at most; by default 10 + 2 x source tokens.",
)

beam_size_option = option(
    "--beam-size",
    metavar="N",
    type=click.IntRange(min=1, max=2**31 - 1),
    help="Beams kept at each step; 1, the default, is greedy search.",
)

_OPTIONS = [
    max_length_option,
    beam_size_option,
    option(
        "--num-hypotheses",
        metavar="N",
        type=click.IntRange(min=1, max=2**31 - 1),
        help="Translations shown of each text, at most as many as beams; when sampling, samples.",
    ),
    option(
        "--length-penalty",
        metavar="A",
        type=float,
        help="Exponent of score / length^A, by which beams' translations rank; by default 1.",
    ),
    option(
        "--repetition-penalty",
        metavar="R",
        type=float,
        help="Lowers what was written already; 1, the default, is off.",
    ),
    option(
        "--no-repeat-ngram-size",
        metavar="N",
        type=click.IntRange(min=0, max=2**31 - 1),
        help="Write no N tokens in a row twice; 0, the default, is off.",
    ),
    option(
        "--min-length",
        "min_decoding_length",
        metavar="TOKENS",
        type=click.IntRange(min=0, max=2**31 - 1),
        help="Target tokens of a sentence at least; by default 0.",
    ),
    option(
        "--sampling-topk",
        metavar="K",
        type=click.IntRange(min=0, max=2**31 - 1),
        help="Draw from the K likeliest tokens, 0: from all; 1, the default, doesn't draw.",
    ),
    option(
        "--sampling-topp",
        metavar="P",
        type=float,
        help="Draw from the likeliest tokens that hold this probability; 1, the default, is off.",
    ),
    option(
        "--sampling-temperature",
        metavar="T",
        type=float,
        help="Below 1 draws likelier tokens, above 1 rarer ones; by default 1.",
    ),
    option(
        "--keep-numbers/--no-keep-numbers",
        default=None,
        help="Write only numbers of the source, each as often as it stands there at most; on by default.",
    ),
    option(
        "--seed",
        metavar="N",
        type=click.IntRange(min=-(2**63), max=2**63 - 1),
        help="Makes sampling repeatable; by default the server draws one.",
    ),
]


def decoding_options(command: _Command) -> _Command:
    """Adds the options, named as the fields of ``DecodingOptions``."""
    return with_options(command, _OPTIONS)


def read_decoding_options(**values: Any) -> DecodingOptions | None:
    """Returns what was asked for; None where it was nothing."""
    options = DecodingOptions(**values)
    return None if options == DecodingOptions() else options
