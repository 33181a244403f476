"""Builds the kernels for this processor, once, where there is a compiler.

The result is kept in the user's cache (``$XDG_CACHE_HOME/dragoman``, else ``~/.cache/dragoman``) under a name that says what it
was built from, by and for.
"""

from __future__ import annotations

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
    if platform.machine() not in ("x86_64", "AMD64"):
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
    folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "dragoman"
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        if not (folder / name).exists():
            with tempfile.TemporaryDirectory(dir=folder) as there:
                _build(compiler, Path(there) / name)
                (Path(there) / name).replace(folder / name)  # whole or not at all, whoever else builds
        return ctypes.CDLL(str(folder / name))
    except OSError:  # a home that can't be written to, or holds a half of something
        with tempfile.TemporaryDirectory() as there:
            _build(compiler, Path(there) / name)
            return ctypes.CDLL(str(Path(there) / name))


def _build(compiler: str, target: Path) -> None:
    subprocess.run(
        [compiler, *FLAGS, "-o", str(target), str(SOURCE), "-lm"],
        check=True, capture_output=True, text=True, timeout=_BUILD_SECONDS,
    )  # fmt: skip


def _key(compiler: str) -> str:
    version = subprocess.run(
        [compiler, "--version"], check=True, capture_output=True, text=True, timeout=_BUILD_SECONDS
    ).stdout
    parts = (SOURCE.read_text(encoding="utf-8"), " ".join(FLAGS), version, _processor())
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]


def _processor() -> str:
    """Returns what tells processors apart that one build doesn't fit."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor()
    return "".join(sorted({line for line in lines if line.startswith(("model name", "flags"))}))
