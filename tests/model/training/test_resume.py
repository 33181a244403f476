"""A run that was stopped or killed goes on to the very same losses."""

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from dragoman_model.checkpoint import named_weights
from dragoman_model.errors import TrainingError
from dragoman_model.tokenizer import TOKENIZER_FILE
from dragoman_model.training.batching import epoch_batches
from dragoman_model.training.recipe import AugmentationOptions
from dragoman_model.training.state import LOG_FILE, STATE_FILE
from tests.model.training.tiny_runs import OPTIONS, TRAIN, Clock, FakeDev, Recorder, make_trainer, never
from tests.models import tiny_config

REPOSITORY = Path(__file__).parents[3]
BLEUS = (1.0, 3.0, 2.0)


class KilledError(Exception):
    """Stands for the end of a process."""


def weights_of(trainer):
    return {name: weight.detach().clone() for name, weight in named_weights(trainer.transformer).items()}


def assert_same_weights(actual, expected):
    assert actual.keys() == expected.keys()
    for name, weight in expected.items():
        assert actual[name].equal(weight), name


def log_of(directory):
    """The log's lines without what depends on the clock."""
    lines = [json.loads(line) for line in (directory / LOG_FILE).read_text().splitlines()]
    return [
        {key: value for key, value in line.items() if key not in ("seconds", "tokens_per_second")}
        for line in lines
    ]


def run_straight(directory, tokenizer, **changes):
    trainer, recorder = make_trainer(directory, tokenizer, dev=FakeDev(BLEUS), **changes), Recorder()
    assert trainer.run(recorder, never)
    return trainer, recorder


@pytest.fixture(scope="module")
def straight_runs(made_up_tokenizer, tmp_path_factory):
    """The run without a stop, for one and for two batches an update."""
    return {
        steps: run_straight(tmp_path_factory.mktemp("straight"), made_up_tokenizer, accumulation_steps=steps)
        for steps in (1, 2)
    }


def make_resumed(directory, tokenizer, dev, accumulation_steps=1, **changes):
    torch.manual_seed(12345)  # a new process has another past
    return make_trainer(
        directory, tokenizer, dev=dev, resume=True, accumulation_steps=accumulation_steps, **changes
    )


def num_batches(tokenizer):
    """Batches of the first epoch."""
    return len(
        epoch_batches(
            TRAIN, tokenizer, tiny_config(), AugmentationOptions(),
            max_batch_tokens=OPTIONS["max_batch_tokens"], seed=OPTIONS["seed"], epoch=0,
        )
    )  # fmt: skip


def test_the_runs_to_repeat_cross_the_end_of_an_epoch_and_an_update_of_one_batch(
    straight_runs, made_up_tokenizer
):
    assert (
        num_batches(made_up_tokenizer) % 2 == 1
    )  # with two batches an update, the last of the epoch has one
    for _, recorder in straight_runs.values():
        assert len(recorder.losses) == 20
        assert len(set(recorder.losses.values())) == 20
        assert recorder.reports[-1].epoch >= 1


@pytest.mark.parametrize("accumulation_steps", [1, 2])
@pytest.mark.parametrize("stop", [1, 7, 13, 20])
def test_a_stopped_run_goes_on_to_the_same_losses(
    straight_runs, made_up_tokenizer, tmp_path, accumulation_steps, stop
):
    straight, expected = straight_runs[accumulation_steps]
    dev, before, after = FakeDev(BLEUS), Recorder(), Recorder()
    trainer = make_trainer(tmp_path, made_up_tokenizer, dev=dev, accumulation_steps=accumulation_steps)
    assert not trainer.run(before, lambda: len(before.reports) == stop)
    resumed = make_resumed(tmp_path, made_up_tokenizer, dev, accumulation_steps)
    assert resumed.run(after, never)
    assert {**before.losses, **after.losses} == expected.losses
    assert [report.step for report in after.reports] == list(range(stop + 1, 21))
    assert_same_weights(weights_of(resumed), weights_of(straight))
    assert before.evaluations + after.evaluations == expected.evaluations
    assert resumed.state.best == straight.state.best
    assert log_of(tmp_path) == log_of(straight.best_checkpoints()[0].parents[1])


def test_a_run_stopped_at_the_end_of_an_epoch_goes_on_to_the_same_losses(
    straight_runs, made_up_tokenizer, tmp_path
):
    straight, expected = straight_runs[1]
    last_of_epoch = [report.epoch for report in expected.reports].index(1)  # updates in epoch 0
    before, after = Recorder(), Recorder()
    trainer = make_trainer(tmp_path, made_up_tokenizer)
    trainer.run(before, lambda: len(before.reports) == last_of_epoch)
    assert (trainer.state.epoch, trainer.state.batch_index) == (0, num_batches(made_up_tokenizer))
    resumed = make_resumed(tmp_path, made_up_tokenizer, FakeDev())
    resumed.run(after, never)
    assert {**before.losses, **after.losses} == expected.losses
    assert_same_weights(weights_of(resumed), weights_of(straight))


@pytest.mark.parametrize("accumulation_steps", [1, 2])
@pytest.mark.parametrize("killed_at", [6, 16])
def test_a_killed_run_goes_on_from_its_last_save_to_the_same_losses(
    straight_runs, made_up_tokenizer, tmp_path, accumulation_steps, killed_at
):
    class Doomed(Recorder):
        def stepped(self, report):
            super().stepped(report)
            if report.step == killed_at:
                raise KilledError

    straight, expected = straight_runs[accumulation_steps]
    before, after = Doomed(), Recorder()
    changes = {
        "accumulation_steps": accumulation_steps, "save_every_seconds": 4.0, "evaluate_every_steps": 1000,
    }  # fmt: skip
    trainer = make_trainer(tmp_path, made_up_tokenizer, clock=Clock(tick=1.0), **changes)
    with pytest.raises(KilledError):
        trainer.run(before, never)
    resumed = make_resumed(tmp_path, made_up_tokenizer, FakeDev(), **changes)
    assert resumed.state.step == killed_at - 1 - (killed_at - 1) % 4  # the last save, every fourth second
    resumed.run(after, never)
    assert {**before.losses, **after.losses} == expected.losses
    assert all(after.losses[step] == loss for step, loss in before.losses.items() if step in after.losses)
    assert_same_weights(weights_of(resumed), weights_of(straight))
    logged = [line["step"] for line in log_of(tmp_path) if "loss" in line]
    assert logged == list(range(1, 21))


def test_a_run_killed_between_an_evaluation_and_its_save_repeats_the_evaluation(
    straight_runs, made_up_tokenizer, tmp_path
):
    class Doomed(Recorder):
        def evaluated(self, step, scores, *, is_best):
            if step == 14:
                raise KilledError

    straight, expected = straight_runs[1]
    with pytest.raises(KilledError):
        make_trainer(tmp_path, made_up_tokenizer, dev=FakeDev(BLEUS)).run(Doomed(), never)
    after = Recorder()
    resumed = make_resumed(tmp_path, made_up_tokenizer, FakeDev(BLEUS[1:]))
    assert resumed.state.step == 7  # saved with the evaluation before
    resumed.run(after, never)
    assert after.evaluations == expected.evaluations[1:]
    assert resumed.state.best == straight.state.best
    assert_same_weights(weights_of(resumed), weights_of(straight))
    evaluations = [line for line in log_of(tmp_path) if "dev_bleu" in line]
    assert [line["step"] for line in evaluations] == [7, 14, 20]
    assert all(path.is_file() for path in resumed.best_checkpoints())


def test_a_run_killed_while_it_saves_goes_on_from_the_save_before(
    straight_runs, made_up_tokenizer, tmp_path, monkeypatch
):
    _, expected = straight_runs[1]
    save, num_saves = torch.save, 0

    def crash_in_the_third(content, path):
        nonlocal num_saves
        num_saves += 1
        save(content, path)
        if num_saves == 3:
            path.write_bytes(path.read_bytes()[:1000])
            raise KilledError

    trainer = make_trainer(tmp_path, made_up_tokenizer, save_every_seconds=0.0)
    with monkeypatch.context() as patched:
        patched.setattr(torch, "save", crash_in_the_third)
        with pytest.raises(KilledError):
            trainer.run(Recorder(), never)
    after = Recorder()
    resumed = make_resumed(tmp_path, made_up_tokenizer, FakeDev())
    assert resumed.state.step == 2
    resumed.run(after, never)
    assert after.losses == {step: loss for step, loss in expected.losses.items() if step > 2}


@pytest.mark.slow
def test_a_process_killed_at_any_moment_goes_on_to_the_same_losses(made_up_tokenizer, tmp_path):
    (tmp_path / TOKENIZER_FILE).write_bytes(made_up_tokenizer.source.serialized_model_proto())
    run = tmp_path / "run"
    command = [sys.executable, "-m", "tests.model.training.tiny_runs", run, tmp_path]
    environment = {"PYTHONPATH": f"{REPOSITORY}:{REPOSITORY / 'model'}", "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(command, cwd=REPOSITORY, env=environment, stdout=subprocess.PIPE, text=True)
    try:
        for line in process.stdout:
            if int(line) == 9:
                break
    finally:
        process.send_signal(signal.SIGKILL)
        process.communicate()
    assert process.returncode == -signal.SIGKILL
    after, straight = Recorder(), Recorder()
    resumed = make_resumed(run, made_up_tokenizer, FakeDev(), max_steps=10_000)
    killed_after = resumed.state.step
    assert killed_after >= 8
    resumed.run(after, lambda: len(after.reports) == 6)
    trainer = make_trainer(tmp_path / "straight", made_up_tokenizer, max_steps=10_000)
    trainer.run(straight, lambda: len(straight.reports) == killed_after + 6)
    assert after.losses == {step: straight.losses[step] for step in range(killed_after + 1, killed_after + 7)}
    assert_same_weights(weights_of(resumed), weights_of(trainer))


# What is refused


def test_another_recipe_is_refused(made_up_tokenizer, tmp_path):
    recorder = Recorder()
    make_trainer(tmp_path, made_up_tokenizer).run(recorder, lambda: True)
    with pytest.raises(TrainingError, match="follows another recipe"):
        make_trainer(tmp_path, made_up_tokenizer, resume=True, recipe_digest="cd" * 32)


def test_there_must_be_a_run_to_resume(made_up_tokenizer, tmp_path):
    with pytest.raises(TrainingError, match=STATE_FILE):
        make_trainer(tmp_path, made_up_tokenizer, resume=True)


def test_resuming_a_complete_run_changes_nothing(straight_runs, made_up_tokenizer, tmp_path):
    trainer, _ = run_straight(tmp_path, made_up_tokenizer)
    log, weights = log_of(tmp_path), weights_of(trainer)
    recorder, dev = Recorder(), FakeDev(BLEUS)
    resumed = make_resumed(tmp_path, made_up_tokenizer, dev)
    assert resumed.run(recorder, never)
    assert recorder.reports == []
    assert resumed.state.best == trainer.state.best
    assert log_of(tmp_path) == log
    assert_same_weights(weights_of(resumed), weights)
    assert dev.num_scored == 0
