"""Builds the kernels for a processor's instructions, once, where there is a compiler, or finds what was built before.

Each variant is built for its own instructions and for no processor in particular, so that what one machine builds serves any
that has them. They are looked for in this order:

1. among those built ahead: ``built`` beside this file, which ``python -m dragoman_model.native.build`` fills (an image or a wheel
   made afterwards has them), or the folder that ``DRAGOMAN_KERNELS_DIR`` names;
2. in the user's cache, ``$XDG_CACHE_HOME/dragoman/kernels``, else ``~/.cache/dragoman/kernels``, where they are put when a
   compiler has built them.

A file's name says what it was built from. What is there is run, so that it must be of this user's own making or root's.
``DRAGOMAN_KERNELS`` names the variant, or ``none``; otherwise it is the best that the processor has instructions for.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import hashlib
import logging
import os
import platform
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import NamedTuple

import click
import torch

from dragoman_model.errors import DeviceError

_log = logging.getLogger(__name__)

SOURCE = Path(__file__).parent / "kernels.c"
BUILT_AHEAD = Path(__file__).parent / "built"
# Sums may be re-ordered, as vectors need, but no product may join a sum in one copy of a function and not in another. The
# processor's floating-point mode stays as it is, which -ffast-math would change for the whole process.
FLAGS = (
    "-O3", "-fassociative-math", "-fno-signed-zeros", "-fno-trapping-math", "-fno-math-errno",
    "-ffp-contract=off", "-fno-semantic-interposition", "-fPIC", "-shared",
)  # fmt: skip
_BUILD_SECONDS = 60  # it takes one or two
# These keep Python's lock. They take microseconds; whoever gets the lock meanwhile may keep it for milliseconds, and the batch
# stands still.
_QUICK = ("scratch_floats", "logits_floats", "log_probabilities", "copy_rows", "branch", "fill")


class Variant(NamedTuple):
    """Kernels for the processors that have certain instructions.

    Attributes:
        name: As ``DRAGOMAN_KERNELS`` has it.
        flags: The compiler's.
        instructions: What a processor needs, as /proc/cpuinfo names it.
    """

    name: str
    flags: tuple[str, ...]
    instructions: frozenset[str]


_AVX2 = ("avx2", "fma", "f16c", "bmi1", "bmi2")
_AVX512 = (*_AVX2, "avx512f", "avx512bw", "avx512dq", "avx512vl")
_AVX2_FLAGS = ("-mavx2", "-mfma", "-mf16c", "-mbmi", "-mbmi2")
_AVX512_FLAGS = (
    *_AVX2_FLAGS, "-mavx512f", "-mavx512bw", "-mavx512dq", "-mavx512vl", "-mprefer-vector-width=512",
)  # fmt: skip
# The fastest first.
VARIANTS = (
    Variant("avx512-vnni", (*_AVX512_FLAGS, "-mavx512vnni"), frozenset((*_AVX512, "avx512_vnni"))),
    Variant("avx-vnni", (*_AVX2_FLAGS, "-mavxvnni"), frozenset((*_AVX2, "avx_vnni"))),
    Variant("avx512", _AVX512_FLAGS, frozenset(_AVX512)),
    Variant("avx2", _AVX2_FLAGS, frozenset(_AVX2)),
)


class _Library(ctypes.CDLL):
    """Kernels; the copy of a model has them in common with it."""

    def __deepcopy__(self, memo: object) -> _Library:
        return self


@functools.cache
def library(name: str | None = None) -> ctypes.CDLL | None:
    """Returns the kernels; None where they can't be had, with the reason in the log.

    Args:
        name: A variant's; by default that of ``DRAGOMAN_KERNELS``, or the first of `runnable` that can be had.

    Raises:
        DeviceError: No variant has the name, or this processor lacks its instructions.
    """
    name = name or os.environ.get("DRAGOMAN_KERNELS") or "auto"
    if name == "none":
        return None
    variants = runnable()
    if name != "auto":
        variants = [variant for variant in variants if variant.name == name]
        if not variants:
            allowed = ", ".join(["auto", *(variant.name for variant in runnable()), "none"])
            raise DeviceError(f"DRAGOMAN_KERNELS is {name!r}; this processor can run {allowed}")
    for variant in variants:
        with contextlib.suppress(OSError):
            return _open(_ahead() / _file_name(variant))
    compiler = _compiler()
    if compiler is None:
        _log.info("no C compiler here: the model runs through PyTorch's operators, which takes longer")
        return None
    for variant in variants:
        try:
            return _load(compiler, variant)
        except (OSError, subprocess.SubprocessError) as error:
            said = getattr(error, "stderr", None) or error
            _log.warning("%s can't build the kernels for %s: %s", compiler, variant.name, said)
    return None


def runnable() -> list[Variant]:
    """Returns the variants that this processor has instructions for, the fastest first."""
    if not _is_x86():
        return []
    instructions = _instructions()
    return [variant for variant in VARIANTS if variant.instructions <= instructions]


def build_ahead(folder: Path) -> list[Path]:
    """Builds all variants into a folder and returns the files; what the compiler doesn't know is left out, with the reason in the log.

    Raises:
        DeviceError: There is no compiler, or it can build none.
    """
    compiler = _compiler()
    if compiler is None:
        raise DeviceError(
            "no C compiler here; install one (gcc and libc6-dev on Debian), or set CC to its name"
        )
    folder.mkdir(parents=True, exist_ok=True)
    built = []
    for variant in VARIANTS:
        target = folder / _file_name(variant)
        try:
            _build(compiler, variant, target)
        except subprocess.SubprocessError as error:
            _log.warning("%s: %s", variant.name, getattr(error, "stderr", None) or error)
        else:
            target.chmod(0o755)  # for whoever runs the server
            built.append(target)
    if not built:
        raise DeviceError(
            f"{compiler} can build none of the kernels, which are for x86-64; the log has the reasons"
        )
    return built


def _is_x86() -> bool:
    """Returns whether this is a machine that the kernels are written for."""
    return os.name == "posix" and platform.machine() in ("x86_64", "AMD64")


def _ahead() -> Path:
    return Path(os.environ.get("DRAGOMAN_KERNELS_DIR") or BUILT_AHEAD)


def _compiler() -> str | None:
    return next(filter(None, map(shutil.which, (os.environ.get("CC") or "cc", "gcc", "clang"))), None)


def _load(compiler: str, variant: Variant) -> ctypes.CDLL:
    name = _file_name(variant, _run([compiler, "--version"]))
    try:
        kept = _private_folder() / name
        with contextlib.suppress(OSError):  # none yet, or a half of one
            return _open(kept)
        with tempfile.TemporaryDirectory(dir=kept.parent) as there:
            _build(compiler, variant, Path(there) / name)
            (Path(there) / name).replace(kept)  # whole or not at all, whoever else builds
        return _open(kept)
    except (
        OSError,
        subprocess.CalledProcessError,
    ):  # a home that can't be written to, is full or somebody else's
        with tempfile.TemporaryDirectory() as there:
            _build(compiler, variant, Path(there) / name)
            return _open(Path(there) / name)


def _private_folder() -> Path:
    try:
        cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    except RuntimeError as error:  # a user that has no home, as in some containers
        raise OSError(str(error)) from error
    folder = cache / "dragoman" / "kernels"
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    _check_is_private(folder)
    return folder


def _open(file: Path) -> ctypes.CDLL:
    _check_is_private(file)
    library = _Library(str(file))
    keeping_lock = ctypes.PyDLL(None, handle=library._handle)
    for name in _QUICK:
        setattr(library, name, getattr(keeping_lock, name))
    return library


def _check_is_private(path: Path) -> None:
    """Refuses what another user can have written: a cache may stand in a folder that all may write to."""
    status = path.lstat()
    if status.st_uid not in (os.geteuid(), 0) or status.st_mode & 0o022:
        raise PermissionError(f"{path}: others may write to it")


def _build(compiler: str, variant: Variant, target: Path) -> None:
    _run([compiler, *FLAGS, *variant.flags, "-o", str(target), str(SOURCE), "-lm"])
    target.chmod(0o700)


def _file_name(variant: Variant, *also: str) -> str:
    """Returns the name of the file for a variant; it differs with all that it was built from."""
    sources = (SOURCE, *sorted(SOURCE.parent.glob("*.h")))
    parts = (*(source.read_text(encoding="utf-8") for source in sources), *FLAGS, *variant.flags, *also)
    digest = hashlib.sha256("\0".join(parts).encode()).hexdigest()
    return f"kernels-{variant.name}-{digest[:16]}.so"


def _run(command: list[str]) -> str:
    """Returns what a command prints, in whatever encoding."""
    return subprocess.run(
        command, check=True, capture_output=True, encoding="utf-8", errors="replace", timeout=_BUILD_SECONDS
    ).stdout


def _instructions() -> frozenset[str]:
    """Returns what this processor has instructions for, as /proc/cpuinfo names it."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        return frozenset(next(line for line in lines if line.startswith("flags")).split())
    except (OSError, StopIteration):  # not Linux: what PyTorch has seen
        capability = torch.backends.cpu.get_cpu_capability()
        return frozenset({"AVX512": _AVX512, "AVX2": _AVX2}.get(capability, ()))


@click.command()
@click.argument("folder", type=click.Path(file_okay=False, path_type=Path), default=BUILT_AHEAD)
def main(folder: Path) -> None:
    """Builds the kernels of all variants ahead of time into FOLDER, by default the one looked into first."""
    if not _is_x86():  # no error, so that an image for other processors can be built with the same commands
        click.echo(
            f"nothing to build for {platform.machine()}: models run through PyTorch's operators", err=True
        )
        return
    try:
        for file in build_ahead(folder):
            click.echo(file)
    except DeviceError as error:
        raise click.ClickException(str(error)) from None


if __name__ == "__main__":
    main()
