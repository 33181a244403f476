"""How graphs are recorded, on an imagined device; and on a real one, steps that are recorded beside steps that are not."""

import gc
import inspect
import random
from collections import defaultdict
from contextlib import contextmanager
from types import SimpleNamespace

import pytest
import torch

from dragoman_model import cuda_graphs, static_step
from dragoman_model.batch import RunningBatch
from dragoman_model.checkpoint import load_model
from dragoman_model.cuda_graphs import CudaRecorder
from dragoman_model.inference import InferenceModel
from dragoman_model.static_step import StaticModel
from tests.model.random_walks import make_sequences, make_transformer, tokens_of, translate, walk
from tests.models import VARIANTS

DEVICE = torch.device("cuda", 0)


class ImaginedCuda:
    """Stands where `torch.cuda` does and notes what is done, and on which stream."""

    def __init__(self):
        self.done, self.current, self.num_streams, self.fails = [], "default", 0, False

    def Stream(self, device):  # noqa: N802 (PyTorch's name)
        self.num_streams += 1
        name = f"stream {self.num_streams}"
        return SimpleNamespace(
            name=name, wait_stream=lambda other: self.note(f"{name} waits for {name_of(other)}")
        )

    def current_stream(self):
        current = self.current
        return SimpleNamespace(
            name=current, wait_stream=lambda other: self.note(f"{current} waits for {name_of(other)}")
        )

    def set_stream(self, stream):
        self.current = name_of(stream)

    @contextmanager
    def stream(self, stream):
        before, self.current = self.current, name_of(stream)
        yield
        self.current = before

    @contextmanager
    def device(self, device):
        yield

    def graph_pool_handle(self):
        return object()

    def CUDAGraph(self):  # noqa: N802
        return SimpleNamespace(
            replay=lambda: self.note("replays"), reset=lambda: self.note("graph is gone"), pool=None
        )

    @contextmanager
    def graph(self, graph, *, pool, stream, capture_error_mode):
        assert capture_error_mode == "thread_local"
        self.current, before = name_of(stream), self.current
        graph.pool = pool
        self.note("recording")
        yield
        self.note("recorded")
        if self.fails:
            raise RuntimeError("operation not permitted")  # the stream stays, as it does in PyTorch
        self.current = before

    def synchronize(self, device):
        self.note("waits for the device")

    def note(self, what):
        self.done.append(what)


def name_of(stream):
    return stream.name


@pytest.fixture
def cuda(monkeypatch):
    cuda = ImaginedCuda()
    monkeypatch.setattr(cuda_graphs, "torch", SimpleNamespace(cuda=cuda))
    monkeypatch.setattr(cuda_graphs, "_idle_streams", defaultdict(list))
    return cuda


def test_a_function_runs_once_outside_the_graph_and_once_in_it_on_the_same_stream(cuda):
    replay = CudaRecorder(DEVICE).record(lambda: cuda.note(f"runs on {cuda.current}"))
    assert cuda.done == [
        "stream 1 waits for default",
        "runs on stream 1",
        "default waits for stream 1",
        "recording",
        "runs on stream 1",
        "recorded",
    ]
    assert cuda.current == "default"
    replay()
    assert cuda.done[-1] == "replays"


def test_a_recording_that_fails_leaves_the_stream_that_was_current(cuda):
    cuda.fails = True
    with pytest.raises(RuntimeError, match="not permitted"):
        CudaRecorder(DEVICE).record(lambda: None)
    assert cuda.current == "default"
    assert not cuda_graphs._recording.locked()


def test_graphs_are_forgotten_together_once_the_device_is_done_with_them(cuda):
    recorder = CudaRecorder(DEVICE)
    for _ in range(2):
        recorder.record(lambda: None)
    cuda.done.clear()
    recorder.forget()
    recorder.forget()
    assert cuda.done == ["waits for the device", "graph is gone", "graph is gone", "waits for the device"]


def test_graphs_share_a_pool_until_they_are_forgotten(cuda):
    recorder = CudaRecorder(DEVICE)
    for _ in range(2):
        recorder.record(lambda: None)
    first, second = recorder._graphs
    assert first.pool is second.pool
    recorder.forget()
    recorder.record(lambda: None)
    assert recorder._graphs[0].pool is not first.pool


def test_no_two_recorders_that_live_have_the_same_stream_and_none_is_wasted(cuda):
    recorders = [CudaRecorder(DEVICE) for _ in range(2)]
    assert len({recorder._stream.name for recorder in recorders}) == 2
    left = recorders.pop()._stream.name
    gc.collect()
    assert CudaRecorder(DEVICE)._stream.name == left
    assert cuda.num_streams == 2


def test_pytorch_takes_a_graph_as_it_is_asked_for():
    signature = inspect.signature(torch.cuda.graph.__init__)
    signature.bind(None, None, pool=None, stream=None, capture_error_mode="thread_local")


# On a GPU


def on_gpu(test):
    skip = pytest.mark.skipif(not torch.cuda.is_available(), reason="PyTorch sees no GPU here")
    return pytest.mark.gpu(skip(test))


def make_models(dtype=torch.float32, **changes):
    transformer = make_transformer(dtype, **changes).to(DEVICE)
    return StaticModel(transformer, CudaRecorder(DEVICE)), InferenceModel(transformer)


@on_gpu
@pytest.mark.parametrize("variant", ["default", *VARIANTS])
@torch.inference_mode()
def test_replayed_steps_give_the_logits_of_steps_that_are_not_recorded(variant, monkeypatch):
    monkeypatch.setattr(static_step, "FIRST_ROWS", 2)  # so that caches grow, and move
    models = make_models(**VARIANTS.get(variant, {}))
    for replayed, expected, _ in walk(models, random.Random(1), 40):
        torch.testing.assert_close(replayed, expected, rtol=1e-4, atol=1e-4)
    assert models[0].kernels == "PyTorch, CUDA graphs"


@on_gpu
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@torch.inference_mode()
def test_half_precision_is_replayed_as_it_is_computed(dtype):
    models = make_models(dtype)
    for replayed, expected, _ in walk(models, random.Random(1), 40):
        torch.testing.assert_close(replayed, expected, rtol=0.05, atol=0.1)
    assert models[0].kernels == "PyTorch, CUDA graphs"


@on_gpu
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


@on_gpu
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


@on_gpu
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
