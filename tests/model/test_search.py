import pytest
import torch

from dragoman_model.search import greedy, log_probabilities

EOS = 2


def random_logits(num_rows=5, vocab_size=11, dtype=torch.float32):
    return torch.randn(num_rows, vocab_size, generator=torch.Generator().manual_seed(0)).to(dtype) * 3


def test_greedy_picks_the_likeliest_token_with_its_log_probability():
    logits = random_logits()
    token_ids, log_probs = greedy(logits, EOS)
    expected = logits.double().log_softmax(-1)
    assert token_ids.tolist() == [max(range(11), key=row.__getitem__) for row in logits.tolist()]
    torch.testing.assert_close(log_probs.double(), expected.max(-1).values, rtol=0, atol=1e-6)
    assert log_probs.dtype == torch.float32


def test_a_row_that_may_not_end_takes_the_next_best_with_its_unmodified_log_probability():
    logits = random_logits()
    logits[:, EOS] = 20.0
    may_end = torch.tensor([True, False, True, False, False])
    before = logits.clone()
    token_ids, log_probs = greedy(logits, EOS, may_end)
    assert (token_ids == EOS).tolist() == may_end.tolist()
    others = logits.clone()
    others[:, EOS] = -torch.inf
    assert token_ids[~may_end].equal(others[~may_end].argmax(-1))
    expected = logits.log_softmax(-1).gather(1, token_ids[:, None])[:, 0]
    torch.testing.assert_close(log_probs, expected)
    assert log_probs[1] < -5  # nearly all of the mass is on the banned end
    assert logits.equal(before)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_log_probabilities_are_float32_whatever_the_models_precision(dtype):
    logits = random_logits(dtype=dtype)
    token_ids = torch.tensor([0, 10, 3, 3, 7])
    actual = log_probabilities(logits, token_ids)
    expected = logits.double().log_softmax(-1).gather(1, token_ids[:, None])[:, 0]
    assert actual.dtype == torch.float32
    torch.testing.assert_close(actual.double(), expected, rtol=0, atol=1e-5)


def test_log_probabilities_of_whole_sequences_have_their_shape():
    logits = torch.randn(3, 5, 7, generator=torch.Generator().manual_seed(0))
    token_ids = torch.randint(0, 7, (3, 5), generator=torch.Generator().manual_seed(1))
    actual = log_probabilities(logits, token_ids)
    assert actual.shape == (3, 5)
    torch.testing.assert_close(actual[2, 4], logits[2, 4].log_softmax(-1)[token_ids[2, 4]])
