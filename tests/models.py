"""Tiny complete models with random weights: real directories that load, translate (to nonsense) and attend at once."""

from __future__ import annotations

import functools
import tempfile
from pathlib import Path
from typing import Any

import torch

from dragoman_model.checkpoint import named_weights, save_model
from dragoman_model.config import ModelConfig
from dragoman_model.tokenizer import TOKENIZER_FILE
from dragoman_model.training.recipe import TokenizerOptions
from dragoman_model.training.vocabulary import train_tokenizer
from dragoman_model.transformer import Transformer
from tests.model.made_up import MANY_NAMES, made_up_pairs

TINY_VOCAB_SIZE = 384

# Attention and positions other than the default's, as `tiny_config` takes them; whatever serves is tested with each.
VARIANTS: dict[str, dict[str, Any]] = {
    "learned": {"positions": "learned"},
    "rotary": {"positions": "rotary"},
    "relative": {"positions": "relative", "max_relative_distance": 2},
    "additive": {"cross_attention": "additive"},
    "window": {"encoder_attention": "window", "decoder_attention": "window", "attention_window": 4},
    "wide window": {"decoder_attention": "window", "attention_window": 17, "num_decoder_layers": 2},
    "rotary window": {"positions": "rotary", "decoder_attention": "window", "attention_window": 4},
    "favor": {"encoder_attention": "favor", "attention_features": 19},
    "rotary favor": {"positions": "rotary", "encoder_attention": "favor", "attention_features": 5},
}


def tiny_config(**changes: Any) -> ModelConfig:
    """Returns a shape small enough for exhaustive tests: 2 + 1 layers, 2 heads of width 8."""
    values: dict[str, Any] = {
        "language_pairs": (("en", "de"),),
        "source_vocab_size": TINY_VOCAB_SIZE,
        "target_vocab_size": TINY_VOCAB_SIZE,
        "d_model": 16,
        "d_ff": 24,
        "num_heads": 2,
        "num_encoder_layers": 2,
        "num_decoder_layers": 1,
        "dropout": 0.0,
        "tie_output": False,  # tied random weights only repeat what they read
        "output_bias": True,
        **changes,
    }
    return ModelConfig(**values)


def make_tiny_model(directory: Path, *, seed: int = 7, **changes: Any) -> Path:
    """Writes a model directory with random weights and returns it.

    The bias of end-of-sentence is raised, so that some sentences end by themselves and others at their length limit.

    Args:
        directory: Made if need be; its name is the model's.
        seed: Seeds the weights.
        changes: Fields of `ModelConfig` to set otherwise.
    """
    directory.mkdir(parents=True, exist_ok=True)
    (directory / TOKENIZER_FILE).write_bytes(_tokenizer())
    config = tiny_config(**changes)
    torch.manual_seed(seed)
    transformer = Transformer(config)
    with torch.no_grad():
        transformer.output_weight.mul_(8.0)  # spreads the logits: no near-ties
        if transformer.output_bias is not None:
            transformer.output_bias[5:261] = -12.0  # single bytes seldom make a character
            transformer.output_bias[config.eos_id] = 11.0
    save_model(
        directory, config, named_weights(transformer), "# A tiny model with random weights, for tests\n"
    )
    return directory


@functools.cache
def _tokenizer() -> bytes:
    options = TokenizerOptions(vocab_size=TINY_VOCAB_SIZE)
    with tempfile.TemporaryDirectory() as folder:
        return train_tokenizer(made_up_pairs(), options, Path(folder), MANY_NAMES).read_bytes()
