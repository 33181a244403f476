import pytest
import torch
from torch import nn

from dragoman_model.attention import causal_mask
from dragoman_model.layers import DecoderLayer, Dropout, EncoderLayer, FeedForward, Residual
from tests.models import VARIANTS, tiny_config

# Odd and tiny: the gradient of every weight is compared with differences.
TINY = tiny_config(d_model=4, d_ff=3, num_heads=2)


def randomize(module, seed=0):
    torch.manual_seed(seed)
    for parameter in module.parameters():
        nn.init.normal_(parameter, mean=0.2, std=0.7)
    return module.double()


# Dropout


@pytest.mark.parametrize("share", [0.1, 0.3, 0.5, 0.9])
def test_dropout_drops_its_share_and_scales_up_what_it_keeps(share):
    torch.manual_seed(0)
    dropout = Dropout(share).train()
    x = torch.ones(400, 501)
    out = dropout(x)
    dropped = out == 0
    assert dropped.float().mean().item() == pytest.approx(share, abs=0.004)
    assert out[~dropped].unique().numel() == 1
    assert out.max().item() == pytest.approx(1 / (1 - share), rel=0.02)  # the share is in steps of 1/256
    assert out.mean().item() == pytest.approx(1.0, abs=0.02)


def test_dropout_keeps_its_mean_exactly_over_all_draws():
    # A unit is dropped for d of 256 byte values and multiplied by 256 / (256 − d) for the others.
    dropout = Dropout(0.1).train()
    kept = dropout(torch.ones(8, dtype=torch.float64)).max().item()
    num_dropped = round(0.1 * 256)
    assert kept * (256 - num_dropped) / 256 == pytest.approx(1.0, rel=1e-6)


def test_dropout_draws_units_independently_in_every_place():
    torch.manual_seed(0)
    dropout = Dropout(0.5).train()
    draws = torch.stack([dropout(torch.ones(3, 5)) == 0 for _ in range(4000)]).flatten(1).double()
    assert draws.mean(0).tolist() == pytest.approx([0.5] * 15, abs=0.04)
    correlations = torch.corrcoef(draws.T) - torch.eye(15)
    assert correlations.abs().max() < 0.08


def test_dropout_is_off_in_evaluation_and_at_share_zero():
    x = torch.randn(5, 7)
    assert Dropout(0.5).eval()(x) is x
    assert Dropout(0.0).train()(x) is x


@pytest.mark.parametrize("share", [0.998, 0.9999])
def test_even_the_largest_share_keeps_numbers_finite(share):
    torch.manual_seed(0)
    out = Dropout(share).train()(torch.ones(300, 300))
    assert out.isfinite().all()
    assert (out != 0).any()


def test_dropout_passes_the_gradient_where_it_kept_units():
    torch.manual_seed(0)
    x = torch.randn(9, 11, requires_grad=True)
    out = Dropout(0.5).train()(x)
    out.sum().backward()
    torch.testing.assert_close(x.grad, (out / x).detach())


# Blocks


@pytest.mark.parametrize(
    ("activation", "function"),
    [
        ("relu", lambda x: x * (x > 0)),
        ("gelu", lambda x: x * (1 + torch.erf(x / 2**0.5)) / 2),
        ("swish", lambda x: x / (1 + torch.exp(-x))),
    ],
)
def test_the_feed_forward_block_is_its_formula(activation, function):
    block = randomize(FeedForward(tiny_config(d_model=4, d_ff=3, activation=activation)))
    x = torch.randn(2, 5, 4).double()
    w1, b1, w2, b2 = block.in_proj.weight, block.in_proj.bias, block.out_proj.weight, block.out_proj.bias
    torch.testing.assert_close(block(x), function(x @ w1.T + b1) @ w2.T + b2, rtol=0, atol=1e-13)


def normalized(x, norm, eps):
    centred = x - x.mean(-1, keepdim=True)
    variance = centred.pow(2).mean(-1, keepdim=True)
    return centred / (variance + eps).sqrt() * norm.weight + norm.bias


def test_the_norm_stands_after_the_sum_or_before_the_block():
    x = torch.randn(3, 5, 4).double()
    post = randomize(Residual(tiny_config(d_model=4, norm="post", layer_norm_eps=0.01)))
    torch.testing.assert_close(post(x, torch.sin), normalized(x + x.sin(), post.norm, 0.01))
    pre = randomize(Residual(tiny_config(d_model=4, norm="pre", layer_norm_eps=0.01)))
    torch.testing.assert_close(pre(x, torch.sin), x + normalized(x, pre.norm, 0.01).sin())


def test_residual_dropout_drops_what_the_block_adds_and_never_the_residual():
    torch.manual_seed(0)
    residual = Residual(tiny_config(d_model=16, norm="pre", dropout=0.5)).train()
    x = torch.full((20, 16), 3.0)
    added = residual(x, torch.ones_like) - x
    assert sorted(added.unique().tolist()) == pytest.approx([0.0, 2.0])


KINDS = {"pre": {"norm": "pre"}, "post": {"norm": "post"}, **VARIANTS}


@pytest.mark.parametrize("kind", KINDS)
def test_the_gradient_of_an_encoder_layer_is_that_of_its_differences(kind):
    layer = randomize(EncoderLayer(tiny_config(d_model=4, d_ff=3, activation="swish", **KINDS[kind])))
    x = torch.randn(1, 3, 4).double().requires_grad_()
    mask = torch.tensor([True, True, False])[None, None, None]
    assert torch.autograd.gradcheck(lambda *_: layer(x, mask), [x, *layer.parameters()])


@pytest.mark.parametrize("kind", KINDS)
def test_the_gradient_of_a_decoder_layer_is_that_of_its_differences(kind):
    layer = randomize(DecoderLayer(tiny_config(d_model=4, d_ff=3, activation="gelu", **KINDS[kind])))
    x, memory = (torch.randn(1, n, 4).double().requires_grad_() for n in (3, 2))
    masks = causal_mask(3), torch.tensor([True, False])[None, None, None]
    assert torch.autograd.gradcheck(lambda *_: layer(x, memory, *masks), [x, memory, *layer.parameters()])


@pytest.mark.parametrize("kind", KINDS)
def test_recording_weights_changes_no_output(kind):
    config = tiny_config(**KINDS[kind])
    layer = randomize(DecoderLayer(config), seed=1)
    x, memory = (torch.randn(3, n, config.d_model).double() for n in (5, 7))
    # A window is causal by itself.
    self_mask = causal_mask(5) if config.decoder_attention == "full" else None
    masks = self_mask, torch.ones(3, 1, 1, 7, dtype=torch.bool)
    self_record, cross_record = [], []
    with torch.no_grad():
        fused = layer(x, memory, *masks)
        recorded = layer(x, memory, *masks, self_record, cross_record)
    torch.testing.assert_close(recorded, fused, rtol=0, atol=1e-12)
    assert [w.shape for w in self_record] == [(3, 2, 5, 5)]
    assert [w.shape for w in cross_record] == [(3, 2, 5, 7)]
    assert (self_record[0].triu(1) == 0).all()
