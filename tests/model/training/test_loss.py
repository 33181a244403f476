import pytest
import torch
import torch.nn.functional as F

from dragoman_model.training.batching import EncodedPair, group_pairs
from dragoman_model.training.loss import label_smoothed_cross_entropy, summed_loss
from dragoman_model.transformer import Transformer
from tests.models import tiny_config

VOCAB_SIZE = 37


def random_rows(num_rows, dtype=torch.float64):
    generator = torch.Generator().manual_seed(num_rows)
    logits = 3 * torch.randn(num_rows, VOCAB_SIZE, generator=generator, dtype=torch.float64)
    targets = torch.randint(0, VOCAB_SIZE, (num_rows,), generator=generator)
    return logits.to(dtype).requires_grad_(), targets


def value_and_gradient(loss, logits, factor=1.0):
    (loss * factor).backward()
    gradient, logits.grad = logits.grad, None
    return loss.detach(), gradient


# Rows are worked on 64 at a time.
@pytest.mark.parametrize("num_rows", [1, 64, 65, 130])
@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.7])
def test_value_and_gradient_are_those_of_torchs_label_smoothing(num_rows, smoothing):
    logits, targets = random_rows(num_rows)
    ours, nll = label_smoothed_cross_entropy(logits, targets, smoothing)
    value, gradient = value_and_gradient(ours, logits, factor=0.37)
    theirs = F.cross_entropy(logits, targets, label_smoothing=smoothing, reduction="sum")
    expected_value, expected_gradient = value_and_gradient(theirs, logits, factor=0.37)
    torch.testing.assert_close(value, expected_value, rtol=1e-12, atol=0)
    torch.testing.assert_close(gradient, expected_gradient, rtol=0, atol=1e-13)
    torch.testing.assert_close(nll, F.cross_entropy(logits, targets, reduction="sum"), rtol=1e-12, atol=0)
    assert not nll.requires_grad


def test_the_loss_is_its_formula():
    # −(1 − ε) log p(y) − ε/V Σ log p(v), by hand for three words
    logits = torch.tensor([[1.0, 2.0, 4.0]], dtype=torch.float64)
    log_probs = logits - logits.exp().sum().log()
    expected = -0.9 * log_probs[0, 1] - 0.1 / 3 * log_probs.sum()
    loss, nll = label_smoothed_cross_entropy(logits, torch.tensor([1]), 0.1)
    torch.testing.assert_close(loss, expected)
    torch.testing.assert_close(nll, -log_probs[0, 1])


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_the_gradient_is_that_of_differences(smoothing):
    logits, targets = random_rows(3)
    assert torch.autograd.gradcheck(
        lambda x: label_smoothed_cross_entropy(x, targets, smoothing)[0], (logits,)
    )


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-6), (torch.bfloat16, 5e-3)])
def test_lower_precision_keeps_its_sums_in_float32(dtype, tolerance):
    logits, targets = random_rows(130, dtype)
    value, gradient = value_and_gradient(label_smoothed_cross_entropy(logits, targets, 0.1)[0], logits)
    exact = logits.detach().double().requires_grad_()
    expected_value, expected_gradient = value_and_gradient(
        F.cross_entropy(exact, targets, label_smoothing=0.1, reduction="sum"), exact
    )
    assert value.dtype == torch.float32
    assert gradient.dtype == dtype
    torch.testing.assert_close(value.double(), expected_value, rtol=1e-5, atol=0)
    torch.testing.assert_close(gradient.double(), expected_gradient, rtol=0, atol=tolerance)


def test_a_perfect_prediction_still_costs_its_smoothing():
    logits = torch.full((1, VOCAB_SIZE), -50.0)
    logits[0, 4] = 50.0
    assert label_smoothed_cross_entropy(logits, torch.tensor([4]), 0.0)[0].item() == pytest.approx(
        0.0, abs=1e-6
    )
    assert label_smoothed_cross_entropy(logits, torch.tensor([4]), 0.1)[0].item() > 1.0


# The loss of a batch

PAIRS = [
    EncodedPair([7, 8, 9, 2], [9, 10, 11, 12, 2]),
    EncodedPair([7, 2], [11, 2]),
    EncodedPair([5, 6, 2], [13, 14, 15, 2]),
]


def make_batch(pairs):
    (batch,) = group_pairs(pairs, 1000)
    return batch


@pytest.fixture(params=["pre", "post"])
def transformer(request):
    torch.manual_seed(0)
    config = tiny_config(source_vocab_size=VOCAB_SIZE, target_vocab_size=VOCAB_SIZE, norm=request.param)
    return Transformer(config).double()


def test_the_loss_of_a_batch_counts_no_padding(transformer):
    together, nll = summed_loss(transformer, make_batch(PAIRS), smoothing=0.1, autocast=False)
    alone = [summed_loss(transformer, make_batch([pair]), smoothing=0.1, autocast=False) for pair in PAIRS]
    torch.testing.assert_close(together, sum(loss for loss, _ in alone), rtol=1e-12, atol=0)
    torch.testing.assert_close(nll, sum(nll for _, nll in alone), rtol=1e-12, atol=0)


def test_the_loss_of_a_batch_is_that_of_the_models_logits(transformer):
    pair = PAIRS[0]
    src_ids, src_mask = torch.tensor([pair.source]), torch.ones(1, 4, dtype=torch.bool)
    logits = transformer.decode(
        torch.tensor([[1, *pair.target[:-1]]]), transformer.encode(src_ids, src_mask), src_mask
    )
    expected = F.cross_entropy(logits[0], torch.tensor(pair.target), label_smoothing=0.1, reduction="sum")
    loss, _ = summed_loss(transformer, make_batch([pair]), smoothing=0.1, autocast=False)
    torch.testing.assert_close(loss, expected, rtol=1e-12, atol=0)


def test_gradients_of_halves_add_up_to_those_of_the_whole(transformer):
    gradients = []
    for batches in ([PAIRS], [PAIRS[:1], PAIRS[1:]]):
        transformer.zero_grad()
        for batch in batches:
            summed_loss(transformer, make_batch(batch), smoothing=0.1, autocast=False)[0].backward()
        gradients.append({name: p.grad for name, p in transformer.named_parameters()})
    for name, whole in gradients[0].items():
        torch.testing.assert_close(gradients[1][name], whole, rtol=0, atol=1e-12)


def test_bfloat16_autocast_stays_near_float32_and_leaves_gradients_in_float32(transformer):
    transformer.float()
    exact, _ = summed_loss(transformer, make_batch(PAIRS), smoothing=0.1, autocast=False)
    rounded, _ = summed_loss(transformer, make_batch(PAIRS), smoothing=0.1, autocast=True)
    assert rounded.item() == pytest.approx(exact.item(), rel=0.02)
    assert rounded.item() != exact.item()
    rounded.backward()
    assert {p.grad.dtype for p in transformer.parameters()} == {torch.float32}
