import pytest

from dragoman_model.native.build import library, runnable


@pytest.fixture(params=[variant.name for variant in runnable()])
def kernels(request):
    """Each of the variants that this processor can run."""
    kernels = library(request.param)
    if kernels is None:
        pytest.skip(f"the compiler does not know {request.param}")
    return kernels
