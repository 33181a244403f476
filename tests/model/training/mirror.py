"""A mirror folder with the files of a recipe, so that a test downloads nothing."""

import hashlib
from collections.abc import Mapping
from pathlib import Path

from dragoman_model.training.recipe import Download


def write_mirror(folder: Path, texts: Mapping[str, str]) -> tuple[Download, ...]:
    """Writes each text as a file and returns the downloads that mean them, under the same names."""
    folder.mkdir()
    downloads = []
    for name, text in texts.items():
        content = text.encode()
        (folder / f"{name}.txt").write_bytes(content)
        downloads.append(
            Download(
                name=name,
                url=f"https://example.org/{name}.txt",
                size_bytes=len(content),
                sha256=hashlib.sha256(content).hexdigest(),
            )
        )
    return tuple(downloads)
