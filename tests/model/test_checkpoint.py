import hashlib
import json
import os
import pickle
import shutil
import sys

import pytest
import torch
from safetensors.torch import load_file, save_file

from dragoman_model.checkpoint import (
    CARD_FILE,
    CHECKSUMS_FILE,
    CONFIG_FILE,
    TOKENIZER_FILE,
    WEIGHTS_FILE,
    load_model,
    named_weights,
    save_model,
    write_checksums,
)
from dragoman_model.errors import DeviceError, ModelDirectoryError
from dragoman_model.transformer import Transformer
from tests.models import VARIANTS, make_tiny_model, tiny_config


@pytest.fixture
def directory(tiny_directory, tmp_path):
    """A copy of the tiny model to damage."""
    return shutil.copytree(tiny_directory, tmp_path / "tiny")


def assert_refused(directory, file, reason):
    with pytest.raises(ModelDirectoryError) as caught:
        load_model(directory, device="cpu")
    message = str(caught.value)
    assert str(directory / file) in message
    assert reason in message
    assert "\n" not in message.strip()


# What is right


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"tie_output": True, "output_bias": False, "norm": "post"},
        {"shared_vocabulary": False, "tie_output": True},
        *VARIANTS.values(),
    ],
)
def test_what_was_saved_is_loaded_as_float16_holds_it(changes, tmp_path, tiny_directory):
    config = tiny_config(**changes)
    shutil.copy(tiny_directory / TOKENIZER_FILE, tmp_path)
    torch.manual_seed(4)
    original = Transformer(config)
    save_model(tmp_path, config, named_weights(original), "# A card\n")
    model = load_model(tmp_path, device="cpu")
    assert model.config == config
    loaded = named_weights(model.transformer)
    assert loaded.keys() == named_weights(original).keys()
    for name, weight in named_weights(original).items():
        assert loaded[name].equal(weight.detach().half().float())
        assert loaded[name].dtype == torch.float32
        assert not loaded[name].requires_grad
    assert not model.transformer.training
    assert model.parameter_count == sum(weight.numel() for weight in original.parameters())


def test_weights_are_stored_once_and_in_float16(tiny_directory):
    stored = load_file(tiny_directory / WEIGHTS_FILE)
    assert {tensor.dtype for tensor in stored.values()} == {torch.float16}
    num_values = sum(tensor.numel() for tensor in stored.values())
    assert (tiny_directory / WEIGHTS_FILE).stat().st_size < 2 * num_values + 10_000


def test_a_loaded_model_says_what_it_is(tiny_directory, tiny_model):
    assert tiny_model.name == "tiny"
    assert tiny_model.digest == hashlib.sha256((tiny_directory / WEIGHTS_FILE).read_bytes()).hexdigest()
    assert (tiny_model.device.type, tiny_model.precision) == ("cpu", "float32")


def test_a_model_can_be_loaded_in_bfloat16(tiny_directory):
    model = load_model(tiny_directory, device="cpu", precision="bfloat16")
    assert model.precision == "bfloat16"
    assert {weight.dtype for weight in named_weights(model.transformer).values()} == {torch.bfloat16}
    src_ids = torch.tensor([[300, 2]])
    logits = model.transformer.decode(
        torch.tensor([[1, 310]]), model.transformer.encode(src_ids, src_ids > 0), src_ids > 0
    )
    assert logits.isfinite().all()


def test_a_device_that_is_not_there_is_found_before_any_file_is_read(tmp_path):
    with pytest.raises(DeviceError):
        load_model(tmp_path / "nowhere", device="tpu")
    with pytest.raises(DeviceError):
        load_model(tmp_path / "nowhere", device="cpu", precision="int3")


def test_checksums_are_as_sha256sum_writes_them(tiny_directory):
    for line in (tiny_directory / CHECKSUMS_FILE).read_text().splitlines():
        digest, name = line.split("  ")
        assert digest == hashlib.sha256((tiny_directory / name).read_bytes()).hexdigest()


def test_a_card_in_other_words_or_none_leaves_the_model_as_it_is(directory):
    (directory / CARD_FILE).write_text("# Described anew\n")
    assert load_model(directory, device="cpu").name == "tiny"
    (directory / CARD_FILE).unlink()
    assert load_model(directory, device="cpu").name == "tiny"


def test_whoever_may_read_the_configuration_may_read_the_weights(directory):
    modes = {(directory / name).stat().st_mode for name in (CONFIG_FILE, WEIGHTS_FILE, TOKENIZER_FILE)}
    assert len(modes) == 1


# What is missing, cut short or altered


def test_a_directory_that_is_not_there_is_named(tmp_path):
    assert_refused(tmp_path / "nowhere", "", "no such model directory")
    (tmp_path / "file").write_text("")
    assert_refused(tmp_path / "file", "", "no such model directory")


def test_an_empty_directory_lacks_its_configuration(tmp_path):
    assert_refused(tmp_path, CONFIG_FILE, "no such file")


@pytest.mark.parametrize("file", [CONFIG_FILE, WEIGHTS_FILE, TOKENIZER_FILE, CHECKSUMS_FILE])
def test_a_missing_file_is_named(directory, file):
    (directory / file).unlink()
    assert_refused(directory, file, "no such file")


@pytest.mark.skipif(
    sys.platform != "linux", reason="a file that nobody can read, not even root, is Linux's own"
)
@pytest.mark.parametrize("file", [CONFIG_FILE, WEIGHTS_FILE, TOKENIZER_FILE, CHECKSUMS_FILE])
def test_a_file_that_cannot_be_read_is_named(directory, file):
    (directory / file).unlink()
    (directory / file).symlink_to("/proc/self/mem")
    assert_refused(directory, file, "not readable")


def test_a_directory_that_cannot_be_looked_at_is_named(tmp_path):
    assert_refused(tmp_path / ("long" * 100), "", "not readable")


@pytest.mark.parametrize("file", [WEIGHTS_FILE, TOKENIZER_FILE])
@pytest.mark.parametrize("damage", ["truncated", "altered", "empty"])
def test_a_truncated_or_altered_file_is_named(directory, file, damage):
    content = bytearray((directory / file).read_bytes())
    if damage == "altered":
        content[len(content) // 2] ^= 1
    else:
        del content[0 if damage == "empty" else len(content) // 2 :]
    (directory / file).write_bytes(content)
    assert_refused(directory, file, "truncated or altered")


def test_an_altered_configuration_is_named(directory):
    text = (directory / CONFIG_FILE).read_text()
    (directory / CONFIG_FILE).write_text(text.replace('"activation": "relu"', '"activation": "gelu"'))
    assert_refused(directory, CONFIG_FILE, "truncated or altered")


@pytest.mark.parametrize("file", [CONFIG_FILE, WEIGHTS_FILE, TOKENIZER_FILE])
def test_checksums_must_name_every_file_that_is_read(directory, file):
    lines = (directory / CHECKSUMS_FILE).read_text().splitlines(keepends=True)
    (directory / CHECKSUMS_FILE).write_text("".join(line for line in lines if file not in line))
    assert_refused(directory, CHECKSUMS_FILE, f"does not name {file}")


@pytest.mark.parametrize("content", [b"", b"\xff\xff\xff", b"not a list of checksums\n"])
def test_foreign_checksums_are_named(directory, content):
    (directory / CHECKSUMS_FILE).write_bytes(content)
    assert_refused(directory, CHECKSUMS_FILE, "")


@pytest.mark.parametrize("name", ["../outside", "/etc/hostname", "sub/file"])
def test_checksums_reach_no_file_outside_the_directory(directory, name):
    (directory.parent / "outside").write_text("")
    with (directory / CHECKSUMS_FILE).open("a") as file:
        file.write(f"{'0' * 64}  {name}\n")
    with pytest.raises(ModelDirectoryError, match="no such file, though SHA256SUMS names it"):
        load_model(directory, device="cpu")


# What is whole but does not belong


def test_a_foreign_configuration_is_named(directory):
    (directory / CONFIG_FILE).write_text('{"model_type": "marian"}')
    write_checksums(directory)
    assert_refused(directory, CONFIG_FILE, "not a dragoman model")


@pytest.mark.parametrize(
    ("change", "reason"),
    [({"format_version": 2}, "format_version is 2"), ({"num_layers": 6}, "unknown key 'num_layers'")],
)
def test_a_configuration_of_another_release_is_named(directory, change, reason):
    values = json.loads((directory / CONFIG_FILE).read_text())
    (directory / CONFIG_FILE).write_text(json.dumps({**values, **change}))
    write_checksums(directory)
    assert_refused(directory, CONFIG_FILE, reason)


@pytest.mark.parametrize("side", ["source", "target"])
def test_a_tokenizer_of_another_size_is_named(tmp_path, side):
    directory = make_tiny_model(
        tmp_path / "tiny", shared_vocabulary=False, tie_output=True, **{f"{side}_vocab_size": 500}
    )
    assert_refused(directory, TOKENIZER_FILE, "has 384 pieces, but config.json says 500")


def change_weights(directory, change):
    weights = load_file(directory / WEIGHTS_FILE)
    change(weights)
    save_file(weights, directory / WEIGHTS_FILE)
    write_checksums(directory)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda weights: weights.pop("output_bias"), "lacks tensor 'output_bias'"),
        (
            lambda weights: weights.update({"encoder.9.norm.weight": torch.ones(16)}),
            "holds an unknown tensor 'encoder.9.norm.weight'",
        ),
        (
            lambda weights: weights.update({"output_bias": torch.zeros(1)}),
            "tensor 'output_bias' is (1,), config.json makes it (384,)",
        ),
        (
            lambda weights: weights.update({"output_weight": weights["output_weight"].T.contiguous()}),
            "tensor 'output_weight' is (16, 384), config.json makes it (384, 16)",
        ),
        (lambda weights: weights.clear(), "holds 0 parameters"),
    ],
    ids=["missing", "extra", "broadcastable", "transposed", "none"],
)
def test_weights_of_another_shape_are_named(directory, change, reason):
    change_weights(directory, change)
    assert_refused(directory, WEIGHTS_FILE, reason)


class Trap:
    """Writes a file when it is unpickled."""

    def __init__(self, path):
        self._path = path

    def __reduce__(self):
        return (open, (str(self._path), "w"))


def test_a_trap_is_sprung_when_it_is_unpickled(tmp_path):
    pickle.loads(pickle.dumps(Trap(tmp_path / "sprung"))).close()
    assert (tmp_path / "sprung").exists()


@pytest.mark.parametrize("file", [CONFIG_FILE, WEIGHTS_FILE, TOKENIZER_FILE, CHECKSUMS_FILE])
@pytest.mark.parametrize("write", ["pickle", "torch"])
def test_nothing_is_ever_unpickled(directory, tmp_path, file, write):
    sprung = tmp_path / "sprung"
    if write == "pickle":
        (directory / file).write_bytes(pickle.dumps(Trap(sprung)))
    else:
        torch.save({"weights": Trap(sprung)}, directory / file)
    if file != CHECKSUMS_FILE:
        write_checksums(directory)
    assert_refused(directory, file, "")
    assert not sprung.exists()


@pytest.mark.parametrize("change", [{"num_encoder_layers": 400_000}, {"d_model": 2**30}])
def test_a_configuration_of_another_size_is_refused_before_the_model_is_built(directory, change):
    values = json.loads((directory / CONFIG_FILE).read_text())
    (directory / CONFIG_FILE).write_text(json.dumps({**values, **change}))
    write_checksums(directory)
    assert_refused(directory, WEIGHTS_FILE, "holds 1")


def test_weights_that_are_no_numbers_are_refused(directory):
    weights = load_file(directory / WEIGHTS_FILE)
    weights["output_weight"][3, 5] = float("nan")
    save_file(weights, directory / WEIGHTS_FILE)
    write_checksums(directory)
    assert_refused(directory, WEIGHTS_FILE, "'output_weight' holds values that are no numbers")


def test_a_pipe_in_place_of_the_configuration_is_refused_at_once(directory):
    (directory / CONFIG_FILE).unlink()
    os.mkfifo(directory / CONFIG_FILE)
    assert_refused(directory, CONFIG_FILE, "not a file")
