import pytest
import torch

from dragoman_model.attention import Mechanism
from dragoman_model.window_attention import WindowAttention, window_mask
from tests.model.memory import largest_tensor

B, H, K = 3, 2, 5
LENGTHS = [1, 3, 4, 7, 23]
WINDOWS = [1, 2, 3, 7, 30]


def random_inputs(length, dtype=torch.float64, batch=B, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return [
        torch.randn(batch, H, length, K, generator=generator, dtype=dtype).requires_grad_() for _ in range(3)
    ]


def padding(length):
    """Sentences of all the length, of most of it and of one token, (B, 1, 1, T)."""
    lengths = torch.tensor([length, max(length - 2, 1), 1])
    return (torch.arange(length) < lengths[:, None])[:, None, None]


def band(length, window, causal):
    """The definition, place by place."""
    return torch.tensor(
        [
            [t - window < s <= t if causal else abs(t - s) < window for s in range(length)]
            for t in range(length)
        ]
    )


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("window", WINDOWS)
def test_the_window_is_a_band_along_the_diagonal(window, causal):
    for length in LENGTHS:
        assert window_mask(length, window, causal=causal).equal(band(length, window, causal))


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.float64, 1e-13)])
@pytest.mark.parametrize("padded", [True, False])
@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("window", WINDOWS)
def test_a_window_gives_what_full_attention_gives_behind_a_banded_mask(
    window, causal, padded, dtype, tolerance
):
    for length in LENGTHS:
        mask = padding(length) if padded else None
        masked = band(length, window, causal) if mask is None else band(length, window, causal) & mask
        results = []
        for attention, seen in ((WindowAttention(window, causal=causal), mask), (Mechanism(), masked)):
            inputs = random_inputs(length, dtype)
            trained, _ = attention(*inputs, seen)
            trained.pow(2).sum().backward()
            with torch.no_grad():
                served, _ = attention(*inputs, seen)
                shown, weights = attention(*inputs, seen, need_weights=True)
            results.append([trained.detach(), served, shown, weights, *(x.grad for x in inputs)])
        for windowed, full in zip(*results, strict=True):
            torch.testing.assert_close(windowed, full, rtol=0, atol=tolerance)


@pytest.mark.parametrize("causal", [True, False])
def test_weights_outside_the_window_are_zero_exactly(causal):
    inputs, mask = random_inputs(23), padding(23)
    _, weights = WindowAttention(4, causal=causal)(*inputs, mask, need_weights=True)
    seen = (band(23, 4, causal) & mask).expand_as(weights)
    assert (weights[~seen] == 0).all()
    assert (weights[seen] > 0).all()
    sums = weights.sum(-1)
    torch.testing.assert_close(sums, seen.any(-1).to(sums.dtype))  # 0 where no position near holds a token


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("trained", [True, False])
def test_memory_grows_as_the_length_and_not_as_its_square(causal, trained):
    largest = [
        largest_tensor(WindowAttention(5, causal=causal), length, trained=trained)
        for length in (50, 200, 400)
    ]
    assert largest[1] == 4 * largest[0]
    assert largest[2] == 8 * largest[0]
    assert largest_tensor(Mechanism(), 400, trained=True) == 64 * largest_tensor(
        Mechanism(), 50, trained=True
    )
