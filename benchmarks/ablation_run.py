"""One run of the ablation: a variant of the small model, trained from one seed, and what came of it.

A run has a folder of its own with the trainer's state, so that one that was interrupted goes on, and with its result once it
is over, so that it need not be made again.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import torch

from dragoman_model.checkpoint import named_weights
from dragoman_model.config import ModelConfig
from dragoman_model.devices import resolve_device
from dragoman_model.tokenizer import TOKENIZER_FILE, Tokenizer
from dragoman_model.training.batching import encode_pairs
from dragoman_model.training.corpus import Corpus, prepare
from dragoman_model.training.evaluate import DevScores, DevSet
from dragoman_model.training.options import TrainingOptions
from dragoman_model.training.recipe import AugmentationOptions, Recipe, load_recipe
from dragoman_model.training.state import LOG_FILE, STATE_FILE, average_checkpoints
from dragoman_model.training.trainer import StepReport, Trainer
from dragoman_model.training.vocabulary import train_tokenizer
from dragoman_model.transformer import Transformer

DEFAULT = "default"
# What each variant changes in the default: pre-norm, sinusoidal positions, dot products with all positions.
VARIANTS: dict[str, dict[str, Any]] = {
    DEFAULT: {},
    "post-norm": {"norm": "post"},
    "learned positions": {"positions": "learned"},
    "rotary positions": {"positions": "rotary"},
    "relative positions": {"positions": "relative"},
    "additive cross-attention": {"cross_attention": "additive"},
    "sliding window": {"encoder_attention": "window", "decoder_attention": "window", "attention_window": 4},
    "FAVOR+ encoder": {"encoder_attention": "favor", "attention_features": 128},
}

MAX_WORDS = 8
_SHAPE: dict[str, Any] = {
    "language_pairs": (("en", "de"),), "d_model": 128, "d_ff": 512, "num_heads": 4, "num_encoder_layers": 2,
    "num_decoder_layers": 1, "max_source_length": 64, "max_target_length": 64,
}  # fmt: skip
RESULT_FILE = "result.json"
_NO_AUGMENTATION = AugmentationOptions(
    drop_punctuation=0, lower_case=0, lower_case_drop_punctuation=0, capitals=0, typographic=0,
    number_copies=0, numbered=0, joined=0, joined_numbers=0, copied=0, names=0,
)  # fmt: skip
_NEVER = 10**9


@dataclass(frozen=True, kw_only=True)
class Run:
    """What is trained, and where.

    Attributes:
        variant: One of `VARIANTS`.
        seed: Of weights, dropout and the order of batches.
        recipe: Names the corpus.
        work: Holds the vocabulary and a folder for each run.
        minutes: Training time: of the processor on a CPU, of the clock on a GPU.
        device: "cpu" or "cuda".
        vocab_size: Pieces.
    """

    variant: str
    seed: int
    recipe: Path
    work: Path
    minutes: float
    device: str = "cpu"
    vocab_size: int = 2000

    @property
    def name(self) -> str:
        return f"{self.variant}, seed {self.seed}"

    @property
    def directory(self) -> Path:
        return self.work / f"{self.variant.replace(' ', '-')}-{self.seed}-{self.minutes:g}min-{self.device}"

    def config(self) -> ModelConfig:
        """Returns the model's shape."""
        return ModelConfig(
            source_vocab_size=self.vocab_size, target_vocab_size=self.vocab_size, **_SHAPE, **VARIANTS[self.variant]
        )  # fmt: skip

    def options(self) -> TrainingOptions:
        """Returns how it is trained: until time is up, and scored once, at the end."""
        return TrainingOptions(
            seed=self.seed, max_batch_tokens=1200, learning_rate=2e-3, warmup_steps=200, max_steps=_NEVER,
            precision="float32", evaluate_every_steps=_NEVER, log_every_steps=10, save_every_seconds=20.0,
            keep_checkpoints=1,
        )  # fmt: skip

    def digest(self, recipe: Recipe) -> str:
        """Returns what tells this run from one of other data, another shape or other options."""
        parts = (
            recipe.digest,
            MAX_WORDS,
            _SHAPE,
            VARIANTS[self.variant],
            self.options(),
            self.minutes,
            self.vocab_size,
        )
        return hashlib.sha256(repr(parts).encode()).hexdigest()


def small_recipe(run: Run) -> Recipe:
    """Returns the recipe with short pairs, as they are, and a small vocabulary."""
    recipe = load_recipe(run.recipe)
    return dataclasses.replace(
        recipe,
        cleaning=dataclasses.replace(recipe.cleaning, max_words=MAX_WORDS),
        augmentation=_NO_AUGMENTATION,
        tokenizer=dataclasses.replace(recipe.tokenizer, vocab_size=run.vocab_size),
    )


def prepare_vocabulary(run: Run) -> None:
    """Learns the vocabulary that all runs share, where it isn't there yet."""
    if not (run.work / TOKENIZER_FILE).exists():
        recipe = small_recipe(run)
        train_tokenizer(prepare(recipe).train, recipe.tokenizer, run.work, recipe.augmentation)


def train_run(run: Run) -> dict[str, Any]:
    """Trains, or goes on, or says what came of it before; returns a row of the table."""
    torch.set_num_threads(1)
    recipe = small_recipe(run)
    digest = run.digest(recipe)
    path = run.directory / RESULT_FILE
    if path.is_file():
        result = json.loads(path.read_text(encoding="utf-8"))
        if result.pop("digest") == digest:
            return dict(result)
    corpus, tokenizer, device = prepare(recipe), Tokenizer.load(run.work), resolve_device(run.device)
    run.directory.mkdir(parents=True, exist_ok=True)
    config, options = run.config(), run.options()
    trainer = Trainer(
        config, options, recipe.augmentation, corpus.train,
        DevSet(corpus.dev, tokenizer, config, options.max_batch_tokens), tokenizer, run.directory,
        recipe_digest=digest, device=device, max_seconds=run.minutes * 60,
        resume=(run.directory / STATE_FILE).is_file(),
        clock=time.process_time if device.type == "cpu" else time.monotonic,
    )  # fmt: skip
    observer = _Observer(run.name)
    trainer.run(observer, lambda: False)
    scores = observer.scores
    if scores is None:  # it was interrupted behind its last evaluation
        scores = DevSet(corpus.dev, tokenizer, config, options.max_batch_tokens).score(trainer.transformer)
    result = {
        "variant": run.variant,
        "seed": run.seed,
        "nats_per_character": scores.nats_per_token * _tokens_per_character(corpus, tokenizer, config),
        "nats_per_token": scores.nats_per_token,
        "bleu": scores.bleu,
        "chrf": scores.chrf,
        "steps": trainer.state.step,
        "training_tokens_per_second": _training_speed(run.directory / LOG_FILE),
        "parameters": config.parameter_count,
    }
    path.write_text(json.dumps({**result, "digest": digest}, indent=2) + "\n", encoding="utf-8")
    return result


def trained_transformer(run: Run) -> Transformer:
    """Returns the model that a finished run has left."""
    transformer = Transformer(run.config())
    [path] = (run.directory / "checkpoints").glob("step-*.safetensors")
    weights = average_checkpoints([path])
    with torch.no_grad():
        for name, parameter in named_weights(transformer).items():
            parameter.copy_(weights[name])
    return transformer.eval()


class _Observer:
    """Says how far a run is, and keeps its scores."""

    def __init__(self, name: str) -> None:
        self._name, self._said_at = name, time.monotonic()
        self.scores: DevScores | None = None

    def stepped(self, report: StepReport) -> None:
        if time.monotonic() - self._said_at >= 30:
            self._said_at = time.monotonic()
            self._say(f"step {report.step}, {report.progress:.0%}, loss {report.loss:.3f}")

    def evaluated(self, step: int, scores: DevScores, *, is_best: bool) -> None:
        self.scores = scores
        self._say(f"step {step}, {scores.nats_per_token:.4f} nats a token, BLEU {scores.bleu:.2f}")

    def _say(self, text: str) -> None:
        print(f"{self._name}: {text}", file=sys.stderr, flush=True)


def _tokens_per_character(corpus: Corpus, tokenizer: Tokenizer, config: ModelConfig) -> float:
    """Returns how many target tokens, end-of-sentence included, a character of the dev set's targets takes."""
    pairs = [pair for pair in corpus.dev if encode_pairs([pair], tokenizer, config)]
    num_tokens = sum(len(pair.target) for pair in encode_pairs(pairs, tokenizer, config))
    return num_tokens / sum(len(pair.target) for pair in pairs)


def _training_speed(log: Path) -> float:
    """Returns the median of the logged speeds, which an interrupted run's gaps don't touch."""
    lines = [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()]
    speeds = [line["tokens_per_second"] for line in lines if "tokens_per_second" in line]
    return median(speeds) if speeds else 0.0
