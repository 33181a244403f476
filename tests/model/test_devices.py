import pytest
import torch

from dragoman_model.devices import computes_bfloat16, resolve_device, resolve_precision
from dragoman_model.errors import DeviceError

CPU, GPU = torch.device("cpu"), torch.device("cuda", 0)


@pytest.fixture
def no_gpu(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)


@pytest.fixture
def two_gpus(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)


@pytest.mark.usefixtures("no_gpu")
@pytest.mark.parametrize("device", ["auto", "cpu", "cpu:0"])
def test_without_a_gpu_the_cpu_serves(device):
    assert resolve_device(device) == CPU


@pytest.mark.usefixtures("no_gpu")
@pytest.mark.parametrize("device", ["cuda", "cuda:0", "cuda:7"])
def test_a_gpu_that_is_not_there_is_a_clear_error(device):
    with pytest.raises(DeviceError, match=f"'{device}' asks for a GPU, but PyTorch sees none here; use cpu"):
        resolve_device(device)


@pytest.mark.usefixtures("two_gpus")
@pytest.mark.parametrize(("device", "index"), [("auto", 0), ("cuda", 0), ("cuda:1", 1)])
def test_a_gpu_is_taken_where_there_is_one(device, index):
    assert resolve_device(device) == torch.device("cuda", index)


@pytest.mark.usefixtures("two_gpus")
def test_a_gpu_beyond_the_last_is_an_error_that_says_how_many_there_are():
    with pytest.raises(DeviceError, match="there are 2 GPUs here"):
        resolve_device("cuda:2")
    assert resolve_device("cpu") == CPU


@pytest.mark.parametrize("device", ["gpu", "", "cuda:x", "cuda:-1", "mps", "meta", "CPU "])
def test_an_unknown_device_is_refused_with_those_there_are(device):
    with pytest.raises(DeviceError, match="use auto, cpu, cuda or cuda:N"):
        resolve_device(device)


@pytest.mark.parametrize(
    ("precision", "device", "dtype"),
    [
        ("auto", CPU, torch.float32),
        ("auto", GPU, torch.bfloat16),
        ("float32", GPU, torch.float32),
        ("bfloat16", CPU, torch.bfloat16),
        ("float16", GPU, torch.float16),
    ],
)
def test_a_precision_is_a_dtype_of_the_device(precision, device, dtype):
    assert resolve_precision(precision, device) is dtype


@pytest.mark.parametrize("precision", ["int4", "float64", "", "half"])
def test_an_unknown_precision_is_refused_with_those_there_are(precision):
    with pytest.raises(DeviceError, match="use auto, float32, bfloat16, float16"):
        resolve_precision(precision, CPU)


def test_float16_on_a_cpu_is_refused():
    with pytest.raises(DeviceError, match="needs a GPU"):
        resolve_precision("float16", CPU)


def test_whether_bfloat16_is_fast_is_known_on_any_machine():
    assert isinstance(computes_bfloat16(CPU), bool)
