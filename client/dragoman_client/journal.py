"""What a long job leaves beside its output, so that it can be gone on with after any interruption.

The output itself says how far the job is: each line of the input has one line there, in order, so the ends of lines are
counted, and a line that was torn is done again. The journal says what else must be the same: the input, the options, the
model. It holds a JSON object a line, is written before the output it speaks of, and is removed when the job is done.
"""

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, BinaryIO, Self

_FORMAT = 1
_READ_BYTES = 1 << 20


class JournalError(Exception):
    """A job cannot be gone on with; the message says why and what to do."""


def journal_path(output_path: Path) -> Path:
    """Returns where the journal of an output lies: beside the file itself, whatever links lead there."""
    output_path = output_path.resolve()
    return output_path.with_name(output_path.name + ".journal")


def draft_path(path: Path) -> Path:
    """Returns where a journal is written before it takes its place."""
    return path.with_name(path.name + ".new")


def fingerprint(stream: BinaryIO) -> dict[str, Any]:
    """Returns what tells an input from others, and leaves the stream at its start."""
    digest = hashlib.sha256()
    num_bytes = 0
    stream.seek(0)
    while data := stream.read(_READ_BYTES):
        digest.update(data)
        num_bytes += len(data)
    stream.seek(0)
    return {"bytes": num_bytes, "sha256": digest.hexdigest()}


class Journal:
    """The journal of one output.

    Args:
        path: Where it lies.
        job: What must be the same when the job is gone on with: ``input`` and ``options``, as JSON has them.

    Attributes:
        model: Name, digest and precision of the model that translates; None until the first translation. The precision is
            empty where it is not known.
        failed_lines: Numbers of the lines that could not be translated.
        doubtful_lines: What was found doubtful about translations in earlier runs, by the numbers of their lines.
    """

    def __init__(self, path: Path, job: dict[str, Any]) -> None:
        self.path = path
        self._job = job
        self.model: tuple[str, str, str] | None = None
        self.failed_lines: set[int] = set()
        self.doubtful_lines: dict[int, tuple[str, ...]] = {}
        self._file: BinaryIO | None = None

    @classmethod
    def load(cls, path: Path, job: dict[str, Any], num_lines: int) -> Self:
        """Returns the journal that an interrupted job left.

        Args:
            path: Where it lies.
            job: What is to be gone on with.
            num_lines: Lines that the output holds; what the journal says of others is forgotten.

        Raises:
            FileNotFoundError: There is none.
            JournalError: It is no journal, or not of this job.
        """
        journal = cls(path, job)
        # What follows the last line end was torn.
        entries = [_parse(line, path) for line in path.read_bytes().split(b"\n")[:-1]]
        if not entries or entries[0].get("format") != _FORMAT:
            raise JournalError(f"{path} is no journal of this version; {_ANEW}")
        _compare(entries[0], job, path)
        for entry in entries[1:]:
            match entry:
                case {"model": str(name), "digest": str(digest)}:
                    journal.model = (name, digest, str(entry.get("precision", "")))
                case {"failed_line": int(number)}:
                    if number <= num_lines:
                        journal.failed_lines.add(number)
                case {"doubtful_line": int(number), "doubts": [*doubts]}:
                    if number <= num_lines:
                        journal.doubtful_lines[number] = tuple(map(str, doubts))
                case _:
                    raise JournalError(f"{path} was changed and can't be read: {json.dumps(entry)}; {_ANEW}")
        return journal

    def begin(self) -> None:
        """Writes what is known, in place of what was there.

        Raises:
            OSError: It cannot be written; from then on, nothing is.
        """
        temporary = draft_path(self.path)
        self._file = temporary.open("wb", buffering=0)
        try:
            self._write({"format": _FORMAT, **self._job})
            if self.model:
                self._write_model()
            for number in sorted(self.failed_lines):
                self._write({"failed_line": number})
            for number, doubts in sorted(self.doubtful_lines.items()):
                self.doubt(number, doubts)
            temporary.replace(self.path)
        except OSError:
            self._file.close()
            self._file = None
            temporary.unlink(missing_ok=True)
            raise

    def check_model(self, name: str, digest: str, precision: str = "") -> None:
        """Takes the model of a translation that is about to be written.

        Args:
            name: The model's.
            digest: The model's.
            precision: That it is served in; empty where that is not known, and then any will do.

        Raises:
            JournalError: It is not the one that the others are of, or in another precision.
        """
        if self.model is None:
            self.model = (name, digest, precision)
            self._write_model()
            return
        before, digest_before, precision_before = self.model
        if digest_before != digest:
            raise JournalError(
                f"the server translates with {name} ({digest[:12]}), but what is there is by "
                f"{before} ({digest_before[:12]}); serve that one, or {_ANEW}"
            )
        if precision and precision_before and precision != precision_before:
            raise JournalError(
                f"the server translates in {precision}, but what is there is in {precision_before}; serve that, or {_ANEW}"
            )
        if precision and not precision_before:  # from here on it is known
            self.model = (name, digest, precision)
            self._write_model()

    def _write_model(self) -> None:
        assert self.model
        name, digest, precision = self.model
        self._write({"model": name, "digest": digest, **({"precision": precision} if precision else {})})

    def fail(self, number: int) -> None:
        """Remembers that a line could not be translated, before its empty place is written."""
        self.failed_lines.add(number)
        self._write({"failed_line": number})

    def doubt(self, number: int, doubts: Sequence[str]) -> None:
        """Remembers for the next run what is doubtful about a line's translation, before that is written."""
        self._write({"doubtful_line": number, "doubts": doubts})

    def close(self, *, done: bool) -> None:
        """Removes the journal of a job that is done; leaves that of one that is not."""
        if self._file is not None:
            self._file.close()
            self._file = None
            if done:
                self.path.unlink(missing_ok=True)

    def _write(self, entry: dict[str, Any]) -> None:
        if self._file is not None:
            self._file.write(json.dumps(entry, ensure_ascii=False).encode() + b"\n")


_ANEW = "leave --resume off to start anew"


def _parse(line: bytes, path: Path) -> dict[str, Any]:
    try:
        entry = json.loads(line)
    except ValueError:
        entry = None
    if not isinstance(entry, dict):
        raise JournalError(f"{path} is no journal; {_ANEW}")
    return entry


def _compare(header: dict[str, Any], job: dict[str, Any], path: Path) -> None:
    """Refuses to go on with what is not the same job."""
    if header.get("input") != job["input"]:
        raise JournalError(f"the input is not what it was when {path} was begun; restore it, or {_ANEW}")
    before, now = header.get("options", {}), job["options"]
    changes = [
        f"{name} was {_shown(before, name)} and is {_shown(now, name)}"
        for name in sorted({*before, *now})
        if before.get(name) != now.get(name)
    ]
    if changes:
        raise JournalError(
            f"the options are not those that the job began with: {'; '.join(changes)}; give the same, or {_ANEW}"
        )


def _shown(options: dict[str, Any], name: str) -> str:
    return json.dumps(options[name], ensure_ascii=False) if name in options else "not given"


def count_lines(stream: BinaryIO) -> tuple[int, int]:
    """Returns how many lines a file holds, and how many bytes they take; what follows the last line end doesn't count."""
    num_lines = position = end = 0
    stream.seek(0)
    while data := stream.read(_READ_BYTES):
        if b"\n" in data:
            num_lines += data.count(b"\n")
            end = position + data.rindex(b"\n") + 1
        position += len(data)
    return num_lines, end


def lock(stream: BinaryIO, path: Path) -> None:
    """Keeps others from writing a file as long as it is open.

    Raises:
        JournalError: Another process writes it.
    """
    try:
        import fcntl  # noqa: PLC0415 - not on every system
    except ImportError:
        return
    try:
        fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise JournalError(f"{path} is being written by another process; wait for it, or end it") from None
    except OSError:  # a file system without locks
        return
