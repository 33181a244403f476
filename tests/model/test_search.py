import functools

import pytest
import torch

from dragoman_model.constraints import FREE, Constraint
from dragoman_model.search import ban, best_tokens, expand, log_probabilities, penalise, sample, top_tokens

EOS = 2
log_softmax = functools.partial(torch.log_softmax, dim=-1)


def random_logits(num_rows=5, vocab_size=11, dtype=torch.float32, seed=0):
    return torch.randn(num_rows, vocab_size, generator=torch.Generator().manual_seed(seed)).to(dtype) * 3


# Log-probabilities


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


# Penalties and bans


def test_a_penalty_lowers_what_a_row_has_written_and_nothing_else():
    logits = torch.tensor([[2.0, -2.0, 0.0, 3.0], [2.0, -2.0, 0.0, 3.0], [2.0, -2.0, 0.0, 3.0]])
    before = logits.clone()
    penalised = penalise(
        logits, [Constraint(seen=[0, 1, 2], penalty=2.0), FREE, Constraint(seen=[3], penalty=1.5)]
    )
    assert penalised.tolist() == [[1.0, -4.0, 0.0, 3.0], [2.0, -2.0, 0.0, 3.0], [2.0, -2.0, 0.0, 2.0]]
    assert logits.equal(before)


def test_nothing_is_copied_where_nothing_holds():
    logits = random_logits(2)
    assert penalise(logits, [FREE, FREE]) is logits
    assert penalise(logits, ()) is logits
    assert ban(logits, [FREE, FREE], EOS) is logits
    assert ban(logits, (), EOS) is logits


def test_banned_tokens_are_out_and_a_forced_one_is_alone():
    logits = random_logits(3, 5)
    before = logits.clone()
    allowed = ban(logits, [Constraint(banned=[1, 4]), FREE, Constraint(only=[3])], EOS)
    assert (allowed > -torch.inf).tolist() == [
        [True, False, True, True, False],
        [True] * 5,
        [False, False, False, True, False],
    ]
    assert allowed[allowed > -torch.inf].equal(logits[allowed > -torch.inf])
    assert logits.equal(before)


def test_no_row_goes_where_none_may_unless_it_must():
    logits = random_logits(4, 5)
    constraints = [FREE, Constraint(only=[0]), Constraint(only=[3, 4], banned=[3]), Constraint(banned=[3, 4])]
    allowed = ban(logits, constraints, EOS, {0, 1})
    assert (allowed > -torch.inf).tolist() == [
        [False, False, True, True, True],
        [True, False, False, False, False],
        [False, False, False, False, True],
        [False, False, True, False, False],
    ]


def test_a_row_with_every_token_banned_may_end():
    logits = random_logits(2, 4)
    allowed = ban(logits, [Constraint(banned=[0, 1, 2, 3]), Constraint(banned=[0, 1, 2])], EOS)
    assert (allowed > -torch.inf).tolist() == [[False, False, True, False], [False, False, False, True]]


# Candidates


@pytest.mark.parametrize("count", [1, 4, 16])
@pytest.mark.parametrize("vocab_size", [640, 8000, 8001, 70])
def test_the_top_tokens_are_those_of_a_plain_sort(vocab_size, count):
    logits = random_logits(7, vocab_size)
    logits[3, 5:40] += 30  # all of them in one block
    logits[4, 64 * 3 :] = -torch.inf
    values, tokens = top_tokens(logits, count)
    expected = logits.sort(dim=-1, descending=True)
    assert values.equal(expected.values[:, :count])
    assert logits.gather(1, tokens).equal(values)
    assert all(len(set(row)) == count for row in tokens.tolist())


def test_the_best_token_is_the_first_of_the_largest():
    logits = random_logits(9, 8000)
    assert best_tokens(logits).equal(logits.argmax(-1))


def test_expansion_ranks_all_continuations_of_a_sentence_together():
    logits = random_logits(6, 9)  # two sentences of three rows
    sums = torch.tensor([[-1.0, -2.0, -torch.inf], [-5.0, -0.5, -0.6]])
    parents, tokens, ranks, log_probs = expand(logits, (), sums, 6, EOS, {0}, log_softmax)
    log_p = logits.double().log_softmax(-1).view(2, 3, 9)
    for sentence in range(2):
        totals = (log_p[sentence] + sums[sentence][:, None]).flatten()
        best = totals.topk(6)
        assert (parents[sentence] * 9 + tokens[sentence]).tolist() == best.indices.tolist()
        found = log_p[sentence].flatten()[best.indices]
        torch.testing.assert_close(ranks[sentence], found, rtol=0, atol=1e-5)
        torch.testing.assert_close(log_probs[sentence], found, rtol=0, atol=1e-5)


def test_expansion_ranks_by_penalised_logits_and_tells_the_unmodified_log_probability():
    logits = random_logits(1, 9)
    best = int(logits.argmax())
    constraints = [Constraint(seen=[best], penalty=1e6, banned=[EOS])]
    _, tokens, ranks, log_probs = expand(logits, constraints, torch.zeros(1, 1), 8, EOS, (), log_softmax)
    penalised = logits.clone()
    penalised[0, best] /= 1e6
    assert EOS not in tokens[0].tolist()
    assert int(tokens[0, 0]) != best
    order = tokens[0].long()
    torch.testing.assert_close(ranks[0], penalised.double().log_softmax(-1)[0, order], rtol=0, atol=1e-5)
    torch.testing.assert_close(log_probs[0], logits.double().log_softmax(-1)[0, order], rtol=0, atol=1e-5)


# Samples


def drawn_shares(logits, count=4000, *, top_k=0, top_p=1.0, temperature=1.0):
    """The share of each token among draws whose noise covers [0, 1) evenly."""
    noise = (torch.arange(count, dtype=torch.float64) + 0.5) / count
    tokens = sample(
        logits.expand(count, -1),
        torch.full((count,), top_k),
        torch.full((count,), top_p, dtype=torch.float64),
        torch.full((count,), temperature, dtype=torch.float64),
        noise,
    )
    return torch.bincount(tokens, minlength=logits.size(1)).double() / count


@pytest.mark.parametrize("temperature", [0.3, 1.0, 2.5])
def test_samples_are_spread_as_the_softmax_is(temperature):
    logits = random_logits(1, 30)
    shares = drawn_shares(logits, temperature=temperature)
    expected = (logits[0].double() / temperature).softmax(-1)
    torch.testing.assert_close(shares, expected, rtol=0, atol=1 / 4000)


@pytest.mark.parametrize("top_k", [1, 2, 7, 29, 30, 1000])
def test_only_the_likeliest_are_sampled(top_k):
    logits = random_logits(1, 30)
    shares = drawn_shares(logits, top_k=top_k)
    kept = logits[0].double().softmax(-1)
    kept[kept < kept.sort(descending=True).values[min(top_k, 30) - 1]] = 0
    torch.testing.assert_close(shares, kept / kept.sum(), rtol=0, atol=1 / 4000)


@pytest.mark.parametrize(("top_p", "kept"), [(0.05, 1), (0.4, 1), (0.5, 2), (0.74, 2), (0.76, 3), (1.0, 4)])
def test_the_fewest_that_hold_the_probability_are_sampled(top_p, kept):
    probabilities = torch.tensor([[0.05, 0.45, 0.2, 0.3]], dtype=torch.float64)
    shares = drawn_shares(probabilities.log(), top_p=top_p)
    order = [1, 3, 2, 0][:kept]
    assert sorted(order) == shares.nonzero()[:, 0].tolist()
    expected = probabilities[0, order] / probabilities[0, order].sum()
    torch.testing.assert_close(shares[order], expected, rtol=0, atol=1 / 4000)


def test_tokens_that_hold_just_the_probability_are_enough():
    assert drawn_shares(torch.zeros(1, 4), top_p=0.5).tolist() == [0.5, 0.5, 0.0, 0.0]


def test_the_probability_counts_among_the_likeliest_alone():
    probabilities = torch.tensor([[0.3, 0.28, 0.22, 0.2]], dtype=torch.float64)
    # Of 0.3 and 0.28 the first holds 0.517.
    assert drawn_shares(probabilities.log(), top_k=2, top_p=0.5).nonzero()[:, 0].tolist() == [0]
    assert drawn_shares(probabilities.log(), top_k=4, top_p=0.5).nonzero()[:, 0].tolist() == [0, 1]


def test_the_ends_of_the_noise_draw_tokens_that_may_be_drawn():
    logits = torch.full((2, 6), -torch.inf)
    logits[:, 1] = 0.0
    logits[:, 4] = 0.0
    noise = torch.tensor([0.0, 1 - 2**-32], dtype=torch.float64)
    ones = torch.ones(2, dtype=torch.float64)
    assert sample(logits, torch.zeros(2), ones, ones, noise).tolist() == [1, 4]
