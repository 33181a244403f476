"""Measures how near the attention that DumpAttention shows is to what translating computed.

    python benchmarks/attention_exactness.py                                # the bundled model, greedy and beam 4
    python benchmarks/attention_exactness.py MODEL --sentences 100 --precision bfloat16

Each sentence is translated with a cache while every step's weights are watched (step_weights.py), then read back in a forced
pass. All runs through PyTorch's operators here, since nobody can look into our own kernels. Printed are the largest
differences, and the share of steps whose weights all lie within 1e-5. In float32 differences must be within 1e-5 (weights, sums
of rows) and 1e-4 (log-probabilities), in int8 weights within 0.05 and log-probabilities within 0.1; masked weights must be 0.
Exit code 1 where one is not.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import click
import torch
from sentences import SENTENCES
from step_weights import Decoding, decode_watched

from dragoman_model.checkpoint import BUNDLED_MODEL, load_model
from dragoman_model.lengths import default_max_length
from dragoman_model.selection import AttentionKind

_FLOAT32 = {"cross": 1e-5, "row_sum": 1e-5, "masked": 0.0, "log_probability": 1e-4}
# In int8 a number at the edge of two integers may round the other way, and takes with it what follows.
TOLERANCES = {"float32": _FLOAT32, "int8": {**_FLOAT32, "cross": 0.05, "log_probability": 0.1}}
# Of all precisions: so near are numbers that were rounded alike.
_SAME = 1e-5


@click.command()
@click.argument("model", type=click.Path(path_type=Path), default=BUNDLED_MODEL)
@click.option("--sentences", "count", default=100, show_default=True, help="Of our own, at most.")
@click.option("--beam-size", "beam_sizes", multiple=True, default=(1, 4), show_default=True)
@click.option("--precision", default="float32", show_default=True)
@click.option("--json", "json_path", type=click.Path(path_type=Path), help="Where the result goes, too.")
def main(
    model: Path, count: int, beam_sizes: tuple[int, ...], precision: str, json_path: Path | None
) -> None:
    """Translates, looks again, and prints the largest differences."""
    torch.set_num_threads(1)
    loaded = load_model(model, device="cpu", precision=precision, native=False)
    sources = [tuple(loaded.tokenizer.encode(text)) for text in SENTENCES[:count]]
    sources = [source for source in sources if len(source) > max(beam_sizes)]
    results = {}
    for beam_size in beam_sizes:
        largest, by_step = dict.fromkeys(_FLOAT32, 0.0), []
        for source_ids in sources:
            decoding = decode_watched(
                loaded.transformer,
                source_ids,
                beam_size=beam_size,
                max_length=default_max_length(loaded.config, len(source_ids)),
            )
            for name, value in differences(decoding).items():
                largest[name] = max(largest[name], value)
            by_step.append((decoding.forced.cross - decoding.cross).abs().amax((0, 1, 3)))
        same_share = float((torch.cat(by_step) <= _SAME).float().mean())
        results[beam_size] = {**largest, "same_share": same_share}
        values = ", ".join(f"{name} {value:.1e}" for name, value in largest.items())
        print(
            f"{len(sources)} sentences, {loaded.precision}, beam {beam_size}: at most {values}; "
            f"weights of {same_share:.0%} of the steps within {_SAME:.0e}"
        )
    if json_path:
        json_path.write_text(
            json.dumps({"model": loaded.name, "precision": loaded.precision, "beam_size": results}, indent=2)
            + "\n",
            encoding="utf-8",
        )
    limits = TOLERANCES.get(loaded.precision, {})
    sys.exit(any(largest[name] > limit for largest in results.values() for name, limit in limits.items()))


def differences(decoding: Decoding) -> dict[str, float]:
    """Returns how far one sentence's dump is from its decoding."""
    kinds = [decoding.forced.of(kind) for kind in AttentionKind]
    log_probabilities = zip(decoding.forced.log_probabilities, decoding.best.log_probabilities, strict=True)
    return {
        "cross": float((decoding.forced.cross - decoding.cross).abs().max()),
        "row_sum": max(float((weights.sum(-1) - 1).abs().max()) for weights in kinds),
        "masked": float(decoding.forced.of(AttentionKind.DECODER_SELF).triu(1).max()),
        "log_probability": max(abs(forced - made) for forced, made in log_probabilities),
    }


if __name__ == "__main__":
    main()
