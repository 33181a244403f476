"""Training runs of a tiny model, small enough to repeat in a test. Run as a program it is a run that can be killed."""

import sys
from pathlib import Path
from typing import Any

import torch

from dragoman_model.tokenizer import Tokenizer
from dragoman_model.training.evaluate import DevScores
from dragoman_model.training.options import TrainingOptions
from dragoman_model.training.recipe import AugmentationOptions
from dragoman_model.training.trainer import Trainer
from tests.model.made_up import made_up_pairs
from tests.models import tiny_config

NO_AUGMENTATION = AugmentationOptions(
    drop_punctuation=0, lower_case=0, lower_case_drop_punctuation=0, capitals=0, typographic=0,
    number_copies=0, numbered=0, joined=0, joined_numbers=0, copied=0, names=0,
)  # fmt: skip
TRAIN = made_up_pairs()[::7]
OPTIONS = {
    "seed": 3,
    "max_batch_tokens": 220,
    "learning_rate": 0.01,
    "warmup_steps": 4,
    "max_steps": 20,
    "evaluate_every_steps": 7,
    "log_every_steps": 1,
    "save_every_seconds": 1e9,
    "keep_checkpoints": 2,
    "precision": "float32",
}


class FakeDev:
    """Scores that are set beforehand; the last one for ever."""

    def __init__(self, bleus=(1.0,)):
        self.bleus = list(bleus)
        self.num_scored = 0

    def score(self, transformer):
        transformer.eval()
        bleu = self.bleus[min(self.num_scored, len(self.bleus) - 1)]
        self.num_scored += 1
        return DevScores(bleu, 2 * bleu, 3.0)


class Recorder:
    """An observer that keeps all it is told."""

    def __init__(self):
        self.reports, self.evaluations = [], []

    def stepped(self, report):
        self.reports.append(report)

    def evaluated(self, step, scores, *, is_best):
        self.evaluations.append((step, scores.bleu, is_best))

    @property
    def losses(self):
        return {report.step: (report.loss, report.gradient_norm) for report in self.reports}


class Clock:
    """Seconds that pass only when somebody looks."""

    def __init__(self, now=0.0, tick=0.0):
        self.now, self.tick = now, tick

    def __call__(self):
        now = self.now
        self.now += self.tick
        return now


def make_trainer(directory: Path, tokenizer: Tokenizer, **changes: Any) -> Trainer:
    """Returns a trainer on 37 made-up pairs; ``changes`` are training options or the trainer's own arguments."""
    arguments = {
        "config": tiny_config(dropout=0.2),
        "augmentation": AugmentationOptions(),
        "train": TRAIN,
        "dev": FakeDev(),
        "recipe_digest": "ab" * 32,
        "device": torch.device("cpu"),
        "clock": Clock(),
    }
    options = dict(OPTIONS)
    for name, value in changes.items():
        (options if name in TrainingOptions.__dataclass_fields__ else arguments)[name] = value
    directory.mkdir(parents=True, exist_ok=True)
    return Trainer(options=TrainingOptions(**options), tokenizer=tokenizer, directory=directory, **arguments)


def never() -> bool:
    return False


def main() -> None:
    """Trains in the folder ARGV[1] with the tokenizer in ARGV[2], saves each update and says its number."""

    class Speaker(Recorder):
        def stepped(self, report):
            print(report.step, flush=True)

    torch.set_num_threads(1)
    tokenizer = Tokenizer.load(Path(sys.argv[2]))
    trainer = make_trainer(Path(sys.argv[1]), tokenizer, save_every_seconds=0.0, max_steps=10_000)
    trainer.run(Speaker(), never)


if __name__ == "__main__":
    main()
