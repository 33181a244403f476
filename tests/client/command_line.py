"""Runs the command line in this process, with streams that a test can read."""

import io
import sys
from collections.abc import Callable
from dataclasses import dataclass
from unittest.mock import patch

from dragoman_client.__main__ import run


@dataclass(frozen=True)
class Result:
    exit_code: int
    stdout: bytes
    stderr: str

    @property
    def lines(self) -> list[str]:
        """Standard output's lines, which end at LF only."""
        assert self.stdout == b"" or self.stdout.endswith(b"\n")
        return self.stdout.decode().split("\n")[:-1]


Dragoman = Callable[..., Result]


def invoke(*arguments: str, stdin: bytes = b"") -> Result:
    output, errors = io.BytesIO(), io.BytesIO()
    with (
        patch.object(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin), encoding="utf-8")),
        patch.object(sys, "stdout", io.TextIOWrapper(output, encoding="utf-8", write_through=True)),
        patch.object(sys, "stderr", io.TextIOWrapper(errors, encoding="utf-8", write_through=True)),
    ):
        exit_code = run(list(arguments))
        return Result(exit_code, output.getvalue(), errors.getvalue().decode())
