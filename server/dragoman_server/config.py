"""The server's settings, from flags, environment and a TOML file; the first that speaks wins."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from dragoman_model.checkpoint import BUNDLED_MODEL
from dragoman_server.errors import ConfigError

PRECISIONS = ("auto", "float32", "bfloat16", "float16", "int8")
ENGINES = ("auto", "thread", "process")
LOG_FORMATS = ("text", "json")
LOG_LEVELS = ("debug", "info", "warning", "error")

_MAX_COUNT = 2**31 - 1  # what the contract's messages can hold
_MAX_THREADS = 1024  # more than any machine has a use for; PyTorch would really start them


@dataclass(frozen=True, kw_only=True)
class ServerConfig:
    """How to serve.

    Attributes:
        model: Model directories, in the order in which a language pair picks its default.
        listen: HOST:PORT of gRPC; port 0 takes a free one.
        http: HOST:PORT of /metrics, /healthz and /readyz; port 0 takes a free one, an empty string is off.
        device: auto, cpu, cuda or cuda:N.
        precision: Of the weights and activations; auto lets the device choose.
        threads: Threads of one tensor operation; 0 derives them from the CPU quota.
        engine: What a model's engine runs in: a thread of the server or a process of its own; auto is a process on a CPU where there
            are several.
        max_batch_size: Rows decoded at once, for each model.
        max_queue_size: Sentences that may wait, for each model.
        max_queue_seconds: How long a call may wait for its first row, as far as measured speed says beforehand and at most; 0 is as
            long as it takes. The items of a bulk stream wait on purpose.
        max_prefill_tokens: Source tokens encoded between two decoding steps.
        max_bulk_streams: TranslateBatch calls open at once, for each model.
        max_attention_calls: DumpAttention calls served at once, for each model.
        attention_sample_share: Share of the texts whose translation's attention is looked at for the metrics, 0 (none) to 1.
        max_text_count: Texts in one call.
        max_text_characters: Unicode code points in one text.
        max_beam_size: Beams of one search.
        max_num_hypotheses: Translations returned of one text.
        max_sentence_rows: Rows that one sentence takes, one for each beam or sample; at most ``max_batch_size`` count.
        hang_seconds: Time after which an engine that neither begins a step nor, idle, looks for work counts as hung; 0 is never.
        grace_seconds: Time that running calls get to end after SIGTERM; 0 ends them at once.
        log_format: text or json, one line a record.
        log_level: debug, info, warning or error.
    """

    model: tuple[Path, ...] = (BUNDLED_MODEL,)
    listen: str = "127.0.0.1:50051"
    http: str = "127.0.0.1:8080"
    device: str = "auto"
    precision: str = "auto"
    threads: int = 0
    engine: str = "auto"
    max_batch_size: int = 64
    max_queue_size: int = 1024
    max_queue_seconds: float = 0.0
    max_prefill_tokens: int = 2048
    max_bulk_streams: int = 128
    max_attention_calls: int = 16
    attention_sample_share: float = 0.0
    max_text_count: int = 256
    max_text_characters: int = 20_000
    max_beam_size: int = 8
    max_num_hypotheses: int = 8
    max_sentence_rows: int = 8
    hang_seconds: float = 60.0
    grace_seconds: float = 30.0
    log_format: str = "text"
    log_level: str = "info"

    def __post_init__(self) -> None:
        if not self.model:
            raise ConfigError("model: none given; at least one directory is needed")
        for name in ("max_batch_size", "max_queue_size", "max_prefill_tokens", "max_bulk_streams",
                     "max_attention_calls", "max_text_count", "max_text_characters", "max_beam_size", "max_num_hypotheses",
                     "max_sentence_rows"):  # fmt: skip
            if not 1 <= getattr(self, name) <= _MAX_COUNT:
                raise ConfigError(f"{name}: {getattr(self, name)} given; must be 1 to {_MAX_COUNT}")
        if not 0 <= self.threads <= _MAX_THREADS:
            raise ConfigError(f"threads: {self.threads} given; must be 0 to {_MAX_THREADS}")
        if not (self.hang_seconds == 0 or self.hang_seconds >= 1):
            raise ConfigError(f"hang_seconds: {self.hang_seconds} given; must be 0 (off) or at least 1")
        for name in ("max_queue_seconds", "grace_seconds"):
            if not getattr(self, name) >= 0:
                raise ConfigError(f"{name}: {getattr(self, name)} given; must be at least 0")
        if not 0 <= self.attention_sample_share <= 1:
            raise ConfigError(
                f"attention_sample_share: {self.attention_sample_share} given; must be 0 (off) to 1"
            )
        for name, allowed in (
            ("precision", PRECISIONS),
            ("engine", ENGINES),
            ("log_format", LOG_FORMATS),
            ("log_level", LOG_LEVELS),
        ):
            if getattr(self, name) not in allowed:
                raise ConfigError(
                    f"{name}: {getattr(self, name)!r} given; must be one of {', '.join(allowed)}"
                )
        for name in ("listen", "http"):
            if getattr(self, name) or name == "listen":
                split_address(name, getattr(self, name))


def split_address(name: str, address: str) -> tuple[str, int]:
    """Returns the host and the port of a HOST:PORT or [HOST]:PORT.

    Raises:
        ConfigError: It is neither; ``name`` is the setting at fault.
    """
    host, colon, port = address.rpartition(":")
    if not (colon and host and port.isascii() and port.isdigit() and int(port) <= 65535):
        raise ConfigError(f"{name}: {address!r} given; must be HOST:PORT, such as 127.0.0.1:50051")
    return host.removeprefix("[").removesuffix("]"), int(port)


def read_config_file(path: Path) -> dict[str, Any]:
    """Returns the settings in a TOML file, named as ``ServerConfig`` names them.

    Relative model directories are taken from the file's own folder.

    Raises:
        ConfigError: The file can't be read, holds an unknown setting or one of the wrong type.
    """
    try:
        settings = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise ConfigError(f"{path}: {reason}") from error
    types = {field.name: type(field.default) for field in fields(ServerConfig)}
    for name, value in settings.items():
        if name not in types:
            raise ConfigError(f"{path}: unknown setting {name!r}; known are {', '.join(types)}")
        if name == "model":
            settings[name] = _model_directories(path, value)
        elif not _is_of_type(value, types[name]):
            raise ConfigError(f"{path}: {name} is {value!r}; must be of type {types[name].__name__}")
    return settings


def _model_directories(path: Path, value: object) -> tuple[Path, ...]:
    directories = [value] if isinstance(value, str) else value
    if not isinstance(directories, list) or not all(isinstance(item, str) for item in directories):
        raise ConfigError(f"{path}: model is {value!r}; must be a directory or a list of directories")
    return tuple(path.parent / directory for directory in directories)


def _is_of_type(value: object, kind: type) -> bool:
    kinds = (int, float) if kind is float else kind
    return isinstance(value, kinds) and not isinstance(value, bool)
