"""A model's weights in other people's implementations: CTranslate2's, and Hugging Face's Marian and M2M100.

Weights come by the names that a checkpoint gives them (``checkpoint.named_weights``), so that nothing here depends on how
our own layers lay them out to compute.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor

from dragoman_model.checkpoint import CONFIG_FILE, WEIGHTS_FILE, check_files
from dragoman_model.config import ModelConfig
from dragoman_model.config_file import read_config
from dragoman_model.positions import sinusoidal_positions

Weights = Mapping[str, Tensor]


def read_weights(directory: Path) -> tuple[ModelConfig, dict[str, Tensor]]:
    """Returns the shape and the weights of a model directory, in float32."""
    check_files(directory)
    weights = load_file(directory / WEIGHTS_FILE)
    return read_config(directory / CONFIG_FILE), {name: tensor.float() for name, tensor in weights.items()}


def embeddings(config: ModelConfig, weights: Weights) -> tuple[Tensor, Tensor, Tensor]:
    """Returns the embeddings of source and target and the output projection, whatever of them is shared."""
    # A shared one is stored once, under the first of its names.
    output = weights["output_weight"]
    if config.tie_output and config.shared_vocabulary:
        return output, output, output
    source = weights["source_embedding.weight"]
    target = source if config.shared_vocabulary else weights.get("target_embedding.weight", output)
    return source, target, output


def position_table(config: ModelConfig, length: int | None = None) -> Tensor:
    """Returns the positions that the model adds, (T, D); by default as many as a sentence may have."""
    length = length or max(config.max_source_length, config.max_target_length)
    return sinusoidal_positions(length, config.d_model, config.sinusoid_layout)


def check_attention(config: ModelConfig) -> None:
    """Refuses a model whose attention the others don't know.

    Raises:
        ValueError: It isn't the default's.
    """
    for key in ("positions", "encoder_attention", "decoder_attention", "cross_attention"):
        default = ModelConfig.__dataclass_fields__[key].default
        if getattr(config, key) != default:
            raise ValueError(
                f"{key} is {getattr(config, key)!r}; the other implementations know {default!r} alone"
            )


# CTranslate2


def write_ctranslate2(directory: Path, config: ModelConfig, weights: Weights) -> None:
    """Writes a CTranslate2 model with the same weights, in float32; its tokens are our token ids, as decimal numbers.

    Raises:
        ValueError: It has no such attention.
    """
    import ctranslate2

    check_attention(config)
    activations = ctranslate2.specs.Activation
    spec = ctranslate2.specs.TransformerSpec.from_config(
        (config.num_encoder_layers, config.num_decoder_layers),
        config.num_heads,
        pre_norm=config.norm == "pre",
        activation={"relu": activations.RELU, "gelu": activations.GELU, "swish": activations.SWISH}[
            config.activation
        ],
    )
    source, target, output = embeddings(config, weights)
    spec.encoder.embeddings[0].weight, spec.decoder.embeddings.weight = source.numpy(), target.numpy()
    spec.decoder.projection.weight = output.numpy()
    if config.output_bias:
        spec.decoder.projection.bias = weights["output_bias"].numpy()
    for stack, side in (("encoder", spec.encoder), ("decoder", spec.decoder)):
        side.scale_embeddings = config.scale_embeddings
        side.position_encodings.encodings = position_table(config).numpy()
        if config.norm == "pre":
            _set_norm(side.layer_norm, weights, f"{stack}_norm")
        for index, layer in enumerate(side.layer):
            _set_layer(layer, weights, f"{stack}.{index}")
    for vocab_size, register in (
        (config.source_vocab_size, spec.register_source_vocabulary),
        (config.target_vocab_size, spec.register_target_vocabulary),
    ):
        register([str(token_id) for token_id in range(vocab_size)])
    spec.config.bos_token, spec.config.eos_token = str(config.bos_id), str(config.eos_id)
    spec.config.unk_token = str(config.unk_id)
    spec.config.decoder_start_token = str(config.decoder_start_id)
    spec.config.layer_norm_epsilon = config.layer_norm_eps
    spec.validate()
    directory.mkdir(parents=True, exist_ok=True)
    spec.save(str(directory))


def _set_layer(layer: Any, weights: Weights, name: str) -> None:
    """Fills a layer's spec; queries, keys and values that read the same input are one matrix there."""
    block = f"{name}.self_attention"
    _set_norm(layer.self_attention.layer_norm, weights, f"{block}_residual.norm")
    _set_linear(layer.self_attention.linear[0], weights, *(f"{block}.{one}_proj" for one in "qkv"))
    _set_linear(layer.self_attention.linear[1], weights, f"{block}.out_proj")
    block = f"{name}.cross_attention"
    if f"{block}.q_proj.weight" in weights:
        _set_norm(layer.attention.layer_norm, weights, f"{block}_residual.norm")
        _set_linear(layer.attention.linear[0], weights, f"{block}.q_proj")
        _set_linear(layer.attention.linear[1], weights, f"{block}.k_proj", f"{block}.v_proj")
        _set_linear(layer.attention.linear[2], weights, f"{block}.out_proj")
    block = f"{name}.feed_forward"
    _set_norm(layer.ffn.layer_norm, weights, f"{block}_residual.norm")
    _set_linear(layer.ffn.linear_0, weights, f"{block}.in_proj")
    _set_linear(layer.ffn.linear_1, weights, f"{block}.out_proj")


def _set_linear(linear: Any, weights: Weights, *names: str) -> None:
    linear.weight = torch.cat([weights[f"{name}.weight"] for name in names]).numpy()
    linear.bias = torch.cat([weights[f"{name}.bias"] for name in names]).numpy()


def _set_norm(norm: Any, weights: Weights, name: str) -> None:
    norm.gamma, norm.beta = weights[f"{name}.weight"].numpy(), weights[f"{name}.bias"].numpy()


# Hugging Face

_MODULES = {
    "self_attention": "self_attn",
    "self_attention_residual.norm": "self_attn_layer_norm",
    "cross_attention": "encoder_attn",
    "cross_attention_residual.norm": "encoder_attn_layer_norm",
    "feed_forward.in_proj": "fc1",
    "feed_forward.out_proj": "fc2",
    "feed_forward_residual.norm": "final_layer_norm",
}


def hugging_face_model(config: ModelConfig, weights: Weights) -> Any:
    """Returns Hugging Face's model with the same weights, in their dtype: Marian for post-norm, M2M100 for pre-norm.

    Raises:
        ValueError: Neither of the two has such a shape.
    """
    check_attention(config)
    if config.layer_norm_eps != 1e-5:
        raise ValueError(f"layer_norm_eps is {config.layer_norm_eps}; both of theirs have 1e-5, fixed")
    theirs, state = _marian(config, weights) if config.norm == "post" else _m2m100(config, weights)
    theirs = theirs.to(next(iter(weights.values())).dtype)
    missing, unexpected = theirs.load_state_dict(state, strict=False)
    if missing or unexpected:
        raise ValueError(f"weights don't fit: {missing} missing, {unexpected} unexpected")
    if config.norm == "pre":
        for stack in (theirs.model.encoder, theirs.model.decoder):
            table = stack.embed_positions.weights
            # Theirs counts positions from the padding id + 1.
            table[config.pad_id + 1 :] = position_table(config, len(table) - config.pad_id - 1)
    return theirs.requires_grad_(False).eval()


def _marian(config: ModelConfig, weights: Weights) -> tuple[Any, dict[str, Tensor]]:
    import transformers

    if not config.tie_output:
        raise ValueError("Marian ties its output projection to the target embedding; this model does not")
    shape = transformers.MarianConfig(
        **_shape(config),
        activation_function=config.activation,
        decoder_vocab_size=config.target_vocab_size,
        share_encoder_decoder_embeddings=config.shared_vocabulary,
        tie_word_embeddings=config.shared_vocabulary,
        forced_eos_token_id=None,
    )
    source, target, output = embeddings(config, weights)
    positions = position_table(config)
    state = {
        **dict(_layers(weights)),
        "model.encoder.embed_tokens.weight": source,
        "model.decoder.embed_tokens.weight": target,
        "model.encoder.embed_positions.weight": positions,
        "model.decoder.embed_positions.weight": positions,
        "lm_head.weight": output,
        "final_logits_bias": weights["output_bias"][None]
        if config.output_bias
        else output.new_zeros(1, len(output)),
    }
    if config.shared_vocabulary:
        state["model.shared.weight"] = source
    return transformers.MarianMTModel(shape), state


def _m2m100(config: ModelConfig, weights: Weights) -> tuple[Any, dict[str, Tensor]]:
    import transformers

    if not (config.shared_vocabulary and config.tie_output) or config.output_bias:
        raise ValueError("M2M100 has one embedding for source, target and output, and no output bias")
    shape = transformers.M2M100Config(
        **_shape(config),
        activation_function=config.activation,
        encoder_layerdrop=0.0,
        decoder_layerdrop=0.0,
    )
    state = dict(_layers(weights))
    for name in ("model.shared", "model.encoder.embed_tokens", "model.decoder.embed_tokens", "lm_head"):
        state[f"{name}.weight"] = weights["output_weight"]
    for stack in ("encoder", "decoder"):
        for kind in ("weight", "bias"):
            state[f"model.{stack}.layer_norm.{kind}"] = weights[f"{stack}_norm.{kind}"]
    return transformers.M2M100ForConditionalGeneration(shape), state


def _shape(config: ModelConfig) -> dict[str, Any]:
    return {
        "vocab_size": config.source_vocab_size,
        "d_model": config.d_model,
        "encoder_layers": config.num_encoder_layers,
        "decoder_layers": config.num_decoder_layers,
        "encoder_attention_heads": config.num_heads,
        "decoder_attention_heads": config.num_heads,
        "encoder_ffn_dim": config.d_ff,
        "decoder_ffn_dim": config.d_ff,
        "scale_embedding": config.scale_embeddings,
        "max_position_embeddings": max(config.max_source_length, config.max_target_length),
        "pad_token_id": config.pad_id,
        "bos_token_id": config.bos_id,
        "eos_token_id": config.eos_id,
        "decoder_start_token_id": config.decoder_start_id,
        "dropout": 0.0,
    }


def _layers(weights: Weights) -> Iterator[tuple[str, Tensor]]:
    """Yields the layers' weights under the names that Marian and M2M100 share."""
    for name, tensor in weights.items():
        stack, _, rest = name.partition(".")
        if stack in ("encoder", "decoder"):
            index, _, rest = rest.partition(".")
            module, _, parameter = rest.rpartition(".")
            head, _, tail = module.partition(".")
            theirs = _MODULES.get(module) or f"{_MODULES[head]}.{tail}"
            yield f"model.{stack}.layers.{index}.{theirs}.{parameter}", tensor
