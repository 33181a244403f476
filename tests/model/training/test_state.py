import json

import pytest
import torch
from safetensors.torch import load_file, save_file

from dragoman_model.errors import TrainingError
from dragoman_model.training.state import (
    STATE_FILE,
    CheckpointStore,
    RunState,
    TrainingLog,
    average_checkpoints,
    restore_state,
    save_state,
    write_atomically,
)


def make_model(seed=0, width=3):
    torch.manual_seed(seed)
    model = torch.nn.Linear(width, 2)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    return model, optimizer


def take_step(model, optimizer):
    model(torch.randn(5, 3)).pow(2).sum().backward()
    optimizer.step()
    optimizer.zero_grad()


STATE = RunState(
    recipe_digest="ab" * 32, step=40, epoch=2, batch_index=3, seconds=61.5,
    best=[(21.5, 40), (20.0, 20)], evaluations_since_best=1,
)  # fmt: skip


def test_a_saved_state_comes_back_whole(tmp_path):
    model, optimizer = make_model()
    take_step(model, optimizer)
    save_state(tmp_path, STATE, dict(model.named_parameters()), optimizer)
    take_step(model, optimizer)
    expected_weight, expected_draw = model.weight.detach().clone(), torch.rand(3)

    other, other_optimizer = make_model(seed=9)
    restored = restore_state(tmp_path, dict(other.named_parameters()), other_optimizer)
    assert restored == STATE
    take_step(other, other_optimizer)  # the same random input, the same moments
    assert other.weight.equal(expected_weight)
    assert torch.rand(3).equal(expected_draw)


def test_a_state_is_read_without_unpickling_code(tmp_path, monkeypatch):
    arguments = []
    load = torch.load

    def watched(*args, **kwargs):
        arguments.append(kwargs)
        return load(*args, **kwargs)

    monkeypatch.setattr(torch, "load", watched)
    model, optimizer = make_model()
    save_state(tmp_path, STATE, dict(model.named_parameters()), optimizer)
    restore_state(tmp_path, dict(model.named_parameters()), optimizer)
    assert [kwargs["weights_only"] for kwargs in arguments] == [True]


def test_a_state_that_holds_code_is_refused(tmp_path):
    class Trap:
        def __reduce__(self):
            return (open, (str(tmp_path / "sprung"), "w"))

    torch.save({"state": Trap()}, tmp_path / STATE_FILE)
    model, optimizer = make_model()
    with pytest.raises(TrainingError, match="not a state of this run"):
        restore_state(tmp_path, dict(model.named_parameters()), optimizer)
    assert not (tmp_path / "sprung").exists()


def test_without_a_state_there_is_nothing_to_resume(tmp_path):
    model, optimizer = make_model()
    with pytest.raises(TrainingError, match=f"{STATE_FILE}: no such file; .* without --resume"):
        restore_state(tmp_path, dict(model.named_parameters()), optimizer)


@pytest.mark.parametrize("damage", ["empty", "truncated", "foreign", "other keys", "a list"])
def test_a_damaged_state_is_an_error_that_names_the_file(tmp_path, damage):
    model, optimizer = make_model()
    path = tmp_path / STATE_FILE
    save_state(tmp_path, STATE, dict(model.named_parameters()), optimizer)
    content = path.read_bytes()
    if damage in ("empty", "truncated", "foreign"):
        path.write_bytes(
            {"empty": b"", "truncated": content[: len(content) // 2], "foreign": b"hello"}[damage]
        )
    else:
        torch.save({"other keys": {"weights": {}}, "a list": [1, 2]}[damage], path)
    with pytest.raises(TrainingError, match=STATE_FILE):
        restore_state(tmp_path, dict(model.named_parameters()), optimizer)


def test_a_state_of_another_model_is_refused(tmp_path):
    model, optimizer = make_model()
    save_state(tmp_path, STATE, dict(model.named_parameters()), optimizer)
    with pytest.raises(TrainingError, match="another model"):
        restore_state(tmp_path, {"weight": model.weight}, optimizer)
    wider, wider_optimizer = make_model(width=4)
    with pytest.raises(TrainingError, match="not a state of this run"):
        restore_state(tmp_path, dict(wider.named_parameters()), wider_optimizer)


# Atomic writing


def test_a_crash_while_writing_leaves_the_old_file(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"old")

    def crash(partial):
        partial.write_bytes(b"ne")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_atomically(path, crash)
    assert path.read_bytes() == b"old"
    write_atomically(path, lambda partial: partial.write_bytes(b"new"))
    assert path.read_bytes() == b"new"
    assert [file.name for file in tmp_path.iterdir()] == ["file"]


def test_a_crash_while_saving_leaves_the_old_state(tmp_path, monkeypatch):
    model, optimizer = make_model()
    weights = dict(model.named_parameters())
    save_state(tmp_path, STATE, weights, optimizer)
    expected = model.weight.detach().clone()
    take_step(model, optimizer)

    def crash(content, path):
        path.write_bytes(b"PK half of it")
        raise OSError("No space left on device")

    monkeypatch.setattr(torch, "save", crash)
    with pytest.raises(OSError, match="No space"):
        save_state(tmp_path, RunState("cd" * 32, step=41), weights, optimizer)
    assert restore_state(tmp_path, weights, optimizer) == STATE
    assert model.weight.equal(expected)


# Checkpoints


def test_only_the_checkpoints_asked_for_are_kept(tmp_path):
    store = CheckpointStore(tmp_path / "checkpoints")
    for step in (10, 20, 30):
        store.save(step, {"w": torch.full((2,), float(step))})
    store.keep_only({10, 30})
    assert {path.name for path in (tmp_path / "checkpoints").iterdir()} == {
        "step-0000010.safetensors",
        "step-0000030.safetensors",
    }
    assert load_file(store.path(30))["w"].tolist() == [30.0, 30.0]


def test_an_average_is_the_mean_of_every_weight(tmp_path):
    paths, expected = [], {"a": 0.0, "b": 0.0}
    for seed in range(3):
        torch.manual_seed(seed)
        weights = {"a": torch.randn(3, 5), "b": torch.randn(7)}
        paths.append(tmp_path / f"{seed}.safetensors")
        save_file(weights, paths[-1])
        expected = {name: expected[name] + weights[name].double() / 3 for name in weights}
    average = average_checkpoints(paths)
    assert average.keys() == {"a", "b"}
    for name, tensor in average.items():
        assert tensor.dtype == torch.float32
        torch.testing.assert_close(tensor.double(), expected[name], rtol=1e-6, atol=1e-7)
    assert average_checkpoints(paths[:1])["a"].equal(load_file(paths[0])["a"])


# The log


def write_log(path, steps, from_step=0):
    log = TrainingLog(path, from_step=from_step)
    for step in steps:
        log.write(step=step, loss=step / 3)
    return log


def steps_of(path):
    return [json.loads(line)["step"] for line in path.read_text().splitlines()]


def test_a_new_log_forgets_an_old_one(tmp_path):
    path = tmp_path / "log.jsonl"
    write_log(path, [10, 20])
    write_log(path, [5])
    assert steps_of(path) == [5]


def test_a_resumed_log_is_cut_behind_the_saved_step(tmp_path):
    path = tmp_path / "log.jsonl"
    write_log(path, [10, 20, 20, 30, 40])
    write_log(path, [25], from_step=20)
    assert steps_of(path) == [10, 20, 20, 25]


@pytest.mark.parametrize("torn", ['{"step": 1', '{"step": 15, "loss": 0.', "not json", '"text"', "[1]"])
def test_a_line_torn_by_a_kill_is_dropped(tmp_path, torn):
    path = tmp_path / "log.jsonl"
    write_log(path, [10, 20])
    with path.open("a") as file:
        file.write(torn)
    write_log(path, [30], from_step=20)
    assert steps_of(path) == [10, 20, 30]


def test_a_missing_log_begins_anew(tmp_path):
    write_log(tmp_path / "log.jsonl", [30], from_step=20)
    assert steps_of(tmp_path / "log.jsonl") == [30]
