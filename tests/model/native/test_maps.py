import ctypes

import pytest
import torch

from dragoman_model.native.build import library
from dragoman_model.native.maps import float_map
from dragoman_model.native.memory import WeightMemory
from dragoman_model.native.values import long, pointer

pytestmark = pytest.mark.skipif(library() is None, reason="no C compiler here")


def apply(kernels, held, x):
    out = torch.full((len(x), held.map.outputs), torch.nan)
    kernels.map_rows(ctypes.byref(held.map), pointer(x), long(len(x)), pointer(out), pointer(torch.empty(0)))
    return out


@pytest.mark.parametrize(("inputs", "outputs"), [(96, 80), (4, 16), (20, 176), (256, 64)])
def test_a_map_in_float32_is_that_of_the_definition_and_a_row_gets_the_same_bits_alone(
    kernels, inputs, outputs
):
    generator = torch.Generator().manual_seed(0)
    weight, bias, x = (
        torch.randn(shape, generator=generator) for shape in ((outputs, inputs), (outputs,), (19, inputs))
    )
    held = float_map(kernels, WeightMemory(), weight, bias)
    alone = [apply(kernels, held, row[None]) for row in x]
    expected = x.double() @ weight.double().t() + bias.double()
    for count in range(1, 20):
        together = apply(kernels, held, x[:count])
        torch.testing.assert_close(together.double(), expected[:count], rtol=1e-5, atol=1e-5)
        assert together.equal(torch.cat(alone[:count]))
