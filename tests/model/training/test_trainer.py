import json
import math

import pytest
import torch
from safetensors.torch import load_file
from torch.optim.optimizer import register_optimizer_step_pre_hook

from dragoman_model.checkpoint import LoadedModel, named_weights
from dragoman_model.errors import TrainingError
from dragoman_model.training.batching import epoch_batches
from dragoman_model.training.evaluate import DevSet
from dragoman_model.training.recipe import AugmentationOptions
from dragoman_model.training.schedule import learning_rate
from dragoman_model.training.state import LOG_FILE, average_checkpoints
from dragoman_model.translator import Translator
from tests.model.made_up import made_up_pairs
from tests.model.training.tiny_runs import (
    NO_AUGMENTATION,
    OPTIONS,
    TRAIN,
    Clock,
    FakeDev,
    Recorder,
    make_trainer,
    never,
)
from tests.models import tiny_config


def run(trainer, should_stop=never):
    recorder = Recorder()
    return trainer.run(recorder, should_stop), recorder


def log_lines(directory):
    return [json.loads(line) for line in (directory / LOG_FILE).read_text().splitlines()]


@pytest.fixture
def gradients():
    """The gradients of every update, as the optimizer gets them."""
    captured = []

    def capture(optimizer, args, kwargs):
        captured.append(
            [p.grad.detach().clone() for group in optimizer.param_groups for p in group["params"]]
        )

    handle = register_optimizer_step_pre_hook(capture)
    yield captured
    handle.remove()


# One update


def test_two_half_batches_make_the_gradient_of_a_whole_one(made_up_tokenizer, tmp_path, gradients):
    reports = {}
    for name, tokens, steps in (("whole", 100_000, 1), ("parts", 250, 1000)):
        trainer = make_trainer(
            tmp_path / name, made_up_tokenizer, config=tiny_config(), augmentation=NO_AUGMENTATION,
            max_batch_tokens=tokens, accumulation_steps=steps, clip_norm=0.0, max_steps=1,
        )  # fmt: skip
        reports[name] = run(trainer)[1].reports[0]
    whole, parts = gradients
    largest = max(gradient.abs().max() for gradient in whole)
    for expected, actual in zip(whole, parts, strict=True):
        torch.testing.assert_close(actual, expected, rtol=0, atol=1e-5 * largest.item())
    assert reports["parts"].loss == pytest.approx(reports["whole"].loss, rel=1e-5)
    assert reports["parts"].gradient_norm == pytest.approx(reports["whole"].gradient_norm, rel=1e-5)
    assert reports["parts"].tokens == reports["whole"].tokens
    assert reports["whole"].tokens == sum(len(made_up_tokenizer.encode_target(t)) for _, t in TRAIN)


@pytest.mark.parametrize("accumulation_steps", [1, 2, 3])
def test_an_epoch_uses_each_of_its_batches_once(made_up_tokenizer, tmp_path, accumulation_steps):
    batches = epoch_batches(
        TRAIN, made_up_tokenizer, tiny_config(), AugmentationOptions(),
        max_batch_tokens=OPTIONS["max_batch_tokens"], seed=OPTIONS["seed"], epoch=0,
    )  # fmt: skip
    trainer = make_trainer(tmp_path, made_up_tokenizer, accumulation_steps=accumulation_steps)
    _, recorder = run(trainer)
    tokens = [report.tokens for report in recorder.reports if report.epoch == 0]
    assert len(tokens) == math.ceil(len(batches) / accumulation_steps)
    assert sum(tokens) == sum(batch.num_target_tokens for batch in batches)
    if accumulation_steps == 1:
        assert tokens == [batch.num_target_tokens for batch in batches]


def test_a_gradient_is_clipped_to_its_largest_norm(made_up_tokenizer, tmp_path, gradients):
    trainer = make_trainer(tmp_path, made_up_tokenizer, clip_norm=0.25, max_steps=3)
    reports = run(trainer)[1].reports
    for report, gradient in zip(reports, gradients, strict=True):
        norm = torch.cat([g.flatten() for g in gradient]).norm().item()
        assert report.gradient_norm > 0.25  # as it was before
        assert norm == pytest.approx(0.25, rel=1e-3)


def test_an_update_is_adamw_with_decay_on_matrices_alone(made_up_tokenizer, tmp_path, gradients):
    trainer = make_trainer(
        tmp_path, made_up_tokenizer, warmup_steps=0, max_steps=1, weight_decay=0.5, learning_rate=0.01
    )
    before = {name: weight.detach().clone() for name, weight in named_weights(trainer.transformer).items()}
    run(trainer)
    matrices = [weight for weight in before.values() if weight.dim() >= 2]
    vectors = [weight for weight in before.values() if weight.dim() < 2]
    after = [weight.detach() for weight in trainer.transformer.parameters()]
    ordered = [w for w in after if w.dim() >= 2] + [w for w in after if w.dim() < 2]
    for old, new, gradient in zip([*matrices, *vectors], ordered, gradients[0], strict=True):
        decayed = old * (1 - 0.01 * 0.5) if old.dim() >= 2 else old
        # The first update of Adam is the gradient over its own size.
        expected = decayed - 0.01 * gradient / (gradient.abs() + 1e-9)
        torch.testing.assert_close(new, expected, rtol=0, atol=1e-6)


def test_the_rate_of_each_update_is_the_schedules(made_up_tokenizer, tmp_path):
    reports = run(make_trainer(tmp_path, made_up_tokenizer))[1].reports
    assert [report.step for report in reports] == list(range(1, 21))
    for report in reports:
        assert report.progress == report.step / 20
        assert report.learning_rate == learning_rate(0.01, report.step, 4, (report.step - 1) / 20)


def test_the_same_seed_gives_the_same_run_and_another_one_another(made_up_tokenizer, tmp_path):
    runs = []
    for number, seed in enumerate((3, 3, 4)):
        torch.rand(number)  # what ran before has no part in it
        trainer = make_trainer(tmp_path / str(number), made_up_tokenizer, seed=seed, max_steps=5)
        runs.append(run(trainer)[1].losses)
    assert runs[0] == runs[1]
    assert runs[0] != runs[2]


# Time


def test_a_run_of_so_many_seconds_anneals_the_rate_to_its_end(made_up_tokenizer, tmp_path):
    trainer = make_trainer(
        tmp_path, made_up_tokenizer, max_seconds=100.0, clock=Clock(tick=10.0),
        max_steps=1000, warmup_steps=2, evaluate_every_steps=1000,
    )  # fmt: skip
    complete, recorder = run(trainer)
    assert complete
    rates = [report.learning_rate for report in recorder.reports]
    expected = [learning_rate(0.01, step, 2, (step - 1) / 10) for step in range(1, 11)]
    assert rates == pytest.approx(expected)
    assert rates[-1] == pytest.approx(0.001)
    assert [report.seconds for report in recorder.reports] == [10.0 * step for step in range(1, 11)]


def test_seconds_of_earlier_runs_count(made_up_tokenizer, tmp_path):
    changes = {"max_seconds": 100.0, "max_steps": 1000, "warmup_steps": 2, "evaluate_every_steps": 1000}
    before = Recorder()
    first = make_trainer(tmp_path, made_up_tokenizer, clock=Clock(tick=10.0), **changes)
    assert not first.run(before, lambda: len(before.reports) == 4)
    assert first.state.seconds == 40.0
    # Another process, whose clock began elsewhere and after a night's rest.
    second = make_trainer(tmp_path, made_up_tokenizer, clock=Clock(5e6, tick=10.0), resume=True, **changes)
    complete, after = run(second)
    assert complete
    progress = [report.progress for report in before.reports + after.reports]
    assert progress == pytest.approx([tenth / 10 for tenth in range(1, 11)])


def test_a_run_can_be_given_more_time(made_up_tokenizer, tmp_path):
    changes = {"max_steps": 1000, "evaluate_every_steps": 1000, "clock": Clock(tick=10.0)}
    run(make_trainer(tmp_path, made_up_tokenizer, max_seconds=30.0, **changes))
    longer = make_trainer(tmp_path, made_up_tokenizer, max_seconds=100.0, resume=True, **changes)
    reports = run(longer)[1].reports
    assert reports[0].step == 4
    assert reports[0].progress == pytest.approx(0.5)  # with the ten seconds of the last evaluation


def test_no_time_at_all_is_a_complete_run_of_no_updates(made_up_tokenizer, tmp_path):
    complete, recorder = run(make_trainer(tmp_path, made_up_tokenizer, max_seconds=0.0))
    assert complete
    assert recorder.reports == []


def test_a_run_asked_to_stop_stops_after_the_update_and_is_saved(made_up_tokenizer, tmp_path):
    trainer = make_trainer(tmp_path, made_up_tokenizer)
    complete, recorder = run(trainer, should_stop=lambda: True)
    assert not complete
    assert [report.step for report in recorder.reports] == [1]
    assert make_trainer(tmp_path, made_up_tokenizer, resume=True).state == trainer.state


# Evaluations


def test_the_last_update_is_evaluated_whatever_its_number(made_up_tokenizer, tmp_path):
    for max_steps, expected in ((14, [7, 14]), (16, [7, 14, 16]), (3, [3])):
        trainer = make_trainer(tmp_path / str(max_steps), made_up_tokenizer, max_steps=max_steps)
        assert [step for step, *_ in run(trainer)[1].evaluations] == expected


def test_a_run_stops_once_patience_is_spent(made_up_tokenizer, tmp_path):
    dev = FakeDev([3.0, 5.0, 4.0, 4.9, 9.0])
    trainer = make_trainer(
        tmp_path, made_up_tokenizer, dev=dev, patience=2, evaluate_every_steps=2, max_steps=1000
    )
    complete, recorder = run(trainer)
    assert complete
    assert recorder.evaluations == [(2, 3.0, True), (4, 5.0, True), (6, 4.0, False), (8, 4.9, False)]
    assert trainer.state.step == 8


def test_patience_counts_through_a_stop(made_up_tokenizer, tmp_path):
    dev = FakeDev([5.0, 4.0, 3.0, 9.0])
    changes = {"dev": dev, "patience": 2, "evaluate_every_steps": 2, "max_steps": 1000}
    before = Recorder()
    make_trainer(tmp_path, made_up_tokenizer, **changes).run(before, lambda: len(before.reports) == 5)
    complete, recorder = run(make_trainer(tmp_path, made_up_tokenizer, resume=True, **changes))
    assert complete
    assert recorder.evaluations == [(6, 3.0, False)]


def test_without_patience_a_run_goes_on(made_up_tokenizer, tmp_path):
    dev = FakeDev([5.0, 4.0, 3.0, 2.0, 1.0])
    trainer = make_trainer(tmp_path, made_up_tokenizer, dev=dev, evaluate_every_steps=2, max_steps=10)
    assert len(run(trainer)[1].evaluations) == 5


def test_the_best_checkpoints_are_kept_and_their_average_is_their_mean(made_up_tokenizer, tmp_path):
    weights = {}

    class Watcher(Recorder):
        def evaluated(self, step, scores, *, is_best):
            now = named_weights(trainer.transformer)
            weights[step] = {name: weight.detach().clone() for name, weight in now.items()}

    trainer = make_trainer(
        tmp_path, made_up_tokenizer, dev=FakeDev([1.0, 5.0, 3.0, 4.0, 2.0]), keep_checkpoints=2,
        evaluate_every_steps=3, max_steps=15,
    )  # fmt: skip
    trainer.run(Watcher(), never)
    best = trainer.best_checkpoints()
    assert trainer.state.best == [(5.0, 6), (4.0, 12)]
    assert sorted(best) == sorted((tmp_path / "checkpoints").iterdir())
    for path, step in zip(best, (6, 12), strict=True):
        stored = load_file(path)
        assert all(stored[name].equal(weight) for name, weight in weights[step].items())
    for name, mean in average_checkpoints(best).items():
        torch.testing.assert_close(mean, (weights[6][name] + weights[12][name]) / 2, rtol=1e-6, atol=1e-7)


def test_of_equally_good_checkpoints_the_later_is_kept(made_up_tokenizer, tmp_path):
    trainer = make_trainer(
        tmp_path, made_up_tokenizer, dev=FakeDev([0.0]), keep_checkpoints=2, evaluate_every_steps=2,
        max_steps=8,
    )  # fmt: skip
    run(trainer)
    assert trainer.state.best == [(0.0, 8), (0.0, 6)]


# The log


def test_the_log_holds_updates_and_evaluations(made_up_tokenizer, tmp_path):
    trainer = make_trainer(
        tmp_path, made_up_tokenizer, log_every_steps=5, evaluate_every_steps=10, clock=Clock(tick=2.0),
        dev=FakeDev([12.3456]),
    )  # fmt: skip
    _, recorder = run(trainer)
    lines = log_lines(tmp_path)
    assert [(line["step"], "loss" in line) for line in lines] == [
        (5, True), (10, True), (10, False), (15, True), (20, True), (20, False),
    ]  # fmt: skip
    assert lines[0]["loss"] == recorder.reports[4].loss
    assert lines[0]["seconds"] == 10.0
    tokens = [report.tokens for report in recorder.reports]
    assert lines[0]["tokens_per_second"] == pytest.approx(sum(tokens[:5]) / 10, abs=0.1)
    assert lines[2]["dev_bleu"] == 12.346
    assert lines[2]["dev_chrf"] == 24.691


def test_the_time_of_an_evaluation_does_not_slow_down_the_tokens_a_second(made_up_tokenizer, tmp_path):
    class SlowDev(FakeDev):
        def score(self, transformer):
            clock.now += 1000.0
            return super().score(transformer)

    clock = Clock(tick=2.0)
    trainer = make_trainer(
        tmp_path, made_up_tokenizer, dev=SlowDev(), clock=clock, log_every_steps=6, evaluate_every_steps=4,
        max_steps=12,
    )  # fmt: skip
    _, recorder = run(trainer)
    rates = [line["tokens_per_second"] for line in log_lines(tmp_path) if "loss" in line]
    tokens = [report.tokens for report in recorder.reports]
    # Two seconds an update, and a look or two at the clock for each evaluation.
    assert rates[0] == pytest.approx(sum(tokens[:6]) / 12, rel=0.35)
    assert rates[1] == pytest.approx(sum(tokens[6:]) / 12, rel=0.35)


# What ends a run


def test_a_loss_that_is_no_number_ends_the_run_and_leaves_the_saved_state(made_up_tokenizer, tmp_path):
    trainer = make_trainer(tmp_path, made_up_tokenizer)
    run(trainer, should_stop=lambda: True)
    broken = make_trainer(tmp_path, made_up_tokenizer, resume=True)
    with torch.no_grad():
        broken.transformer.output_bias[5] = float("nan")
    with pytest.raises(TrainingError, match=r"step 2: the loss is nan.*lower learning_rate"):
        run(broken)
    again = make_trainer(tmp_path, made_up_tokenizer, resume=True)
    assert again.state.step == 1
    assert all(weight.isfinite().all() for weight in again.transformer.parameters())


def test_a_gradient_that_is_infinite_ends_the_run_before_it_reaches_the_weights(made_up_tokenizer, tmp_path):
    trainer = make_trainer(tmp_path, made_up_tokenizer)
    hook = trainer.transformer.output_bias.register_hook(lambda gradient: gradient * float("inf"))
    with pytest.raises(TrainingError, match="gradient's norm"):
        run(trainer)
    hook.remove()
    assert all(weight.isfinite().all() for weight in trainer.transformer.parameters())


def test_a_run_without_pairs_is_refused(made_up_tokenizer, tmp_path):
    with pytest.raises(TrainingError, match="no training pairs"):
        run(make_trainer(tmp_path, made_up_tokenizer, train=[]))


# Learning


def test_a_tiny_model_learns_its_sentences_by_heart(made_up_tokenizer, tmp_path):
    pairs = made_up_pairs()[::11]
    config = tiny_config(d_model=32, d_ff=64, num_encoder_layers=1, tie_output=True)
    trainer = make_trainer(
        tmp_path, made_up_tokenizer, config=config, train=pairs, augmentation=NO_AUGMENTATION,
        dev=DevSet(pairs, made_up_tokenizer, config, 1000), max_batch_tokens=1000, label_smoothing=0.05,
        learning_rate=0.02, warmup_steps=20, max_steps=160, evaluate_every_steps=80, seed=OPTIONS["seed"],
    )  # fmt: skip
    complete, recorder = run(trainer)
    losses = [report.loss for report in recorder.reports]
    assert complete
    assert sum(losses[-5:]) / 5 < losses[0] / 4
    assert recorder.evaluations[-1][1] > 90  # BLEU on what it was trained on
    model = LoadedModel(
        name="by heart", config=config, tokenizer=made_up_tokenizer, transformer=trainer.transformer,
        digest="", device=torch.device("cpu"), precision="float32", parameter_count=0,
    )  # fmt: skip
    translations = Translator(model).translate([pair.source for pair in pairs])
    right = [translation.text == pair.target for translation, pair in zip(translations, pairs, strict=True)]
    assert sum(right) > 0.9 * len(pairs)
