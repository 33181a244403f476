"""``dragoman models``."""

import click
from rich.table import Table

from dragoman_client.commands.choices import json_option
from dragoman_client.commands.documents import as_document, print_json
from dragoman_client.commands.shared import shared, shared_options


@click.command()
@json_option("Print one JSON object.")
@shared_options
def models(as_json: bool) -> None:
    """Lists the served models, their languages and limits.

    LAYERS are the encoder's + the decoder's; TOKENS is the longest source sentence; DIGEST starts the SHA-256 of the
    weights.
    """
    with shared().translator() as translator:
        listed = translator.models()
    if as_json:
        print_json(as_document(listed))
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in (
        "MODEL",
        "LANGUAGES",
        "PARAMS",
        "LAYERS",
        "HEADS",
        "TOKENS",
        "PRECISION",
        "DEVICE",
        "DIGEST",
    ):
        table.add_column(
            heading, no_wrap=True, justify="right" if heading in ("PARAMS", "HEADS", "TOKENS") else "left"
        )
    for model in listed.models:
        table.add_row(
            model.name,
            ", ".join(map(str, model.language_pairs)),
            f"{model.parameter_count / 1e6:.1f} M",
            f"{model.encoder_layer_count} + {model.decoder_layer_count}",
            str(model.head_count),
            str(model.max_source_token_count),
            model.precision,
            model.device,
            model.digest[:8],
        )
    console = shared().console()
    console.print(table)
    limits = listed.limits
    console.print()
    for kernels in dict.fromkeys(model.kernels for model in listed.models if model.kernels):
        names = ", ".join(model.name for model in listed.models if model.kernels == kernels)
        console.print(f"Kernels of {names}: {kernels}.", style="dim")
    for_seconds = f", for {limits.max_queue_seconds:g} s" if limits.max_queue_seconds else ""
    if limits.max_batch_size:
        console.print(
            f"All calls share {limits.max_batch_size:,} rows of each model; {limits.max_queue_size:,} sentences may wait{for_seconds}.",
            style="dim",
        )
    console.print(
        f"One call takes {limits.max_text_count:,} texts of {limits.max_text_characters:,} characters; "
        f"beams up to {limits.max_beam_size}.",
        style="dim",
    )
