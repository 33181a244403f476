import math

import pytest
import torch
from torch import nn

from dragoman_model.attention import causal_mask, explicit_attention
from dragoman_model.relative_attention import RelativeAttention
from tests.model.memory import largest_tensor

B, T, H, K = 3, 7, 2, 4


def make_attention(max_distance=2, *, causal=False):
    torch.manual_seed(0)
    attention = RelativeAttention(max_distance, K, causal=causal).double()
    nn.init.normal_(attention.key_vectors)
    return attention


def random_inputs(length=T, seed=1):
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(B, H, length, K, generator=generator, dtype=torch.float64) for _ in range(3)]


def scores_by_hand(attention, queries, keys):
    """Shaw et al. 2018, eq. 4, of one head: plain Python, a vector for each pair."""
    k, vectors = attention.max_distance, attention.key_vectors.tolist()
    scores = []
    for i, query in enumerate(queries):
        row = []
        for j, key in enumerate(keys):
            vector = vectors[min(max(-k, min(j - i, k)) + k, len(vectors) - 1)]
            row.append(sum(q * (x + a) for q, x, a in zip(query, key, vector)) / math.sqrt(len(query)))
        scores.append(row)
    return scores


@pytest.mark.parametrize("max_distance", [1, 2, 20])
@pytest.mark.parametrize("causal", [False, True])
def test_both_forms_equal_the_formula_in_plain_python(max_distance, causal):
    attention = make_attention(max_distance, causal=causal)
    queries, keys, values = random_inputs()
    mask = causal_mask(T) if causal else (torch.arange(T) < torch.tensor([[7], [4], [1]]))[:, None, None]
    with torch.no_grad():
        output, weights = attention(queries, keys, values, mask, need_weights=True)
        fused, nothing = attention(queries, keys, values, mask)
    assert nothing is None
    for b in range(B):
        for h in range(H):
            by_hand = scores_by_hand(attention, queries[b, h].tolist(), keys[b, h].tolist())
            allowed = mask if causal else mask[b, 0]
            scores = torch.tensor(by_hand, dtype=torch.float64)
            expected = scores.masked_fill(~allowed, -torch.inf).softmax(-1)
            torch.testing.assert_close(weights[b, h], expected, rtol=0, atol=1e-14)
            torch.testing.assert_close(output[b, h], weights[b, h] @ values[b, h], rtol=0, atol=1e-13)
    torch.testing.assert_close(fused, output, rtol=0, atol=1e-13)


def test_what_is_added_to_a_score_depends_on_the_query_and_the_offset_alone():
    attention = make_attention()
    query = random_inputs()[0][:, :, :1]
    places = torch.arange(T)
    added = attention.scores(query.expand(-1, -1, T, -1), places - places[:, None])  # one query everywhere
    for offset in range(-T + 1, T):
        diagonal = added.diagonal(offset, dim1=-2, dim2=-1)
        assert (diagonal == diagonal[..., :1]).all()
        clipped = added.diagonal(max(-2, min(offset, 2)), dim1=-2, dim2=-1)
        assert (diagonal[..., 0] == clipped[..., 0]).all()
    assert len(added[0, 0, 3].unique()) == 5


def test_without_vectors_it_is_plain_attention():
    attention = make_attention()
    nn.init.zeros_(attention.key_vectors)
    queries, keys, values = random_inputs()
    expected = explicit_attention(queries, keys, values)[0]
    torch.testing.assert_close(attention(queries, keys, values)[0], expected, rtol=0, atol=1e-13)


@pytest.mark.parametrize("causal", [False, True])
def test_there_are_vectors_for_the_offsets_that_occur(causal):
    attention = make_attention(3, causal=causal)
    queries, keys, values = random_inputs()
    mask = causal_mask(T) if causal else None
    attention(queries, keys, values, mask)[0].pow(2).sum().backward()
    assert len(attention.key_vectors) == (4 if causal else 7)
    assert (attention.key_vectors.grad.abs().amax(1) > 0).all()


@pytest.mark.parametrize("trained", [False, True])
def test_no_tensor_holds_a_vector_for_each_pair_of_positions(trained):
    attention = RelativeAttention(3, 5, causal=False)
    nn.init.normal_(attention.key_vectors)
    heads, length = 2, 40
    assert largest_tensor(attention, length, trained=trained) == heads * length * length  # the scores
