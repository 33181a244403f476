"""A whole training run: from a recipe to a model directory."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import torch

from dragoman_model.checkpoint import CONFIG_FILE, named_weights, save_model
from dragoman_model.config import ModelConfig
from dragoman_model.config_file import config_from_mapping
from dragoman_model.errors import RecipeError, TrainingError
from dragoman_model.tokenizer import TOKENIZER_FILE, Tokenizer
from dragoman_model.training.align import align_model
from dragoman_model.training.corpus import Corpus, prepare
from dragoman_model.training.evaluate import DevScores, DevSet
from dragoman_model.training.options import training_options
from dragoman_model.training.recipe import Recipe
from dragoman_model.training.state import STATE_FILE, TRAINING_FOLDER, average_checkpoints, require_state
from dragoman_model.training.trainer import Observer, Trainer
from dragoman_model.training.vocabulary import train_tokenizer
from dragoman_model.transformer import Transformer


def train(
    recipe: Recipe,
    output: Path,
    *,
    device: torch.device,
    observer: Observer,
    should_stop: Callable[[], bool],
    max_minutes: float | None = None,
    resume: bool = False,
    on_prepared: Callable[[Corpus, ModelConfig], object] = lambda corpus, config: None,
) -> DevScores | None:
    """Trains the model of a recipe into a model directory.

    ``output/training`` holds the run: ``state.pt``, ``checkpoints/`` and ``log.jsonl``. At its end the best checkpoints
    are averaged, and the average or the best single one, whichever does better on the dev set, becomes the model; last, the
    heads that link words best are found.

    Args:
        recipe: What to train.
        output: The model directory.
        device: Where to train.
        observer: Is told how it goes.
        should_stop: Asked after each update; True saves the state and returns.
        max_minutes: Training time in which the learning rate falls to 0, earlier runs counted in; None is no limit.
        resume: Goes on with the run in ``output``.
        on_prepared: Called with the data and the model's shape before training.

    Returns:
        The finished model's scores on the dev set; None where the run was stopped and can be resumed.

    Raises:
        TrainingError: The run cannot start or go on; the message says why.
    """
    options = training_options(recipe.training)
    folder = output / TRAINING_FOLDER
    _model_config(
        recipe, recipe.tokenizer.vocab_size
    )  # a mistake shows now, not after the vocabulary is learnt
    if resume:
        require_state(folder)
    elif (folder / STATE_FILE).exists():
        raise TrainingError(
            f"{folder / STATE_FILE}: a run is there already; add --resume to go on with it, or remove {folder}"
        )
    corpus = prepare(recipe)
    folder.mkdir(parents=True, exist_ok=True)
    if not (output / TOKENIZER_FILE).exists() or not resume:
        train_tokenizer(corpus.train, recipe.tokenizer, output, recipe.augmentation)
    tokenizer = Tokenizer.load(output)
    config = _model_config(recipe, tokenizer.vocab_size)
    (output / CONFIG_FILE).write_text(config.to_json(), encoding="utf-8")
    on_prepared(corpus, config)
    dev = DevSet(corpus.dev, tokenizer, config, options.max_batch_tokens)
    trainer = Trainer(
        config, options, recipe.augmentation, corpus.train, dev, tokenizer, folder,
        recipe_digest=recipe.digest, device=device, resume=resume,
        max_seconds=None if max_minutes is None else max_minutes * 60,
    )  # fmt: skip
    if not trainer.run(observer, should_stop):
        return None
    scores = write_best_model(trainer.best_checkpoints(), config, dev, output, recipe, device)
    align_model(output, corpus, str(device))
    return scores


def write_best_model(
    checkpoints: list[Path],
    config: ModelConfig,
    dev: DevSet,
    output: Path,
    recipe: Recipe,
    device: torch.device,
) -> DevScores:
    """Writes the average of ``checkpoints`` (best first), or the best alone, whichever does better on the dev set.

    Weights are scored as they are stored, in float16.

    Returns:
        Its scores.

    Raises:
        TrainingError: There is no checkpoint.
    """
    if not checkpoints:
        raise TrainingError("no checkpoint was made; train for at least one update")
    best: tuple[float, DevScores, Transformer] | None = None
    for paths in ([checkpoints[0]], checkpoints):
        candidate = Transformer(config)
        weights = {name: tensor.half().float() for name, tensor in average_checkpoints(paths).items()}
        with torch.no_grad():
            for name, parameter in named_weights(candidate).items():
                parameter.copy_(weights[name])
        scores = dev.score(candidate.to(device))
        if best is None or scores.bleu > best[0]:
            best = (scores.bleu, scores, candidate)
    assert best is not None
    save_model(output, config, named_weights(best[2]), _card(recipe, config, best[1]))
    return best[1]


def _model_config(recipe: Recipe, vocab_size: int) -> ModelConfig:
    try:
        return config_from_mapping(
            {
                **recipe.model,
                "language_pairs": [(recipe.source_language, recipe.target_language)],
                "source_vocab_size": vocab_size,
                "target_vocab_size": vocab_size,
            }
        )
    except ValueError as error:
        raise RecipeError(f"[model] {error}") from None


def _card(recipe: Recipe, config: ModelConfig, scores: DevScores) -> str:
    corpus = recipe.corpus
    # One address may hold several of the files.
    test_set = dict.fromkeys(recipe.download(name).url for name in (corpus.test_source, corpus.test_target))
    return f"""# {recipe.name}

Translates {recipe.source_language} to {recipe.target_language}. Made by `dragoman-model train` from the recipe \
`{recipe.name}`.

- Shape: d_model {config.d_model}, d_ff {config.d_ff}, {config.num_heads} heads, {config.num_encoder_layers} encoder \
and {config.num_decoder_layers} decoder layers, {config.norm}-norm, {config.target_vocab_size} pieces.
- Dev set, greedy: BLEU {scores.bleu:.2f}, chrF {scores.chrf:.2f}, {scores.nats_per_token:.3f} nats a token.

- Trained on {recipe.download(corpus.train).url}
- To be tested on {" and ".join(test_set)}
"""
