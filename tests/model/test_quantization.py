import random
from dataclasses import replace

import pytest
import torch

from dragoman_model import quantization
from dragoman_model.batch import RunningBatch
from dragoman_model.checkpoint import BUNDLED_MODEL, load_model
from dragoman_model.config_file import read_config
from dragoman_model.inference import InferenceModel
from dragoman_model.plan import ForcedDecode, Plan, Sequence
from dragoman_model.quantization import Int8Linear, best_kernel, is_exact
from dragoman_model.transformer import Transformer
from tests.model.decoding import decode, make_sources

KERNELS = [quantization._IntegerKernel, quantization._PackedKernel, quantization._FloatKernel]


@pytest.fixture(scope="module")
def int8_model(tiny_directory):
    return load_model(tiny_directory, device="cpu", precision="int8")


@pytest.fixture(scope="module")
def sources(int8_model):
    return make_sources(int8_model)


def make_linear(kernel, num_inputs=96, num_outputs=80, seed=0):
    torch.manual_seed(seed)
    linear = torch.nn.Linear(num_inputs, num_outputs).requires_grad_(False)
    return linear, Int8Linear.quantize(linear.weight, linear.bias, kernel)


# The map


@pytest.mark.parametrize("kernel", KERNELS)
def test_products_are_those_of_the_definition(kernel):
    assert is_exact(kernel())


def test_a_kernel_that_is_wrong_here_is_not_chosen(monkeypatch, caplog):
    for kernel in KERNELS[:2]:
        monkeypatch.setattr(
            kernel, "product", lambda self, weight: lambda q: torch.zeros(len(q), len(weight))
        )
    assert isinstance(best_kernel(), quantization._FloatKernel)
    assert "wrong products" in caplog.text or not torch.backends.mkldnn.is_available()


@pytest.mark.parametrize("kernel", KERNELS)
def test_the_map_is_within_its_rounding_of_the_one_in_floating_point(kernel):
    linear, int8 = make_linear(kernel())
    x = torch.randn(5, 7, 96)
    x[0, 0] *= 1000  # a row of its own scale
    # Each of 96 products is off by half a step of the activation times the weight, and the other way round.
    steps = x.abs().amax(-1, keepdim=True) / kernel.levels
    weight_steps = linear.weight.abs().amax(1) / 127
    bound = steps / 2 * linear.weight.abs().sum(1) + weight_steps / 2 * x.abs().sum(-1, keepdim=True)
    assert ((int8(x) - linear(x)).abs() <= bound * 1.01 + 1e-6).all()
    assert not int8(x).equal(linear(x))


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("count", [1, 2, 7, 33])
def test_a_row_gets_the_same_bits_whatever_stands_beside_it(kernel, count):
    _, int8 = make_linear(kernel())
    x = torch.randn(64, 96) * torch.logspace(-3, 3, 64)[:, None]
    together = int8(x)
    for start in range(0, 64 - count, 5):
        assert int8(x[start : start + count]).equal(together[start : start + count])


@pytest.mark.parametrize("kernel", KERNELS)
def test_a_row_of_zeros_gives_the_bias(kernel):
    linear, int8 = make_linear(kernel())
    assert int8(torch.zeros(2, 96)).equal(linear.bias.expand(2, -1))


def test_maps_side_by_side_give_what_each_gives():
    kernel = best_kernel()
    first, second = (make_linear(kernel, seed=seed)[1] for seed in (1, 2))
    x = torch.randn(3, 96)
    both = Int8Linear.fused([first, second], [0.5, 1.0])(x)
    assert both.equal(torch.cat((first(x) * 0.5, second(x)), dim=1))


# The model


@pytest.mark.parametrize("num_heads", [8, 4])
def test_rows_of_narrow_heads_get_the_same_bits_whatever_stands_beside_them(num_heads):
    torch.manual_seed(0)
    sizes = {"d_model": 64, "d_ff": 128, "source_vocab_size": 96, "target_vocab_size": 96}
    config = replace(read_config(BUNDLED_MODEL / "config.json"), num_heads=num_heads, **sizes)
    transformer = Transformer(config).eval().requires_grad_(False)
    transformer.quantize(best_kernel())
    model, rng = InferenceModel(transformer), random.Random(0)
    long, short = ([[*(rng.randrange(4, 96) for _ in range(length)), 2]] for length in (39, 5))
    for width in (1, 4):
        together, alone = model.prefill(long, width), model.prefill(short, width)
        for step in range(40):
            model.step(torch.full((width,), 5 + step), together)
        together.concatenate(model.prefill(short, width))
        for _ in range(20):
            token_ids = torch.tensor([rng.randrange(4, 96) for _ in range(2 * width)])
            assert model.step(token_ids, together)[width:].equal(model.step(token_ids[width:], alone))


def test_logits_are_close_to_those_in_float32(tiny_model, int8_model, sources):
    models = [InferenceModel(model.transformer) for model in (tiny_model, int8_model)]
    start = torch.full((7,), tiny_model.config.decoder_start_id)
    with torch.inference_mode():
        exact, rounded = (model.step(start, model.prefill(sources[:7])) for model in models)
    assert (exact - rounded).norm() < 0.05 * exact.norm()
    assert not exact.equal(rounded)


def test_attention_shown_is_that_of_the_integers_that_served(tiny_model, int8_model, sources):
    written = decode(int8_model, [Sequence(id=0, source_ids=sources[0], max_length=20)])[0][0]
    forced = ForcedDecode(id=0, source_ids=sources[0], target_ids=written.token_ids)
    served, exact = (
        RunningBatch(model.transformer).run(Plan(attend=(forced,))).attentions[0]
        for model in (int8_model, tiny_model)
    )
    assert served.log_probabilities == pytest.approx(written.log_probabilities, abs=0.02)
    torch.testing.assert_close(served.cross, exact.cross, rtol=0, atol=0.05)
    assert not served.cross.equal(exact.cross)


def test_auto_is_int8_for_a_wide_model_where_the_processor_is_fast_at_it(tiny_model):
    fast = best_kernel().is_fast
    assert load_model(BUNDLED_MODEL, device="cpu").precision == ("int8" if fast else "float32")
    assert tiny_model.precision == "float32"  # too narrow to gain


def test_the_model_says_that_it_computes_in_integers(int8_model, tiny_model):
    assert int8_model.precision == "int8"
    assert int8_model.parameter_count == tiny_model.parameter_count
