from __future__ import annotations

import dataclasses
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from dragoman_server import command as program
from dragoman_server.config import ServerConfig, read_config_file, split_address
from dragoman_server.errors import ConfigError


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("model", ()),
        ("listen", "localhost"),
        ("listen", ""),
        ("http", "127.0.0.1:99999"),
        ("precision", "float8"),
        ("threads", -1),
        ("threads", 10**11),
        ("max_text_count", 2**31),
        ("max_text_characters", 10**30),
        ("max_batch_size", 0),
        ("max_queue_size", 0),
        ("grace_seconds", -1.0),
        ("grace_seconds", float("nan")),
        ("log_format", "xml"),
        ("log_level", "loud"),
    ],
)
def test_a_bad_value_says_what_was_seen(setting: str, value: Any):
    with pytest.raises(ConfigError, match=setting):
        ServerConfig(**{setting: value})


def test_monitoring_can_be_turned_off():
    assert ServerConfig(http="").http == ""


@pytest.mark.parametrize(
    ("address", "expected"),
    [("127.0.0.1:50051", ("127.0.0.1", 50051)), ("[::1]:0", ("::1", 0)), ("0.0.0.0:80", ("0.0.0.0", 80))],
)
def test_an_address_is_a_host_and_a_port(address: str, expected: tuple[str, int]):
    assert split_address("listen", address) == expected


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("threads = ", "Invalid value"),
        ("thread = 1", "unknown setting 'thread'"),
        ("threads = true", "must be of type int"),
        ('threads = "two"', "must be of type int"),
        ("listen = 50051", "must be of type str"),
        ("model = [1]", "must be a directory or a list of directories"),
    ],
)
def test_a_bad_config_file_is_refused_by_name(tmp_path: Path, text: str, complaint: str):
    path = tmp_path / "server.toml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=complaint) as caught:
        read_config_file(path)
    assert str(path) in str(caught.value)


def test_a_missing_or_binary_config_file_is_refused(tmp_path: Path):
    with pytest.raises(ConfigError, match="No such file"):
        read_config_file(tmp_path / "none.toml")
    (tmp_path / "binary.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match="utf-8"):
        read_config_file(tmp_path / "binary.toml")


def test_model_directories_are_relative_to_the_file(tmp_path: Path):
    path = tmp_path / "server.toml"
    path.write_text('model = ["models/en-de", "/srv/de-en"]\ngrace_seconds = 5\n')
    assert read_config_file(path)["model"] == (tmp_path / "models/en-de", Path("/srv/de-en"))


def run(arguments: list[str], environment: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> ServerConfig:
    """Runs the command up to where it would load models, and returns its configuration."""
    seen: list[ServerConfig] = []

    def stop(config: ServerConfig) -> None:
        seen.append(config)
        raise ConfigError("far enough")

    monkeypatch.setattr(program, "check_addresses", stop)
    CliRunner().invoke(program.command, arguments, env=environment)
    (config,) = seen
    return config


def test_a_flag_beats_the_environment_beats_the_file_beats_the_default(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    path = tmp_path / "server.toml"
    path.write_text("threads = 1\nmax_batch_size = 1\nmax_queue_size = 1\n")
    config = run(
        ["--config", str(path), "--threads", "3"],
        {"DRAGOMAN_THREADS": "2", "DRAGOMAN_MAX_BATCH_SIZE": "2"},
        monkeypatch,
    )
    assert (config.threads, config.max_batch_size, config.max_queue_size) == (3, 2, 1)
    assert config.max_text_count == ServerConfig().max_text_count


def test_the_file_can_be_named_in_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path = tmp_path / "server.toml"
    path.write_text('model = "other"\n')
    assert run([], {"DRAGOMAN_CONFIG": str(path)}, monkeypatch).model == (tmp_path / "other",)


def test_an_empty_variable_turns_monitoring_off_and_leaves_other_settings_alone(
    monkeypatch: pytest.MonkeyPatch,
):
    config = run([], {"DRAGOMAN_HTTP": "", "DRAGOMAN_LISTEN": "", "DRAGOMAN_THREADS": ""}, monkeypatch)
    assert (config.http, config.listen, config.threads) == ("", ServerConfig().listen, 0)
    assert run(["--http", "[::1]:0"], {"DRAGOMAN_HTTP": ""}, monkeypatch).http == "[::1]:0"
    assert run([], {}, monkeypatch).http == ServerConfig().http


def test_several_models_can_be_named(monkeypatch: pytest.MonkeyPatch):
    assert run(["--model", "a", "--model", "b"], {}, monkeypatch).model == (Path("a"), Path("b"))


def test_every_setting_is_a_flag_with_a_twin_in_the_environment():
    flags = {parameter.name: parameter for parameter in program.command.params}
    for field in dataclasses.fields(ServerConfig):
        flag = flags[field.name]
        assert flag.opts == [f"--{field.name.replace('_', '-')}"]
        assert flag.envvar == f"DRAGOMAN_{field.name.upper()}"


def test_a_base_install_says_what_the_server_needs() -> None:
    without_torch = (
        "import sys; sys.modules['torch'] = None; from dragoman_server.__main__ import main; main()"
    )
    result = subprocess.run(
        [sys.executable, "-c", without_torch], capture_output=True, text=True, check=False
    )
    assert result.returncode == 1
    assert (
        result.stderr
        == "dragoman-server: error: torch is not installed; pip install '.[server]' in the checkout\n"
    )
