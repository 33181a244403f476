"""The files that a recipe names: from the cache, a mirror folder or the network, and only ever the right ones."""

import hashlib
import os
import tempfile
import urllib.error
import urllib.request
import zipfile
from collections.abc import Callable
from http.client import HTTPException
from pathlib import Path

from dragoman_model.errors import DownloadError
from dragoman_model.training.recipe import Download

MIRROR_VARIABLE = "DRAGOMAN_DATA_MIRROR"
CACHE_VARIABLE = "DRAGOMAN_CACHE"

_CHUNK_BYTES = 1 << 16
_TIMEOUT_SECONDS = 30.0  # for one read, not for the whole file

Progress = Callable[[Download, int], None]
"""Called with the download and the bytes that have come so far."""


def default_cache_dir() -> Path:
    """Returns where downloads are kept: ``$DRAGOMAN_CACHE``, or ``dragoman`` in the user's cache folder."""
    if chosen := os.environ.get(CACHE_VARIABLE):
        return Path(chosen)
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "dragoman"


def default_mirror() -> Path | None:
    """Returns the folder named by ``$DRAGOMAN_DATA_MIRROR``, if any."""
    chosen = os.environ.get(MIRROR_VARIABLE)
    return Path(chosen) if chosen else None


def fetch(
    download: Download,
    cache_dir: Path | None = None,
    mirror: Path | None = None,
    on_progress: Progress | None = None,
) -> Path:
    """Returns the path of a file whose SHA-256 is the recipe's, fetching it if need be.

    The cache is looked in first, then the mirror (whose file is used where it lies), then the network.

    Args:
        download: Which file.
        cache_dir: Where downloads are kept; None: ``default_cache_dir()``.
        mirror: A folder that may hold the file anywhere below it; None: ``default_mirror()``.
        on_progress: Told about the bytes as they come.

    Raises:
        DownloadError: The file can't be had, or what came is another file.
    """
    cache_dir = cache_dir or default_cache_dir()
    mirror = mirror or default_mirror()
    # The hash is in the name so that two recipes may use two versions of a file.
    cached = cache_dir / f"{download.sha256[:8]}-{download.file_name}"
    if cached.is_file() and _sha256(cached) == download.sha256:
        return cached
    candidates = _in_mirror(download, mirror) if mirror else []
    for candidate in candidates:
        if _sha256(candidate) == download.sha256:
            return candidate
    hint = f"put the file into a folder and name that folder in {MIRROR_VARIABLE}"
    if candidates:
        hint += f" ({', '.join(map(str, candidates))} was passed over: its SHA-256 is another)"
    try:
        cache_dir.mkdir(parents=True, exist_ok=True)
        handle, partial_name = tempfile.mkstemp(dir=cache_dir, prefix=f".{download.file_name}.")
    except OSError as error:
        raise DownloadError(
            f"{download.file_name}: the cache folder {cache_dir} cannot be written: {error.strerror}; "
            f"set {CACHE_VARIABLE} to another folder"
        ) from error
    partial = Path(partial_name)
    try:
        with os.fdopen(handle, "wb") as file:
            seen = _receive(download, file.write, on_progress, hint)
            file.flush()
            os.fsync(file.fileno())
        if seen != download.sha256:
            raise DownloadError(
                f"{download.file_name}: {download.url} is not the file that the recipe means: its SHA-256 is {seen}, "
                f"expected {download.sha256}; nothing was kept. If its owner changed it, correct the recipe or {hint}"
            )
        partial.replace(cached)
    finally:
        partial.unlink(missing_ok=True)
    return cached


def read_text(download: Download, path: Path) -> str:
    """Returns the text of a fetched file, or of the member of the zip archive that the recipe names.

    Raises:
        DownloadError: The file isn't such an archive, has no such member, or isn't UTF-8.
    """
    try:
        if not download.member:
            return path.read_bytes().decode()
        with zipfile.ZipFile(path) as archive:
            return archive.read(download.member).decode()
    except KeyError as error:
        raise DownloadError(
            f"{path}: holds no file {download.member!r}; correct `member` in the recipe"
        ) from error
    except zipfile.BadZipFile as error:
        raise DownloadError(f"{path}: is not a zip archive, so `member` cannot be read from it") from error
    except UnicodeDecodeError as error:
        raise DownloadError(f"{path}: is not UTF-8 text (byte {error.start})") from error


def _in_mirror(download: Download, mirror: Path) -> list[Path]:
    """Returns the files below the mirror that have one of the download's names."""
    names = {download.file_name, download.mirror_name} - {""}
    return sorted(
        Path(folder, name) for folder, _, files in os.walk(mirror) for name in names.intersection(files)
    )


def _receive(
    download: Download, write: Callable[[bytes], object], on_progress: Progress | None, hint: str
) -> str:
    """Writes the file as it comes and returns its SHA-256."""
    digest = hashlib.sha256()
    num_bytes = 0
    try:
        # The recipe allows no other scheme than https, but for the loopback interface.
        with urllib.request.urlopen(download.url, timeout=_TIMEOUT_SECONDS) as response:
            while chunk := response.read(_CHUNK_BYTES):
                num_bytes += len(chunk)
                if num_bytes > download.size_bytes:
                    break
                write(chunk)
                digest.update(chunk)
                if on_progress:
                    on_progress(download, num_bytes)
    except (OSError, HTTPException) as error:  # URLError, time-outs and broken connections are OSErrors
        raise DownloadError(
            f"{download.file_name}: cannot be downloaded from {download.url} "
            f"({num_bytes:,} of {download.size_bytes:,} bytes came): {error}; check the network, or {hint}"
        ) from error
    if num_bytes > download.size_bytes:
        raise DownloadError(
            f"{download.file_name}: {download.url} is longer than the {download.size_bytes:,} bytes that the recipe "
            f"expects, so it is another file; nothing was kept. Correct the recipe or {hint}"
        )
    if num_bytes < download.size_bytes:
        raise DownloadError(
            f"{download.file_name}: {download.url} ended after {num_bytes:,} of {download.size_bytes:,} bytes; "
            f"run again, or {hint}"
        )
    return digest.hexdigest()


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
