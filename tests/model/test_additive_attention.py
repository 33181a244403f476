import math

import pytest
import torch
from torch import nn

from dragoman_model.additive_attention import AdditiveAttention
from dragoman_model.attention import MultiHeadAttention

B, T, S, H, K = 3, 5, 7, 2, 3


def make_attention():
    torch.manual_seed(0)
    attention = MultiHeadAttention(H * K, H, AdditiveAttention(H, K)).double()
    for parameter in attention.parameters():
        nn.init.normal_(parameter)
    return attention


def random_sequences():
    generator = torch.Generator().manual_seed(1)
    return [torch.randn(B, n, H * K, generator=generator, dtype=torch.float64) for n in (T, S)]


def project(linear, rows):
    weight, bias = linear.weight.tolist(), linear.bias.tolist()
    return [[sum(w * x for w, x in zip(ws, row)) + b for ws, b in zip(weight, bias)] for row in rows]


def attention_by_hand(attention, x, memory, allowed):
    """v · tanh(W_q q + W_k k), softmax and mean of one sentence in plain Python: loops, no tensors."""
    queries, keys, values = (
        project(linear, rows)
        for linear, rows in ((attention.q_proj, x), (attention.k_proj, memory), (attention.v_proj, memory))
    )
    vectors = attention.mechanism.score_vectors.tolist()
    outputs, all_weights = [[] for _ in x], []
    for h in range(H):
        columns = range(h * K, (h + 1) * K)
        head_weights = []
        for t, query in enumerate(queries):
            exps = []
            for s, key in enumerate(keys):
                score = sum(vectors[h][c - h * K] * math.tanh(query[c] + key[c]) for c in columns)
                exps.append(math.exp(score) if allowed[s] else 0.0)
            weights = [e / sum(exps) for e in exps]
            outputs[t] += [sum(w * value[c] for w, value in zip(weights, values)) for c in columns]
            head_weights.append(weights)
        all_weights.append(head_weights)
    return project(attention.out_proj, outputs), all_weights


def test_output_and_weights_equal_a_loop_in_plain_python():
    attention = make_attention()
    x, memory = random_sequences()
    real = torch.arange(S) < torch.tensor([[7], [4], [1]])
    with torch.no_grad():
        output, weights = attention(x, memory, real[:, None, None], need_weights=True)
        again, nothing = attention(x, memory, real[:, None, None])
    assert nothing is None
    assert again.equal(output)
    for b in range(B):
        by_hand = attention_by_hand(attention, x[b].tolist(), memory[b].tolist(), real[b].tolist())
        expected, expected_weights = (torch.tensor(part, dtype=torch.float64) for part in by_hand)
        torch.testing.assert_close(output[b], expected, rtol=0, atol=1e-12)
        torch.testing.assert_close(weights[b], expected_weights, rtol=0, atol=1e-14)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_weights_sum_to_one_in_any_precision(dtype):
    attention = make_attention().to(dtype)
    x, memory = (one.to(dtype) for one in random_sequences())
    weights = attention(x, memory, need_weights=True)[1]
    assert weights.dtype == torch.float32
    torch.testing.assert_close(weights.sum(-1), torch.ones(B, H, T), rtol=0, atol=1e-6)


def test_scores_are_bounded_however_large_queries_and_keys_are():
    mechanism = make_attention().mechanism
    queries, keys = (torch.randn(B, H, n, K).double() * 1e6 for n in (T, S))
    bound = mechanism.score_vectors.abs().sum(1)[:, None, None]
    assert (mechanism.scores(queries, keys).abs() <= bound + 1e-9).all()


def test_a_query_that_may_attend_to_nothing_gathers_nothing():
    attention = make_attention()
    x, memory = random_sequences()
    output, weights = attention(x, memory, torch.zeros(1, S, dtype=torch.bool), need_weights=True)
    assert (weights == 0).all()
    torch.testing.assert_close(output, attention.out_proj.bias.expand(B, T, -1))
