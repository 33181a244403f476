import dataclasses
import json

import pytest

from dragoman_model.alignment_config import AlignmentConfig
from dragoman_model.config import FORMAT_VERSION, ModelConfig
from dragoman_model.transformer import Transformer
from tests.models import VARIANTS, tiny_config

MINIMAL = {"language_pairs": (("en", "de"),), "source_vocab_size": 100, "target_vocab_size": 100}

# Field, a value that is not allowed, what the message says beside the field's name.
REFUSED = [
    ("language_pairs", (), "empty"),
    ("max_source_length", 10**12, "at most 65536"),
    ("language_pairs", (("en",),), "pairs of language codes"),
    ("language_pairs", (("en", ""),), "pairs of language codes"),
    ("language_pairs", (("en", 3),), "pairs of language codes"),
    ("language_pairs", "ende", "pairs of language codes"),
    ("target_language_tokens", {"de": 5}, "vocabulary piece"),
    ("target_language_tokens", 7, "vocabulary piece"),
    ("source_vocab_size", 0, "1 or more"),
    ("source_vocab_size", 99, "target_vocab_size 100"),
    ("target_vocab_size", -3, "1 or more"),
    ("target_vocab_size", "100", "type int"),
    ("shared_vocabulary", 1, "type bool"),
    ("tie_output", "yes", "type bool"),
    ("output_bias", None, "type bool"),
    ("d_model", 0, "1 or more"),
    ("d_model", 15, "not a multiple of num_heads"),
    ("d_model", True, "type int"),
    ("d_model", 64.0, "type int"),
    ("d_ff", 0, "1 or more"),
    ("num_heads", 0, "1 or more"),
    ("num_heads", 3, "not a multiple of num_heads"),
    ("num_encoder_layers", 0, "1 or more"),
    ("num_decoder_layers", 0, "1 or more"),
    ("norm", "both", "'pre', 'post'"),
    ("layer_norm_eps", 0.0, "above 0"),
    ("layer_norm_eps", -1e-5, "above 0"),
    ("layer_norm_eps", float("nan"), "above 0"),
    ("activation", "tanh", "'relu', 'gelu', 'swish'"),
    ("scale_embeddings", 2.0, "type bool"),
    ("positions", "none", "'sinusoidal', 'learned', 'rotary', 'relative'"),
    ("max_relative_distance", 0, "1 or more"),
    ("max_relative_distance", 10**12, "at most 65536"),
    ("sinusoid_layout", ["interleaved"], "'interleaved', 'concatenated'"),
    ("encoder_attention", "near", "'full', 'window', 'favor'"),
    ("decoder_attention", "linear", "'full', 'window'"),
    ("cross_attention", "multiplicative", "'dot', 'additive'"),
    ("attention_window", -1, "0 elsewhere"),
    ("attention_window", 5, "0 elsewhere"),
    ("attention_window", 2.5, "type int"),
    ("attention_features", -1, "0 elsewhere"),
    ("attention_features", 8, "0 elsewhere"),
    ("dropout", 1.0, "below 1"),
    ("dropout", -0.1, "below 1"),
    ("dropout", float("nan"), "below 1"),
    ("dropout", False, "type float"),
    ("max_source_length", 0, "1 or more"),
    ("max_target_length", 0, "1 or more"),
    ("pad_id", -1, "within the vocabulary of 100"),
    ("pad_id", 2, "eos_id"),
    ("pad_id", 3, "unk_id"),
    ("bos_id", 100, "within the vocabulary of 100"),
    ("eos_id", 100, "within the vocabulary of 100"),
    ("unk_id", 1000, "within the vocabulary of 100"),
    ("decoder_start_id", 100, "within the vocabulary of 100"),
    ("alignment", "best", "layer, heads and a method"),
    ("alignment", AlignmentConfig(layer=2, heads=(0,)), "layers 0 to 1"),
    ("alignment", AlignmentConfig(layer=0, heads=(1, 4)), "heads 0 to 3"),
]


@pytest.mark.parametrize(("field", "value", "reason"), REFUSED)
def test_a_value_that_is_not_allowed_is_refused_by_name(field, value, reason):
    with pytest.raises(ValueError, match=field) as caught:
        ModelConfig(**{**MINIMAL, field: value})
    assert reason in str(caught.value)


def test_every_field_is_checked():
    assert {field for field, *_ in REFUSED} == {field.name for field in dataclasses.fields(ModelConfig)}


def test_an_odd_width_is_refused():
    with pytest.raises(ValueError, match="odd"):
        ModelConfig(**MINIMAL, d_model=15, num_heads=3)


@pytest.mark.parametrize(
    ("stack", "mechanism", "size"),
    [
        ("encoder_attention", "window", "attention_window"),
        ("decoder_attention", "window", "attention_window"),
        ("encoder_attention", "favor", "attention_features"),
    ],
)
@pytest.mark.parametrize("value", [0, -3, 10**12])
def test_a_window_has_a_width_and_linear_attention_a_number_of_features(stack, mechanism, size, value):
    with pytest.raises(ValueError, match=f"{size} is {value}; it must be 1 to 65536 where "):
        tiny_config(**{stack: mechanism, size: value})


@pytest.mark.parametrize(
    "changes",
    [
        {"encoder_attention": "window", "attention_window": 3},
        {"decoder_attention": "window", "attention_window": 3},
        {"encoder_attention": "favor", "attention_features": 3},
    ],
)
def test_relative_positions_go_with_full_attention_alone(changes):
    with pytest.raises(ValueError, match="relative positions go with 'full' attention alone"):
        tiny_config(positions="relative", **changes)


def test_rotary_positions_need_heads_of_an_even_width():
    with pytest.raises(ValueError, match="odd width 3; rotary positions need pairs"):
        ModelConfig(**MINIMAL, d_model=12, num_heads=4, positions="rotary")


def test_special_ids_lie_in_both_vocabularies():
    with pytest.raises(ValueError, match="eos_id is 60"):
        tiny_config(shared_vocabulary=False, source_vocab_size=50, target_vocab_size=90, eos_id=60)


def test_a_whole_number_serves_where_a_fraction_is_meant():
    assert ModelConfig(**MINIMAL, dropout=0).dropout == 0


def test_a_configuration_cannot_be_changed():
    with pytest.raises(dataclasses.FrozenInstanceError):
        tiny_config().d_model = 32


def test_json_names_every_field_and_the_format():
    values = json.loads(tiny_config().to_json())
    assert values.pop("format_version") == FORMAT_VERSION
    assert set(values) == {field.name for field in dataclasses.fields(ModelConfig)}


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"norm": "post", "num_decoder_layers": 3},
        {"tie_output": True, "output_bias": False},
        {"shared_vocabulary": False, "source_vocab_size": 17},
        *VARIANTS.values(),
    ],
)
def test_the_parameter_count_is_that_of_the_model_built(changes):
    config = tiny_config(**changes)
    assert config.parameter_count == sum(parameter.numel() for parameter in Transformer(config).parameters())
