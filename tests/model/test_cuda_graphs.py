"""Steps that are recorded on a GPU, beside steps that are not."""

import random

import pytest
import torch

from dragoman_model import static_step
from dragoman_model.batch import RunningBatch
from dragoman_model.checkpoint import load_model
from dragoman_model.cuda_graphs import CudaRecorder
from dragoman_model.inference import InferenceModel
from dragoman_model.static_step import StaticModel
from tests.model.random_walks import make_sequences, make_transformer, tokens_of, translate, walk
from tests.models import VARIANTS

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="PyTorch sees no GPU here"),
]

DEVICE = torch.device("cuda", 0)


def make_models(dtype=torch.float32, **changes):
    transformer = make_transformer(dtype, **changes).to(DEVICE)
    return StaticModel(transformer, CudaRecorder(DEVICE)), InferenceModel(transformer)


@pytest.mark.parametrize("variant", ["default", *VARIANTS])
@torch.inference_mode()
def test_replayed_steps_give_the_logits_of_steps_that_are_not_recorded(variant, monkeypatch):
    monkeypatch.setattr(static_step, "FIRST_ROWS", 2)  # so that caches grow, and move
    models = make_models(**VARIANTS.get(variant, {}))
    for replayed, expected, _ in walk(models, random.Random(1), 40):
        torch.testing.assert_close(replayed, expected, rtol=1e-4, atol=1e-4)
    assert models[0].kernels == "PyTorch, CUDA graphs"


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@torch.inference_mode()
def test_half_precision_is_replayed_as_it_is_computed(dtype):
    models = make_models(dtype)
    for replayed, expected, _ in walk(models, random.Random(1), 40):
        torch.testing.assert_close(replayed, expected, rtol=0.05, atol=0.1)
    assert models[0].kernels == "PyTorch, CUDA graphs"


@pytest.mark.parametrize("max_recordings", [static_step.MAX_RECORDINGS, 3])
def test_sentences_get_the_same_translations(tiny_directory, monkeypatch, max_recordings):
    monkeypatch.setattr(static_step, "MAX_RECORDINGS", max_recordings)
    model = load_model(tiny_directory, device="cuda", precision="float32")
    static = RunningBatch(model.transformer)
    monkeypatch.setenv("DRAGOMAN_KERNELS", "none")
    plain = RunningBatch(model.transformer)
    assert plain.kernels == "PyTorch"
    sequences = make_sequences(60)
    replayed = translate(static, sequences, random.Random(4))
    expected = translate(plain, sequences, random.Random(4))
    assert static.kernels == "PyTorch, CUDA graphs"
    same = sum(tokens_of(replayed)[index] == tokens for index, tokens in tokens_of(expected).items())
    assert same >= len(expected) - 1  # sums may run in another order, and one may be a tie


@torch.inference_mode()
def test_a_recording_that_fails_leaves_a_device_that_goes_on_as_before(monkeypatch, caplog):
    static, plain = make_models()
    stream, decode, broken = torch.cuda.current_stream(), static._decode, [False]

    def decode_and_wait(*args):
        logits = decode(*args)
        if broken[0]:
            logits.sum().item()  # while a graph is recorded, an error
        return logits

    monkeypatch.setattr(static, "_decode", decode_and_wait)
    for number, (replayed, expected, _) in enumerate(walk((static, plain), random.Random(1), 40)):
        torch.testing.assert_close(replayed, expected, rtol=1e-4, atol=1e-4)
        broken[0] = number > 4
    assert static.kernels == "PyTorch"
    assert torch.cuda.current_stream() == stream
    assert "CUDA graphs can't be had here" in caplog.text


@torch.inference_mode()
def test_models_that_come_and_go_do_not_disturb_the_recordings_of_those_that_stay():
    staying, plain = make_models()
    cache, its_twin = staying.prefill([[5, 2], [7, 8, 2]]), plain.prefill([[5, 2], [7, 8, 2]])
    for token in range(10):
        token_ids = torch.tensor([5 + token, 6], device=DEVICE)
        replayed, expected = staying.step(token_ids, cache), plain.step(token_ids, its_twin)
        torch.testing.assert_close(replayed, expected, rtol=1e-4, atol=1e-4)
        make_models()
        torch.cuda.empty_cache()
