"""``dragoman attention``."""

import dataclasses
from typing import Any

import click
from rich.console import Console
from rich.text import Text

from dragoman_client.attention import Attention, AttentionTensor, nested
from dragoman_client.commands.arguments import check_texts
from dragoman_client.commands.decoding import beam_size_option, read_decoding_options
from dragoman_client.commands.documents import as_document, print_json
from dragoman_client.commands.shared import option, search_options, shared, shared_options
from dragoman_client.errors import InvalidRequestError
from dragoman_client.heatmap import Palette, clean, draw
from dragoman_client.matrix import matrix_of
from dragoman_client.selection import AttentionKind, AttentionLevel, AttentionReduction, AttentionSelection

_KIND_NAMES = {
    AttentionKind.CROSS: "cross-attention",
    AttentionKind.ENCODER_SELF: "encoder self-attention",
    AttentionKind.DECODER_SELF: "decoder self-attention",
}
_REDUCTION_NAMES = {"mean": "mean", "max": "maximum", "rollout": "rollout"}
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
    default=AttentionKind.CROSS.value,
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
    type=click.Choice([reduction.value for reduction in AttentionReduction]),
    show_default="mean; with --json, none",
    help="How several layers and heads become one; rollout follows attention through the layers, heads averaged.",
)
@option(
    "--words/--pieces",
    default=None,
    show_default="words; with --json, pieces",
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
@search_options
@beam_size_option
@option(
    "--width",
    metavar="COLUMNS",
    type=click.IntRange(min=20),
    help="How wide to draw; by default the terminal's width.",
)
@option("--json", "as_json", is_flag=True, help="Print one JSON object for each sentence, on a line.")
@shared_options
def attention(
    text: str,
    translation: str | None,
    kind: str,
    layers: tuple[int, ...],
    heads: tuple[int, ...],
    reduction: str | None,
    words: bool | None,
    drop_special: bool,
    top_k: int | None,
    source_language: str | None,
    target_language: str | None,
    model: str | None,
    max_length: int | None,
    beam_size: int | None,
    width: int | None,
    as_json: bool,
) -> None:
    """Draws what each word of the translation of TEXT attended to.

    Columns are attended to, rows attend: source words stand across and target words down, unless --kind says otherwise.
    The brighter a cell, the more of the row's attention it has.
    """
    check_texts((text,) if translation is None else (text, translation))
    if not as_json:
        reduction = reduction or "mean"
    if words is None:
        words = not as_json
    selection = AttentionSelection(
        kinds=(kind,),
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
                source_language=source_language,
                target_language=target_language,
                model=model,
                options=read_decoding_options(max_decoding_length=max_length, beam_size=beam_size),
                selection=selection,
            )
        except InvalidRequestError as error:
            _raise_bad_parameter(error)
            raise
    if not attentions:
        click.echo("The text is blank: nothing attends to anything.", err=True)
    console = shared().console()
    for index, sentence in enumerate(attentions):
        if as_json:
            print_json(_document(sentence))
            continue
        if index:
            console.print()
        _print_sentence(console, sentence, reduction=reduction or "mean", width=width)


def _raise_bad_parameter(error: InvalidRequestError) -> None:
    """Blames the option whose value the server refused, if it was one."""
    for violation in error.field_violations:
        if violation.field in _OPTION_OF_FIELD:
            raise click.BadParameter(
                violation.description, param_hint=_OPTION_OF_FIELD[violation.field]
            ) from error


def _print_sentence(console: Console, attention: Attention, *, reduction: str, width: int | None) -> None:
    """Draws one sentence under its words."""
    width = width or console.width
    palette = Palette(
        # The sixteen colours of a plain terminal make no ramp.
        colored=console.color_system in ("256", "truecolor", "windows") and not console.no_color,
        ascii_only=not console.encoding.lower().startswith("utf"),
    )
    sentence = " ".join(_source_text(attention).split())
    console.print(Text(clean(sentence), "bold"), width=width)
    console.print(Text(clean(" ".join(attention.translation.text.split())), "bold cyan"), width=width)
    console.print(Text(_caption(attention, reduction), "dim"), width=width)
    console.print()
    matrix = matrix_of(attention, attention.weights)
    if not (matrix.source and matrix.target):
        console.print(Text("nothing but special tokens", "dim"), width=width)
        return
    for line in draw(matrix, width=width, palette=palette):
        console.print(line, no_wrap=True, overflow="ignore", crop=False, width=width)


def _source_text(attention: Attention) -> str:
    """Returns the sentence's part of the text."""
    spans = [unit.span for unit in attention.source_units if unit.span is not None]
    return (
        attention.text[min(s.start for s in spans) : max(s.end for s in spans)] if spans else attention.text
    )


def _caption(attention: Attention, reduction: str) -> str:
    weights = attention.weights
    parts = [_KIND_NAMES[weights.kind]]
    if reduction == AttentionReduction.ROLLOUT.value:
        through = " and the encoder" if weights.kind is AttentionKind.CROSS else ""
        parts.append(f"rollout through {_numbered('layer', weights.layers)}{through}")
        parts.append(_chosen("head", weights.heads, "mean"))
    else:
        parts += [_chosen(axis, getattr(weights, axis + "s"), reduction) for axis in ("layer", "head")]
    parts.append(attention.model)
    if attention.sentence_count > 1:
        parts.append(f"sentence {attention.sentence_index + 1} of {attention.sentence_count}")
    return " · ".join(parts)


def _chosen(axis: str, numbers: tuple[int, ...], reduction: str) -> str:
    """Says which layers or heads a picture shows."""
    if len(numbers) == 1:
        return f"{axis} {numbers[0]}"
    return f"{_REDUCTION_NAMES[reduction]} of {len(numbers)} {axis}s"


def _numbered(axis: str, numbers: tuple[int, ...]) -> str:
    return f"{axis} {numbers[0]}" if len(numbers) == 1 else f"{len(numbers)} {axis}s"


def _document(attention: Attention) -> dict[str, Any]:
    """Returns a sentence as JSON's values."""
    document: dict[str, Any] = as_document(dataclasses.replace(attention, tensors=()))
    del document["tensors"]
    document["weights"] = _tensor_document(attention.weights)
    return document


def _tensor_document(tensor: AttentionTensor) -> dict[str, Any]:
    document = {
        "kind": tensor.kind.value,
        "axes": list(tensor.axes),
        "shape": list(tensor.shape),
        "layers": list(tensor.layers),
        "heads": list(tensor.heads),
        "values": as_document(tensor.tolist()),
    }
    if tensor.indices is not None:
        document["indices"] = nested(tensor.indices, tensor.shape)
    return document
