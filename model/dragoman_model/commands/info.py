"""``dragoman-model info``."""

from __future__ import annotations

import dataclasses

import click

from dragoman_model.checkpoint import WEIGHTS_FILE
from dragoman_model.commands.shared import (
    json_option,
    model_argument,
    model_directory,
    open_model,
    print_json,
)


@click.command("info")
@model_argument
@json_option
def info_command(model: str, as_json: bool) -> int:
    """Says what the model directory MODEL is, after checking every file in it."""
    directory = model_directory(model)
    loaded = open_model(model, device="cpu", precision="float32", threads=0)
    config = loaded.config
    size_bytes = (directory / WEIGHTS_FILE).stat().st_size
    if as_json:
        print_json(
            {
                "name": loaded.name,
                "directory": str(directory),
                "digest": loaded.digest,
                "parameter_count": loaded.parameter_count,
                "weights_bytes": size_bytes,
                "config": dataclasses.asdict(config),
            }
        )
        return 0
    pairs = ", ".join(f"{source} to {target}" for source, target in config.language_pairs)
    rows = {
        "name": loaded.name,
        "directory": directory,
        "translates": pairs,
        "parameters": f"{loaded.parameter_count:,}",
        "weights": f"{size_bytes:,} bytes, SHA-256 {loaded.digest}",
        "shape": f"d_model {config.d_model}, d_ff {config.d_ff}, {config.num_heads} heads, "
        f"{config.num_encoder_layers} encoder + {config.num_decoder_layers} decoder layers, {config.norm}-norm",
        "attention": f"{config.encoder_attention} in the encoder, {config.decoder_attention} in the decoder, "
        f"{config.cross_attention} between them; {config.positions} positions",
        "vocabulary": f"{config.target_vocab_size:,} pieces"
        + (", shared" if config.shared_vocabulary else ""),
        "limits": f"{config.max_source_length} source and {config.max_target_length} target tokens a sentence",
    }
    for name, value in rows.items():
        click.echo(f"{name:<11} {value}")
    return 0
