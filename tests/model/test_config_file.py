import json

import pytest

from dragoman_model.alignment_config import AlignmentConfig
from dragoman_model.config import FORMAT_VERSION, ModelConfig
from dragoman_model.config_file import config_from_mapping, read_config
from dragoman_model.errors import ModelDirectoryError
from tests.models import tiny_config

MINIMAL = {"language_pairs": (("en", "de"),), "source_vocab_size": 100, "target_vocab_size": 100}


@pytest.mark.parametrize(
    "config",
    [
        ModelConfig(**MINIMAL),
        tiny_config(
            language_pairs=(("en", "de"), ("en", "pt-BR")),
            target_language_tokens={"de": ">>de<<", "pt-BR": ">>pt<<"},
            shared_vocabulary=False,
            source_vocab_size=50,
            target_vocab_size=60,
            norm="post",
            activation="swish",
            positions="rotary",
            max_relative_distance=5,
            cross_attention="additive",
            sinusoid_layout="concatenated",
            scale_embeddings=False,
            decoder_start_id=0,
            encoder_attention="window",
            decoder_attention="window",
            attention_window=9,
        ),
    ],
)
def test_json_and_back_gives_the_same(config, tmp_path):
    path = tmp_path / "config.json"
    path.write_text(config.to_json(), encoding="utf-8")
    assert read_config(path) == config


def test_a_missing_field_is_named():
    with pytest.raises(ValueError, match="source_vocab_size"):
        config_from_mapping({"language_pairs": [["en", "de"]], "target_vocab_size": 100})
    with pytest.raises(ValueError, match="language_pairs"):
        config_from_mapping({"source_vocab_size": 100, "target_vocab_size": 100})


def test_an_unknown_field_is_named_beside_those_there_are():
    with pytest.raises(ValueError, match=r"unknown key 'd_modell'; .*d_model,"):
        config_from_mapping({**MINIMAL, "d_modell": 3})


def changed_json(**changes):
    return json.dumps({**json.loads(tiny_config().to_json()), **changes}).encode()


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (None, "no such file"),
        (b"", "not readable as JSON"),
        (b"{", "not readable as JSON"),
        (b"\xff\xfe\x00", "not readable as JSON"),
        (b"[" * 100_000, "not readable as JSON"),
        (b"[]", "not a dragoman model"),
        (b"3", "not a dragoman model"),
        (b'{"model_type": "marian", "vocab_size": 58101}', "not a dragoman model"),
        (changed_json(format_version=FORMAT_VERSION + 1), f"this release reads {FORMAT_VERSION}"),
        (changed_json(format_version="1"), "format_version is '1'"),
        (changed_json(layers=6), "unknown key 'layers'"),
        (changed_json(d_model=17), "d_model 17"),
        (changed_json(language_pairs=[["en"]]), "language_pairs"),
        (changed_json(norm=None), "norm is None"),
    ],
    ids=lambda value: str(value)[:20],
)
def test_a_bad_file_is_an_error_that_names_it_and_the_reason(content, reason, tmp_path):
    path = tmp_path / "config.json"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ModelDirectoryError) as caught:
        read_config(path)
    assert str(caught.value).startswith(f"{path}: ")
    assert reason in str(caught.value)


def test_an_alignment_comes_back_as_it_was_written(tmp_path):
    config = tiny_config(alignment=AlignmentConfig(layer=0, heads=(1, 0), method="shifted"))
    (tmp_path / "config.json").write_text(config.to_json())
    assert read_config(tmp_path / "config.json") == config


@pytest.mark.parametrize(
    ("alignment", "reason"),
    [
        ({"layer": 0}, "heads is missing"),
        ({"layer": 0, "heads": []}, "one or more"),
        ({"layer": 0, "heads": [0, 0]}, "once"),
        ({"layer": 0, "heads": [-1]}, "from 0"),
        ({"layer": True, "heads": [0]}, "layer is True"),
        ({"layer": 0, "heads": 0}, "heads is 0"),
        ({"layer": 0, "heads": [9]}, "heads 0 to 3"),
        ({"layer": 0, "heads": [0], "method": "best"}, "'naive' or 'shifted'"),
        ({"layer": 0, "heads": [0], "depth": 1}, "unknown key 'depth'"),
        ([0, 1], "layer, heads and a method"),
    ],
)
def test_an_alignment_that_is_not_allowed_is_refused(alignment, reason):
    with pytest.raises(ValueError, match=f"alignment.*{reason}"):
        config_from_mapping({**MINIMAL, "language_pairs": [["en", "de"]], "alignment": alignment})
