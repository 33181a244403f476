"""The same weights in other people's implementations give the same numbers."""

import pytest
import torch
from benchmarks.peers import hugging_face_model, write_ctranslate2
from torch import nn
from transformers import LongformerConfig
from transformers.models.longformer.modeling_longformer import LongformerSelfAttention

from dragoman_model.attention import causal_mask
from dragoman_model.checkpoint import named_weights
from dragoman_model.layers import DecoderLayer, EncoderLayer
from dragoman_model.transformer import Transformer
from dragoman_model.window_attention import WindowAttention
from tests.models import tiny_config

B, S, T, VOCAB_SIZE = 3, 7, 5, 37

SRC_IDS = torch.tensor(
    [[5, 9, 30, 4, 11, 36, 2], [8, 8, 19, 2, 0, 0, 0], [2, 0, 0, 0, 0, 0, 0]]
)  # (B, S), pad 0
TGT_IDS = torch.tensor([[1, 14, 6, 22, 9], [1, 31, 31, 7, 25], [1, 4, 18, 12, 3]])  # (B, T)
REAL = SRC_IDS != 0


def randomize(module, seed=5):
    """Gives every parameter, gains and biases too, a value of its own."""
    torch.manual_seed(seed)
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            gain = 1.0 if "norm.weight" in name else 0.0
            parameter.copy_(gain + 0.3 * torch.randn_like(parameter))
    return module.double().eval()


# PyTorch


def copy_attention(ours, theirs):
    with torch.no_grad():
        projections = (ours.q_proj, ours.k_proj, ours.v_proj)
        theirs.in_proj_weight.copy_(torch.cat([p.weight for p in projections]))
        theirs.in_proj_bias.copy_(torch.cat([p.bias for p in projections]))
        theirs.out_proj.load_state_dict(ours.out_proj.state_dict())


def copy_layer(ours, theirs):
    copy_attention(ours.self_attention, theirs.self_attn)
    residuals = [ours.self_attention_residual]
    if isinstance(ours, DecoderLayer):
        copy_attention(ours.cross_attention, theirs.multihead_attn)
        residuals.append(ours.cross_attention_residual)
    residuals.append(ours.feed_forward_residual)
    for number, residual in enumerate(residuals, start=1):
        getattr(theirs, f"norm{number}").load_state_dict(residual.norm.state_dict())
    theirs.linear1.load_state_dict(ours.feed_forward.in_proj.state_dict())
    theirs.linear2.load_state_dict(ours.feed_forward.out_proj.state_dict())


def torch_arguments(config):
    return {
        "d_model": config.d_model,
        "nhead": config.num_heads,
        "dim_feedforward": config.d_ff,
        "dropout": 0.0,
        "activation": {"relu": "relu", "gelu": "gelu", "swish": nn.functional.silu}[config.activation],
        "layer_norm_eps": config.layer_norm_eps,
        "batch_first": True,
        "norm_first": config.norm == "pre",
        "dtype": torch.float64,
    }


@pytest.mark.parametrize("norm", ["pre", "post"])
@pytest.mark.parametrize("activation", ["relu", "gelu", "swish"])
def test_an_encoder_layer_is_torchs(norm, activation):
    config = tiny_config(norm=norm, activation=activation, layer_norm_eps=1e-3)
    ours = randomize(EncoderLayer(config))
    theirs = nn.TransformerEncoderLayer(
        **torch_arguments(config)
    ).train()  # evaluation takes a path of its own
    copy_layer(ours, theirs)
    x = torch.randn(B, S, config.d_model).double()
    expected = theirs(x, src_key_padding_mask=~REAL)
    torch.testing.assert_close(ours(x, REAL[:, None, None]), expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("norm", ["pre", "post"])
@pytest.mark.parametrize("activation", ["relu", "gelu", "swish"])
def test_a_decoder_layer_is_torchs(norm, activation):
    config = tiny_config(norm=norm, activation=activation, layer_norm_eps=1e-3)
    ours = randomize(DecoderLayer(config))
    theirs = nn.TransformerDecoderLayer(**torch_arguments(config))
    copy_layer(ours, theirs)
    x, memory = (torch.randn(B, n, config.d_model).double() for n in (T, S))
    expected = theirs(x, memory, tgt_mask=~causal_mask(T), memory_key_padding_mask=~REAL)
    output = ours(x, memory, causal_mask(T), REAL[:, None, None])
    torch.testing.assert_close(output, expected, rtol=0, atol=1e-12)


@pytest.mark.filterwarnings("ignore:enable_nested_tensor")
@pytest.mark.parametrize("norm", ["pre", "post"])
def test_both_stacks_are_those_of_torchs_transformer(norm):
    config = tiny_config(norm=norm, num_decoder_layers=3)
    ours = randomize(Transformer(config))
    theirs = nn.Transformer(
        num_encoder_layers=config.num_encoder_layers,
        num_decoder_layers=config.num_decoder_layers,
        **torch_arguments(config),
    )
    for our_layer, their_layer in zip(
        [*ours.encoder, *ours.decoder], [*theirs.encoder.layers, *theirs.decoder.layers], strict=True
    ):
        copy_layer(our_layer, their_layer)
    if norm == "pre":
        theirs.encoder.norm.load_state_dict(ours.encoder_norm.state_dict())
        theirs.decoder.norm.load_state_dict(ours.decoder_norm.state_dict())
    else:  # theirs ends with one normalisation more than the paper has
        theirs.encoder.norm = theirs.decoder.norm = None

    def embed(embedding, ids):
        return embedding(ids) * config.d_model**0.5 + ours.positions[: ids.size(1)]

    states = theirs(
        embed(ours.source_embedding, SRC_IDS),
        embed(ours.target_embedding, TGT_IDS),
        tgt_mask=~causal_mask(T),
        src_key_padding_mask=~REAL,
        memory_key_padding_mask=~REAL,
    )
    expected = states @ ours.output_weight.T + ours.output_bias
    logits = ours.decode(TGT_IDS, ours.encode(SRC_IDS, REAL), REAL)
    torch.testing.assert_close(logits, expected, rtol=0, atol=1e-11)


# Hugging Face and CTranslate2, with the weights laid out as the benchmarks do it


def logits_of_both(ours, theirs):
    with torch.no_grad():
        logits = ours.decode(TGT_IDS, ours.encode(SRC_IDS, REAL), REAL)
        expected = theirs(input_ids=SRC_IDS, attention_mask=REAL.long(), decoder_input_ids=TGT_IDS).logits
    return logits, expected


@pytest.mark.parametrize("activation", ["swish", "relu", "gelu"])
@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("scale", [True, False])
def test_a_post_norm_model_is_marian(activation, shared, scale):
    config = tiny_config(
        norm="post",
        activation=activation,
        sinusoid_layout="concatenated",
        scale_embeddings=scale,
        source_vocab_size=VOCAB_SIZE,
        target_vocab_size=VOCAB_SIZE if shared else VOCAB_SIZE + 4,
        shared_vocabulary=shared,
        tie_output=True,
        num_decoder_layers=2,
    )
    ours = randomize(Transformer(config))
    logits, expected = logits_of_both(ours, hugging_face_model(config, named_weights(ours)))
    assert logits.shape == (B, T, config.target_vocab_size)
    torch.testing.assert_close(logits, expected, rtol=0, atol=1e-11)


@pytest.mark.parametrize("activation", ["relu", "gelu"])
def test_a_pre_norm_model_is_m2m100(activation):
    ours = randomize(Transformer(m2m100_config(activation=activation)))
    logits, expected = logits_of_both(ours, hugging_face_model(ours.config, named_weights(ours)))
    torch.testing.assert_close(logits, expected, rtol=0, atol=1e-11)


def m2m100_config(**changes):
    return tiny_config(
        norm="pre",
        source_vocab_size=VOCAB_SIZE,
        target_vocab_size=VOCAB_SIZE,
        tie_output=True,
        output_bias=False,
        num_decoder_layers=2,
        **changes,
    )


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"norm": "pre", "output_bias": True}, "no output bias"),
        ({"norm": "pre", "shared_vocabulary": False}, "one embedding"),
        ({"norm": "post", "tie_output": False}, "ties its output"),
        ({"layer_norm_eps": 1e-3}, "layer_norm_eps is 0.001"),
        ({"decoder_attention": "window", "attention_window": 4}, "know 'full' alone"),
        ({"encoder_attention": "favor", "attention_features": 4}, "know 'full' alone"),
        ({"positions": "rotary"}, "know 'sinusoidal' alone"),
        ({"cross_attention": "additive"}, "know 'dot' alone"),
    ],
)
def test_a_shape_that_neither_has_is_refused(changes, reason):
    config = tiny_config(**{"tie_output": True, "output_bias": False, **changes})
    with pytest.raises(ValueError, match=reason):
        hugging_face_model(config, named_weights(Transformer(config)))


@pytest.mark.parametrize(
    "changes",
    [
        {"activation": "relu", "sinusoid_layout": "concatenated"},
        {"activation": "gelu", "norm": "post", "scale_embeddings": False},
        {"activation": "swish", "tie_output": True, "output_bias": False, "layer_norm_eps": 1e-3},
        {"shared_vocabulary": False, "source_vocab_size": VOCAB_SIZE + 4},
    ],
)
def test_ctranslate2_gives_the_same_scores(changes, tmp_path):
    ctranslate2 = pytest.importorskip("ctranslate2", reason="CTranslate2 is not installed: .[bench] has it")
    sizes = {"source_vocab_size": VOCAB_SIZE, "target_vocab_size": VOCAB_SIZE, "num_decoder_layers": 2}
    config = tiny_config(**{**sizes, **changes})
    ours = randomize(Transformer(config)).float()
    write_ctranslate2(tmp_path, config, named_weights(ours.requires_grad_(False)))
    theirs = ctranslate2.Translator(str(tmp_path), compute_type="float32", inter_threads=1, intra_threads=1)
    sources = [[str(i) for i in row[row != 0].tolist()] for row in SRC_IDS]
    targets = [[str(i) for i in row[1:].tolist()] for row in TGT_IDS]
    found = [result.log_probs for result in theirs.score_batch(sources, targets)]
    with torch.no_grad():
        log_probabilities = ours.decode(TGT_IDS, ours.encode(SRC_IDS, REAL), REAL).log_softmax(-1)
    expected = log_probabilities.gather(-1, with_eos(TGT_IDS[:, 1:])[..., None])[..., 0]
    torch.testing.assert_close(torch.tensor(found), expected, rtol=0, atol=2e-4)


def with_eos(ids):
    return torch.cat((ids, torch.full((len(ids), 1), 2)), dim=1)


# Longformer


def test_a_sliding_window_is_longformers():
    # Its window counts the neighbours on both sides, and a sequence is a multiple of it.
    config = LongformerConfig(
        hidden_size=12, num_attention_heads=2, attention_window=[10], attention_probs_dropout_prob=0.0
    )
    theirs = randomize(LongformerSelfAttention(config, 0))
    x = torch.randn(2, 40, 12).double()
    is_padding = torch.arange(40) >= torch.tensor([[40], [27]])
    with torch.no_grad():
        expected, *_ = theirs(
            x,
            attention_mask=is_padding * -1e4,
            is_index_masked=is_padding,
            is_index_global_attn=torch.zeros_like(is_padding),
            is_global_attn=False,
        )
        projected = [
            linear(x).unflatten(-1, (2, 6)).transpose(1, 2)
            for linear in (theirs.query, theirs.key, theirs.value)
        ]
        ours, _ = WindowAttention(6, causal=False)(*projected, ~is_padding[:, None, None])
    ours = ours.transpose(1, 2).flatten(2)
    torch.testing.assert_close(
        ours[~is_padding], expected[~is_padding], rtol=0, atol=1e-6
    )  # their softmax is float32
