"""The training loop.

Shapes: B batch, S source length, T target length, N target tokens of a batch.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import torch

from dragoman_model.checkpoint import named_weights
from dragoman_model.config import ModelConfig
from dragoman_model.devices import computes_bfloat16
from dragoman_model.errors import TrainingError
from dragoman_model.tokenizer import Tokenizer
from dragoman_model.training.batching import Batch, epoch_batches
from dragoman_model.training.corpus import Pair
from dragoman_model.training.evaluate import DevScores, DevSet
from dragoman_model.training.loss import summed_loss
from dragoman_model.training.options import TrainingOptions
from dragoman_model.training.recipe import AugmentationOptions
from dragoman_model.training.schedule import learning_rate, run_progress
from dragoman_model.training.state import (
    LOG_FILE,
    CheckpointStore,
    RunState,
    TrainingLog,
    restore_state,
    save_state,
)
from dragoman_model.transformer import Transformer


@dataclass(frozen=True)
class StepReport:
    """What one update did.

    Attributes:
        step: The update, from 1.
        epoch: Its epoch, from 0.
        loss: Mean label-smoothed loss of a target token, in nats.
        gradient_norm: Before clipping.
        learning_rate: The update's.
        tokens: Target tokens in the update.
        seconds: Training time so far, over all runs.
        progress: Share of the run's budget that is spent with this update, 0 to 1.
    """

    step: int
    epoch: int
    loss: float
    gradient_norm: float
    learning_rate: float
    tokens: int
    seconds: float
    progress: float


class Observer(Protocol):
    """Is told how a run goes."""

    def stepped(self, report: StepReport) -> None:
        """Called after each update."""

    def evaluated(self, step: int, scores: DevScores, *, is_best: bool) -> None:
        """Called after each evaluation on the dev set."""


class Trainer:
    """Trains a model from a recipe's pairs, in a directory that holds all it needs to go on."""

    def __init__(
        self,
        config: ModelConfig,
        options: TrainingOptions,
        augmentation: AugmentationOptions,
        train: list[Pair],
        dev: DevSet,
        tokenizer: Tokenizer,
        directory: Path,
        *,
        recipe_digest: str,
        device: torch.device,
        max_seconds: float | None = None,
        resume: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Makes the model, or takes up a saved run.

        Args:
            config: The model's shape.
            options: How to train.
            augmentation: How pairs are varied.
            train: Clean training pairs.
            dev: What checkpoints are chosen by.
            tokenizer: The model's vocabulary.
            directory: Holds state, checkpoints and log.
            recipe_digest: Names the recipe; a saved run of another one is refused.
            device: Where to train.
            max_seconds: Training time at most, earlier runs counted in; None is no limit.
            resume: Goes on from the saved state.
            clock: Seconds, monotonic.

        Raises:
            TrainingError: There is nothing to resume, or it belongs to another recipe.
        """
        self._config, self._options, self._augmentation = config, options, augmentation
        self._train, self._dev, self._tokenizer, self._directory = train, dev, tokenizer, directory
        self._device, self._max_seconds, self._clock = device, max_seconds, clock
        torch.manual_seed(options.seed)
        self.transformer = Transformer(config).to(device)
        self._weights = named_weights(self.transformer)
        self._optimizer = _make_optimizer(self.transformer, options)
        self._checkpoints = CheckpointStore(directory / "checkpoints")
        self.state = RunState(recipe_digest)
        if resume:
            self.state = restore_state(directory, self._weights, self._optimizer)
            if self.state.recipe_digest != recipe_digest:
                raise TrainingError(
                    f"{directory}: this run follows another recipe; resume it with the file it began with"
                )
        self._log = TrainingLog(directory / LOG_FILE, from_step=self.state.step)
        self._autocast = options.precision == "bfloat16" or (
            options.precision == "auto" and computes_bfloat16(device)
        )

    def run(self, observer: Observer, should_stop: Callable[[], bool]) -> bool:
        """Trains until the budget is spent, dev BLEU stops rising, or ``should_stop`` says so; the state is saved.

        Args:
            observer: Is told how it goes.
            should_stop: Asked after each update.

        Returns:
            Whether training is complete; False where it was stopped and can be resumed.

        Raises:
            TrainingError: The loss is no longer a number.
        """
        started = self._clock() - self.state.seconds
        saved_at = self.state.seconds
        tokens_since_log, seconds_at_log = 0, self.state.seconds
        for batches in self._updates():
            if self._is_complete():
                break
            report = self._update(batches, started)
            observer.stepped(report)
            tokens_since_log += report.tokens
            if report.step % self._options.log_every_steps == 0:
                elapsed = self.state.seconds - seconds_at_log
                self._write_log(report, tokens_per_second=tokens_since_log / elapsed if elapsed else 0.0)
                tokens_since_log, seconds_at_log = 0, self.state.seconds
            evaluating = report.step % self._options.evaluate_every_steps == 0
            if evaluating:
                self._evaluate(observer)
                seconds_at_log += self._clock() - started - self.state.seconds  # no time of the updates'
                self.state.seconds = self._clock() - started
            stopping = should_stop()
            if stopping or evaluating or self.state.seconds - saved_at >= self._options.save_every_seconds:
                self._save()
                saved_at = self.state.seconds
            if stopping:
                return False
        evaluated = self.state.step % self._options.evaluate_every_steps == 0 or any(
            step == self.state.step for _, step in self.state.best
        )
        if not evaluated:
            self._evaluate(observer)
            self.state.seconds = self._clock() - started
        self._save()
        return True

    def best_checkpoints(self) -> list[Path]:
        """Returns the weights of the best checkpoints, best dev BLEU first."""
        return [self._checkpoints.path(step) for _, step in self.state.best]

    def _updates(self) -> Iterator[list[Batch]]:
        """Yields the batches of each update, from where the state stands, for ever."""
        size = self._options.accumulation_steps
        while True:
            batches = epoch_batches(
                self._train, self._tokenizer, self._config, self._augmentation,
                max_batch_tokens=self._options.max_batch_tokens, seed=self._options.seed, epoch=self.state.epoch,
            )  # fmt: skip
            if not batches:
                raise TrainingError("no training pairs are left after cleaning")
            while self.state.batch_index < len(batches):
                yield batches[self.state.batch_index : self.state.batch_index + size]
            self.state.epoch += 1
            self.state.batch_index = 0

    def _update(self, batches: list[Batch], started: float) -> StepReport:
        options = self._options
        rate = learning_rate(
            options.learning_rate, self.state.step + 1, options.warmup_steps, self._progress()
        )
        for group in self._optimizer.param_groups:
            group["lr"] = rate
        num_tokens = sum(batch.num_target_tokens for batch in batches)
        loss = 0.0
        self.transformer.train()
        for batch in batches:
            batch_loss, _ = summed_loss(
                self.transformer, batch, smoothing=options.label_smoothing, autocast=self._autocast
            )
            (batch_loss / num_tokens).backward()
            loss += batch_loss.item() / num_tokens
        norm = float(
            torch.nn.utils.clip_grad_norm_(self.transformer.parameters(), options.clip_norm or math.inf)
        )
        if not math.isfinite(loss) or not math.isfinite(norm):
            raise TrainingError(
                f"step {self.state.step + 1}: the loss is {loss}, the gradient's norm {norm}; lower learning_rate"
            )
        self._optimizer.step()
        self._optimizer.zero_grad(set_to_none=True)
        self.state.step += 1
        self.state.batch_index += len(batches)
        self.state.seconds = self._clock() - started
        return StepReport(
            step=self.state.step,
            epoch=self.state.epoch,
            loss=loss,
            gradient_norm=norm,
            learning_rate=rate,
            tokens=num_tokens,
            seconds=self.state.seconds,
            progress=self._progress(),
        )

    def _evaluate(self, observer: Observer) -> None:
        scores = self._dev.score(self.transformer)
        state, keep = self.state, self._options.keep_checkpoints
        is_best = not state.best or scores.bleu > state.best[0][0]
        state.evaluations_since_best = 0 if is_best else state.evaluations_since_best + 1
        # Of equal ones the later is the better trained.
        ranked = sorted([*state.best, (scores.bleu, state.step)], reverse=True)[:keep]
        if (scores.bleu, state.step) in ranked:
            self._checkpoints.save(state.step, self._weights)
        state.best = ranked
        self._log.write(
            step=state.step, epoch=state.epoch, seconds=round(state.seconds, 1),
            dev_bleu=round(scores.bleu, 3), dev_chrf=round(scores.chrf, 3),
            dev_nats_per_token=round(scores.nats_per_token, 4),
        )  # fmt: skip
        observer.evaluated(state.step, scores, is_best=is_best)

    def _save(self) -> None:
        save_state(self._directory, self.state, self._weights, self._optimizer)
        # Only now: a state that still names a checkpoint must find it.
        self._checkpoints.keep_only({step for _, step in self.state.best})

    def _progress(self) -> float:
        return run_progress(self.state.step, self._options.max_steps, self.state.seconds, self._max_seconds)

    def _is_complete(self) -> bool:
        patience = self._options.patience
        return self._progress() >= 1 or bool(patience and self.state.evaluations_since_best >= patience)

    def _write_log(self, report: StepReport, *, tokens_per_second: float) -> None:
        self._log.write(
            step=report.step, epoch=report.epoch, seconds=round(self.state.seconds, 1), loss=report.loss,
            gradient_norm=report.gradient_norm, learning_rate=report.learning_rate,
            tokens_per_second=round(tokens_per_second, 1),
        )  # fmt: skip


def _make_optimizer(transformer: Transformer, options: TrainingOptions) -> torch.optim.Optimizer:
    """Returns AdamW that decays matrices only: gains and biases have nothing to shrink towards 0 for."""
    parameters = list(transformer.parameters())
    groups = [
        {"params": [p for p in parameters if p.dim() >= 2], "weight_decay": options.weight_decay},
        {"params": [p for p in parameters if p.dim() < 2], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=options.learning_rate, betas=options.adam_betas, eps=1e-9, fused=True)
