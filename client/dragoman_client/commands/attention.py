"""``dragoman attention``."""

import sys
from pathlib import Path

import click

from dragoman_client.attention import Attention
from dragoman_client.commands.arguments import check_texts
from dragoman_client.commands.attention_formats import FORMATS, Format
from dragoman_client.commands.choices import ModelChoice, json_option, model_options
from dragoman_client.commands.decoding import beam_size_option, max_length_option, read_decoding_options
from dragoman_client.commands.doubts import Doubts
from dragoman_client.commands.shared import is_terminal, option, shared, shared_options
from dragoman_client.errors import InvalidRequestError
from dragoman_client.selection import AttentionKind, AttentionLevel, AttentionReduction, AttentionSelection

_APART = "none"
_OPTION_OF_FIELD = {
    "options.beam_size": "--beam-size",
    "options.max_decoding_length": "--max-length",
    "selection.layers": "--layer",
    "selection.heads": "--head",
    "selection.layer_reduction": "--reduce",
    "selection.head_reduction": "--reduce",
    "selection.top_k": "--top-k",
}


@click.command()
@click.argument("text", metavar="TEXT")
@option(
    "--translation", metavar="TEXT", help="Show the attention of this translation instead of the model's own."
)
@option(
    "--kind",
    type=click.Choice([kind.value for kind in AttentionKind]),
    show_default="cross; with html and npz, all three",
    help="Which attention: of the decoder over the source, of the encoder over it, or of the decoder over what it wrote.",
)
@option(
    "--layer",
    "layers",
    metavar="N",
    type=click.IntRange(min=0, max=2**31 - 1),
    multiple=True,
    help="Only this layer, from 0; repeatable.",
)
@option(
    "--head",
    "heads",
    metavar="N",
    type=click.IntRange(min=0, max=2**31 - 1),
    multiple=True,
    help="Only this head, from 0; repeatable.",
)
@option(
    "--reduce",
    "reduction",
    type=click.Choice([*(reduction.value for reduction in AttentionReduction), _APART]),
    show_default="mean; with html, json and npz, none",
    help="How several layers and heads become one; rollout follows attention through the layers, heads averaged; none keeps "
    "them apart.",
)
@option(
    "--words/--pieces",
    default=None,
    show_default="words; with json and npz, pieces",
    help="Show words, or the vocabulary's pieces.",
)
@option(
    "--drop-special", is_flag=True, help="Leave special tokens out, and scale each row to sum to 1 again."
)
@option(
    "--top-k",
    metavar="N",
    type=click.IntRange(min=1, max=2**31 - 1),
    help="Only the N largest weights of a row.",
)
@model_options
@max_length_option
@beam_size_option
@option(
    "--width",
    metavar="COLUMNS",
    type=click.IntRange(min=20),
    help="How wide to draw in the terminal; by default its width.",
)
@option(
    "--format",
    "format_name",
    type=click.Choice(list(FORMATS)),
    show_default="what --output ends in, or text",
    help="Draw in the terminal, write a web page or a figure, or give the numbers: one JSON object for each sentence, on "
    "a line, or numpy's archive.",
)
@option(
    "--output",
    metavar="FILE",
    type=click.Path(dir_okay=False, path_type=Path, allow_dash=True),
    show_default="standard output; attention.FORMAT where that is a terminal and FORMAT neither text nor json",
    help="Write here.",
)
@json_option("The same as --format json.")
@shared_options
def attention(
    text: str,
    translation: str | None,
    kind: str | None,
    layers: tuple[int, ...],
    heads: tuple[int, ...],
    reduction: str | None,
    words: bool | None,
    drop_special: bool,
    top_k: int | None,
    choice: ModelChoice,
    max_decoding_length: int | None,
    beam_size: int | None,
    width: int | None,
    format_name: str | None,
    output: Path | None,
    as_json: bool,
) -> None:
    """Draws what each word of the translation of TEXT attended to.

    Columns are attended to, rows attend: source words stand across and target words down, unless --kind says otherwise.
    The brighter a cell, the more of the row's attention it has.
    """
    check_texts((text,) if translation is None else (text, translation))
    chosen = _choose_format(format_name, output, as_json=as_json)
    reduction = chosen.reduction if reduction is None else None if reduction == _APART else reduction
    kinds = (kind,) if kind else chosen.kinds
    if words is None:
        words = chosen.words
    selection = AttentionSelection(
        kinds=kinds,
        layers=layers,
        heads=heads,
        layer_reduction=reduction,
        head_reduction="mean" if reduction == "rollout" else reduction,
        level=AttentionLevel.WORD if words else AttentionLevel.PIECE,
        drop_special_tokens=drop_special,
        top_k=top_k,
    )
    with shared().translator() as translator:
        try:
            attentions = translator.attention(
                text,
                translation=translation,
                **choice,
                options=read_decoding_options(max_decoding_length=max_decoding_length, beam_size=beam_size),
                selection=selection,
            )
        except InvalidRequestError as error:
            _raise_bad_parameter(error)
            raise
    if not attentions:
        click.echo("The text is blank: nothing attends to anything.", err=True)
        return
    _write(chosen, attentions, output, reduction, width)
    doubts = Doubts("sentence")
    for number, sentence in enumerate(attentions, 1):
        doubts.note(number, sentence.translation)
    doubts.warn()


def _choose_format(name: str | None, output: Path | None, *, as_json: bool) -> Format:
    """Returns the format that was asked for, by name or by the end of a file's."""
    if as_json:
        if name not in (None, "json"):
            raise click.UsageError(f"--json is --format json, and --format {name} was given as well")
        name = "json"
    if name is None and output is not None:
        name = output.suffix.removeprefix(".").lower()
        if name not in ("", "txt", *FORMATS):
            raise click.UsageError(
                f"--output {output}: there is no format {name!r}; choose one by --format: {', '.join(FORMATS)}"
            )
    chosen = FORMATS.get(name or "", FORMATS["text"])
    try:
        chosen.check()
    except ImportError as error:
        raise click.ClickException(str(error)) from error
    return chosen


def _write(
    chosen: Format, attentions: list[Attention], output: Path | None, reduction: str | None, width: int | None
) -> None:
    """Writes the sentences where they were asked for."""
    if output is None and not chosen.readable and is_terminal(sys.stdout):
        output = Path(f"attention.{chosen.name}")
    if output is None or str(output) == "-":
        chosen.write(attentions, None, reduction, width)
        return
    try:
        with output.open("wb") as stream:
            chosen.write(attentions, stream, reduction, width)
    except OSError as error:
        raise click.ClickException(f"cannot write {output}: {error.strerror or error}") from error
    click.echo(f"Written: {output}", err=True)


def _raise_bad_parameter(error: InvalidRequestError) -> None:
    """Blames the option whose value the server refused, if it was one."""
    for violation in error.field_violations:
        if violation.field in _OPTION_OF_FIELD:
            raise click.BadParameter(
                violation.description, param_hint=_OPTION_OF_FIELD[violation.field]
            ) from error
