"""The same weights in other people's implementations give the same numbers."""

import pytest
import torch
from torch import nn

from dragoman_model.attention import causal_mask
from dragoman_model.layers import DecoderLayer, EncoderLayer
from dragoman_model.transformer import Transformer
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


# Hugging Face


def hugging_face_state(ours):
    """Our layers' weights under the names that Marian and M2M100 share."""
    state = {}
    for stack in ("encoder", "decoder"):
        for index, layer in enumerate(getattr(ours, stack)):
            modules = {
                "self_attn": layer.self_attention,
                "self_attn_layer_norm": layer.self_attention_residual.norm,
                "fc1": layer.feed_forward.in_proj,
                "fc2": layer.feed_forward.out_proj,
                "final_layer_norm": layer.feed_forward_residual.norm,
            }
            if stack == "decoder":
                modules["encoder_attn"] = layer.cross_attention
                modules["encoder_attn_layer_norm"] = layer.cross_attention_residual.norm
            for name, module in modules.items():
                for key, value in module.state_dict().items():
                    state[f"model.{stack}.layers.{index}.{name}.{key}"] = value
        norm = getattr(ours, f"{stack}_norm")
        for key, value in norm.state_dict().items():
            state[f"model.{stack}.layer_norm.{key}"] = value
    return state


def hugging_face_config(config):
    return {
        "vocab_size": config.source_vocab_size,
        "d_model": config.d_model,
        "encoder_layers": config.num_encoder_layers,
        "decoder_layers": config.num_decoder_layers,
        "encoder_attention_heads": config.num_heads,
        "decoder_attention_heads": config.num_heads,
        "encoder_ffn_dim": config.d_ff,
        "decoder_ffn_dim": config.d_ff,
        "activation_function": config.activation,
        "scale_embedding": config.scale_embeddings,
        "max_position_embeddings": 32,
        "pad_token_id": config.pad_id,
        "bos_token_id": config.bos_id,
        "eos_token_id": config.eos_id,
        "decoder_start_token_id": config.decoder_start_id,
        "dropout": 0.0,
    }


def load(theirs, state, allowed_missing=()):
    missing, unexpected = theirs.load_state_dict(state, strict=False)
    assert set(missing) == set(allowed_missing)
    assert not unexpected
    return theirs.double().eval()


def logits_of_both(ours, theirs):
    with torch.no_grad():
        logits = ours.decode(TGT_IDS, ours.encode(SRC_IDS, REAL), REAL)
        expected = theirs(input_ids=SRC_IDS, attention_mask=REAL.long(), decoder_input_ids=TGT_IDS).logits
    return logits, expected


@pytest.mark.parametrize("activation", ["swish", "relu", "gelu"])
@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("scale", [True, False])
def test_a_post_norm_model_is_marian(activation, shared, scale):
    import transformers

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
    theirs = transformers.MarianMTModel(
        transformers.MarianConfig(
            **hugging_face_config(config),
            decoder_vocab_size=config.target_vocab_size,
            share_encoder_decoder_embeddings=shared,
            tie_word_embeddings=shared,
            attn_implementation="eager",
        )
    )
    positions = ours.positions[:32]
    state = {
        **hugging_face_state(ours),
        "model.encoder.embed_tokens.weight": ours.source_embedding.weight,
        "model.decoder.embed_tokens.weight": ours.target_embedding.weight,
        "model.encoder.embed_positions.weight": positions,
        "model.decoder.embed_positions.weight": positions,
        "lm_head.weight": ours.output_weight,
        "final_logits_bias": ours.output_bias[None],
    }
    if shared:
        state["model.shared.weight"] = ours.source_embedding.weight
    logits, expected = logits_of_both(ours, load(theirs, state))
    assert logits.shape == (B, T, config.target_vocab_size)
    torch.testing.assert_close(logits, expected, rtol=0, atol=1e-11)


@pytest.mark.parametrize("activation", ["relu", "gelu"])
def test_a_pre_norm_model_is_m2m100(activation):
    import transformers

    config = tiny_config(
        norm="pre",
        activation=activation,
        source_vocab_size=VOCAB_SIZE,
        target_vocab_size=VOCAB_SIZE,
        tie_output=True,
        output_bias=False,
        num_decoder_layers=2,
    )
    ours = randomize(Transformer(config))
    theirs = transformers.M2M100ForConditionalGeneration(
        transformers.M2M100Config(
            **hugging_face_config(config),
            encoder_layerdrop=0.0,
            decoder_layerdrop=0.0,
            attn_implementation="eager",
        )
    )
    state = hugging_face_state(ours)
    for name in ("model.shared", "model.encoder.embed_tokens", "model.decoder.embed_tokens", "lm_head"):
        state[f"{name}.weight"] = ours.output_weight
    load(theirs, state)
    for stack in (theirs.model.encoder, theirs.model.decoder):
        table = stack.embed_positions.weights
        table[1:] = ours.positions[: len(table) - 1]  # theirs counts positions from the padding id + 1
    logits, expected = logits_of_both(ours, theirs)
    torch.testing.assert_close(logits, expected, rtol=0, atol=1e-11)
