"""The generated stubs load on every version of protobuf and grpcio that the packaging allows."""

import re
import tomllib
from pathlib import Path

from dragoman.v1 import TranslateTextRequest, translation_pb2_grpc

ROOT = Path(__file__).parents[2]


def read_floor(distribution: str) -> str:
    """The lowest version of a dependency that a user may have."""
    dependencies = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    (floor,) = (
        match[1]
        for line in dependencies
        if (match := re.match(rf"{distribution}>=([\d.]+)", line)) is not None
    )
    return floor


def test_floor_of_protobuf_is_the_version_the_stubs_ask_for() -> None:
    source = (ROOT / "proto/dragoman/v1/translation_pb2.py").read_text()
    (version,) = re.findall(r"^# Protobuf Python Version: ([\d.]+)$", source, re.MULTILINE)

    assert read_floor("protobuf") == version


def test_floor_of_grpcio_is_the_version_the_stubs_ask_for() -> None:
    assert read_floor("grpcio") + ".0" == translation_pb2_grpc.GRPC_GENERATED_VERSION


def test_field_that_is_unset_differs_from_one_set_to_zero() -> None:
    unset, zero = TranslateTextRequest(), TranslateTextRequest()
    zero.options.min_decoding_length = 0
    zero = TranslateTextRequest.FromString(zero.SerializeToString())

    assert not unset.options.HasField("min_decoding_length")
    assert zero.options.HasField("min_decoding_length")
