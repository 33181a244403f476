"""Builds the kernels for this processor, once, where there is a compiler.

The result is kept in the user's cache (``$XDG_CACHE_HOME/dragoman/kernels``, else ``~/.cache/dragoman/kernels``) under a name that
says what it was built from, by and for. What is kept is run, so that it must be of this user's own making.
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

_log = logging.getLogger(__name__)

SOURCE = Path(__file__).parent / "kernels.c"
# Sums may be re-ordered, as vectors need, but no product may join a sum in one copy of a function and not in another. The processor's floating-point mode stays as it is, which -ffast-math would change
# for the whole process.
FLAGS = (
    "-O3", "-march=native", "-fassociative-math", "-fno-signed-zeros", "-fno-trapping-math", "-fno-math-errno",
    "-ffp-contract=off", "-fno-semantic-interposition", "-fPIC", "-shared",
)  # fmt: skip
_BUILD_SECONDS = 60  # it takes one or two


@functools.cache
def library() -> ctypes.CDLL | None:
    """Returns the kernels; None where they can't be had, with the reason in the log."""
    if os.name != "posix" or platform.machine() not in ("x86_64", "AMD64"):
        return None  # written for vectors of x86
    compiler = next(filter(None, map(shutil.which, (os.environ.get("CC") or "cc", "gcc", "clang"))), None)
    if compiler is None:
        _log.info("no C compiler here: int8 runs through PyTorch's operators, which takes longer")
        return None
    try:
        return _load(compiler)
    except (OSError, subprocess.SubprocessError) as error:
        said = getattr(error, "stderr", None) or error
        _log.warning("%s can't build the int8 kernels, PyTorch's operators serve instead: %s", compiler, said)
        return None


def _load(compiler: str) -> ctypes.CDLL:
    name = f"kernels-{_key(compiler)}.so"
    try:
        kept = _private_folder() / name
        with contextlib.suppress(OSError):  # none yet, or a half of one
            return _open(kept)
        with tempfile.TemporaryDirectory(dir=kept.parent) as there:
            _build(compiler, Path(there) / name)
            (Path(there) / name).replace(kept)  # whole or not at all, whoever else builds
        return _open(kept)
    except (
        OSError,
        subprocess.CalledProcessError,
    ):  # a home that can't be written to, is full or somebody else's
        with tempfile.TemporaryDirectory() as there:
            _build(compiler, Path(there) / name)
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
    return ctypes.CDLL(str(file))


def _check_is_private(path: Path) -> None:
    """Refuses what another user can have written: a cache may stand in a folder that all may write to."""
    status = path.lstat()
    if status.st_uid not in (os.geteuid(), 0) or status.st_mode & 0o022:
        raise PermissionError(f"{path}: others may write to it")


def _build(compiler: str, target: Path) -> None:
    _run([compiler, *FLAGS, "-o", str(target), str(SOURCE), "-lm"])
    target.chmod(0o700)


def _key(compiler: str) -> str:
    version = _run([compiler, "--version"])
    parts = (SOURCE.read_text(encoding="utf-8"), " ".join(FLAGS), version, _processor())
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]


def _run(command: list[str]) -> str:
    """Returns what a command prints, in whatever encoding."""
    return subprocess.run(
        command, check=True, capture_output=True, encoding="utf-8", errors="replace", timeout=_BUILD_SECONDS
    ).stdout


def _processor() -> str:
    """Returns what tells processors apart that one build doesn't fit."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor()
    return "".join(sorted({line for line in lines if line.startswith(("model name", "flags"))}))
