"""Model directories: writing one, checking one, loading one.

A directory holds ``config.json``, ``model.safetensors`` (float16), ``tokenizer.model``, ``README.md`` (the model card)
and ``SHA256SUMS`` (as ``sha256sum -c`` reads it). Nothing in it is ever unpickled.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from safetensors.torch import save as serialize
from torch import Tensor

from dragoman_model.config import ModelConfig
from dragoman_model.config_file import read_config
from dragoman_model.devices import resolve_device, resolve_precision
from dragoman_model.errors import ModelDirectoryError
from dragoman_model.native.build import library
from dragoman_model.native.model import is_supported
from dragoman_model.quantization import best_kernel
from dragoman_model.tokenizer import TOKENIZER_FILE, Tokenizer
from dragoman_model.transformer import Transformer

BUNDLED_MODEL = Path(__file__).parent / "bundled" / "en-de"

CONFIG_FILE = "config.json"
WEIGHTS_FILE = "model.safetensors"
CARD_FILE = "README.md"
CHECKSUMS_FILE = "SHA256SUMS"

_LEAST_INT8_WIDTH = 128


@dataclass(frozen=True)
class LoadedModel:
    """A model ready to translate.

    Attributes:
        name: The directory's name.
        config: Its shape.
        tokenizer: Its vocabularies.
        transformer: Its weights, on the device, in the precision.
        digest: SHA-256 of the weights file, hexadecimal.
        device: Device in force.
        precision: Precision in force: float32, bfloat16, float16 or int8.
        parameter_count: Number of parameters.
    """

    name: str
    config: ModelConfig
    tokenizer: Tokenizer
    transformer: Transformer
    digest: str
    device: torch.device
    precision: str
    parameter_count: int


def load_model(
    directory: Path, *, device: str = "auto", precision: str = "auto", native: bool = True
) -> LoadedModel:
    """Returns the model in ``directory``.

    Args:
        directory: A model directory.
        device: "auto" (a GPU where there is one), "cpu", "cuda" or "cuda:N".
        precision: "auto" (on a CPU int8 where `pays_in_int8`, else float32; bfloat16 on a GPU), "float32", "bfloat16", "float16" or
            "int8".
        native: On a CPU int8 and float32 run through our own kernels where a C compiler can build them; False runs them through
            PyTorch's operators.

    Raises:
        ModelDirectoryError: A file is missing, truncated, altered or foreign; the message names it and the reason.
        DeviceError: The device or the precision is not to be had on this machine.
    """
    directory = Path(directory)
    target = resolve_device(device)
    dtype = resolve_precision(precision, target)
    try:
        is_directory = directory.is_dir()
    except OSError as error:
        raise ModelDirectoryError(f"{directory}: not readable ({error.strerror})") from None
    if not is_directory:
        raise ModelDirectoryError(f"{directory}: no such model directory")
    config = read_config(directory / CONFIG_FILE)
    if precision == "auto" and target.type == "cpu" and pays_in_int8(config):
        dtype = torch.int8
    digests = check_files(directory)
    tokenizer = Tokenizer.load(directory)
    for size in (config.source_vocab_size, config.target_vocab_size):
        if tokenizer.vocab_size != size:
            raise ModelDirectoryError(
                f"{directory / TOKENIZER_FILE}: has {tokenizer.vocab_size} pieces, but config.json says {size}; "
                "the files are of different models"
            )
    weights = _read_weights(directory / WEIGHTS_FILE)
    # Before the model is built: a faulty configuration may ask for more memory than there is. Smaller differences are
    # told apart tensor by tensor.
    expected, held = config.parameter_count, sum(tensor.numel() for tensor in weights.values())
    if expected > 2 * held:
        raise ModelDirectoryError(
            f"{directory / WEIGHTS_FILE}: holds {held:,} parameters, config.json makes them {expected:,}; "
            "the files are of different models"
        )
    transformer = Transformer(config)
    load_weights(transformer, weights, directory / WEIGHTS_FILE)
    parameter_count = sum(parameter.numel() for parameter in transformer.parameters())
    transformer.requires_grad_(False).eval()
    if dtype is torch.int8:
        transformer.quantize(best_kernel())
    else:
        transformer.to(device=target, dtype=dtype)
    if native and is_supported(transformer):  # else there is nothing to build them for
        transformer.native_kernels = library()
    return LoadedModel(
        name=directory.resolve().name,
        config=config,
        tokenizer=tokenizer,
        transformer=transformer,
        digest=digests[WEIGHTS_FILE],
        device=target,
        precision=str(dtype).removeprefix("torch."),
        parameter_count=parameter_count,
    )


def pays_in_int8(config: ModelConfig) -> bool:
    """Returns whether this processor runs a model of this shape faster in int8 than in float32.

    What a narrow model's products save, the quantisation of its activations costs.
    """
    return config.d_model >= _LEAST_INT8_WIDTH and best_kernel().is_fast


def save_model(directory: Path, config: ModelConfig, weights: Mapping[str, Tensor], card: str) -> None:
    """Writes a model directory around the ``tokenizer.model`` that already stands in it.

    Args:
        directory: Where; the tokenizer is there.
        config: The model's shape.
        weights: From `named_weights`; stored as float16.
        card: Text of the model card.
    """
    (directory / CONFIG_FILE).write_text(config.to_json(), encoding="utf-8")
    (directory / CARD_FILE).write_text(card, encoding="utf-8")
    stored = {name: tensor.detach().to("cpu", torch.float16).contiguous() for name, tensor in weights.items()}
    # Written here and not by the library, whose files only their owner may read: a server runs as somebody else.
    (directory / WEIGHTS_FILE).write_bytes(serialize(stored, metadata={"format": "pt"}))
    write_checksums(directory)


def write_checksums(directory: Path) -> None:
    """Writes ``SHA256SUMS`` over the directory's files as they are now."""
    files = (CONFIG_FILE, WEIGHTS_FILE, TOKENIZER_FILE)  # not the card, which may be put in better words
    lines = [f"{file_digest(directory / name)}  {name}\n" for name in files]
    (directory / CHECKSUMS_FILE).write_text("".join(lines), encoding="utf-8")


def check_files(directory: Path) -> dict[str, str]:
    """Returns the SHA-256 of each of a model directory's files, by name, all equal to what ``SHA256SUMS`` says.

    Raises:
        ModelDirectoryError: A file is missing or differs.
    """
    path = directory / CHECKSUMS_FILE
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = "no such file" if isinstance(error, FileNotFoundError) else f"not readable ({error})"
        raise ModelDirectoryError(f"{path}: {reason}; a model directory holds {CHECKSUMS_FILE}") from None
    expected = {}
    for line in text.splitlines():
        digest, _, name = line.partition("  ")
        expected[name] = digest
    for required in (CONFIG_FILE, WEIGHTS_FILE, TOKENIZER_FILE):
        if required not in expected:
            raise ModelDirectoryError(f"{path}: does not name {required}")
    digests = {}
    for name, digest in expected.items():
        file = directory / name
        if Path(name).name != name or not file.is_file():
            raise ModelDirectoryError(f"{file}: no such file, though {CHECKSUMS_FILE} names it")
        try:
            digests[name] = file_digest(file)
        except OSError as error:
            raise ModelDirectoryError(f"{file}: not readable ({error.strerror})") from None
        if digests[name] != digest:
            raise ModelDirectoryError(
                f"{file}: its SHA-256 is {digests[name][:12]}…, {CHECKSUMS_FILE} says {digest[:12]}…; "
                "the file is truncated or altered, fetch it again"
            )
    return digests


def named_weights(transformer: Transformer) -> dict[str, Tensor]:
    """Returns the model's parameters and what else is saved with them, by name, each shared one once."""
    saved = transformer.state_dict().keys()
    buffers = {name: buffer for name, buffer in transformer.named_buffers() if name in saved}
    return dict(transformer.named_parameters()) | buffers


def load_weights(transformer: Transformer, weights: Mapping[str, Tensor], source: Path) -> None:
    """Copies ``weights`` into the model.

    Raises:
        ModelDirectoryError: A tensor is missing, unknown or of another shape; ``source`` is named as the culprit.
    """
    parameters = named_weights(transformer)
    for name in sorted(parameters.keys() ^ weights.keys()):
        kind = "lacks" if name in parameters else "holds an unknown"
        raise ModelDirectoryError(f"{source}: {kind} tensor {name!r}; the file is not of this config.json")
    with torch.no_grad():
        for name, parameter in parameters.items():
            if parameter.shape != weights[name].shape:
                raise ModelDirectoryError(
                    f"{source}: tensor {name!r} is {tuple(weights[name].shape)}, config.json makes it "
                    f"{tuple(parameter.shape)}"
                )
            if not weights[name].isfinite().all():
                raise ModelDirectoryError(f"{source}: tensor {name!r} holds values that are no numbers")
            parameter.copy_(weights[name])


def file_digest(path: Path) -> str:
    """Returns a file's SHA-256 in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _read_weights(path: Path) -> dict[str, Tensor]:
    try:
        return load_file(path)
    except (OSError, SafetensorError) as error:
        raise ModelDirectoryError(f"{path}: not readable as safetensors ({error})") from None
