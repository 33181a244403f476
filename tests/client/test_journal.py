import io
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dragoman_client.journal import Journal, JournalError, count_lines, fingerprint, journal_path, lock

JOB = {"input": fingerprint(io.BytesIO(b"a\nb\n")), "options": {"--beam-size": 4, "--split": "sentences"}}


def job_with(**options: Any) -> dict[str, Any]:
    return {**JOB, "options": {**JOB["options"], **options}}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "out.txt.journal"


def begun(path: Path) -> Journal:
    journal = Journal(path, JOB)
    journal.begin()
    return journal


def test_journal_tells_a_later_run_what_the_first_one_saw(path: Path) -> None:
    journal = begun(path)
    journal.check_model("en-de", "ab")
    journal.check_model("en-de", "ab")
    for number in (3, 7):
        journal.fail(number)
    journal.close(done=False)

    later = Journal.load(path, JOB, num_lines=5)

    assert later.model == ("en-de", "ab", "")
    assert later.failed_lines == {3}  # the seventh is not in the output: it will be done again


def test_journal_tells_every_later_run_what_was_doubtful(path: Path) -> None:
    journal = begun(path)
    for number in (2, 4):
        journal.doubt(number, ("cut", "repetition"))
    journal.close(done=False)

    later = Journal.load(path, JOB, num_lines=3)  # the fourth is not in the output
    later.begin()
    later.doubt(4, ("copy",))
    later.close(done=False)

    assert Journal.load(path, JOB, num_lines=9).doubtful_lines == {2: ("cut", "repetition"), 4: ("copy",)}


def test_later_run_writes_on_where_the_first_one_was_torn(path: Path) -> None:
    journal = begun(path)
    journal.fail(1)
    journal.close(done=False)
    path.write_bytes(path.read_bytes() + b'{"failed_li')

    again = Journal.load(path, JOB, num_lines=2)
    again.begin()
    again.fail(2)
    again.close(done=False)

    assert Journal.load(path, JOB, num_lines=2).failed_lines == {1, 2}
    assert [entry.name for entry in path.parent.iterdir()] == [path.name]


def test_journal_of_a_job_that_is_done_is_removed(path: Path) -> None:
    begun(path).close(done=True)

    assert not path.exists()
    with pytest.raises(FileNotFoundError):
        Journal.load(path, JOB, num_lines=0)


@pytest.mark.parametrize(
    ("job", "message"),
    [
        ({**JOB, "input": fingerprint(io.BytesIO(b"a\nc\n"))}, "the input is not what it was"),
        ({**JOB, "input": fingerprint(io.BytesIO(b"a\nb\nc\n"))}, "the input is not what it was"),
        (job_with(**{"--beam-size": 1}), "--beam-size was 4 and is 1"),
        (job_with(**{"--model": "en-fr"}), '--model was not given and is "en-fr"'),
        ({**JOB, "options": {"--split": "sentences"}}, "--beam-size was 4 and is not given"),
    ],
)
def test_what_is_not_the_same_job_is_refused_by_what_changed(
    path: Path, job: dict[str, Any], message: str
) -> None:
    begun(path).close(done=False)

    with pytest.raises(JournalError, match=message) as caught:
        Journal.load(path, job, num_lines=0)
    assert "leave --resume off to start anew" in str(caught.value)


def test_another_model_is_refused(path: Path) -> None:
    journal = begun(path)
    journal.check_model("en-de", "ab")

    with pytest.raises(JournalError, match=r"en-de \(cd\).* by en-de \(ab\)"):
        journal.check_model("en-de", "cd")


@pytest.mark.parametrize(
    ("precision", "is_refused"), [("int8", False), ("", False), ("float32", True)], ids=str
)
def test_another_precision_of_the_model_is_refused(path: Path, precision: str, is_refused: bool) -> None:
    journal = begun(path)
    journal.check_model("en-de", "ab", "int8")
    journal.close(done=False)

    later = Journal.load(path, JOB, num_lines=1)
    if is_refused:
        with pytest.raises(JournalError, match=r"in float32, but what is there is in int8; serve that"):
            later.check_model("en-de", "ab", precision)
    else:
        later.check_model("en-de", "ab", precision)


def test_a_precision_that_was_not_known_is_kept_once_it_is(path: Path) -> None:
    journal = begun(path)
    journal.check_model("en-de", "ab")
    journal.check_model("en-de", "ab", "int8")
    with pytest.raises(JournalError, match="in float32, but what is there is in int8"):
        journal.check_model("en-de", "ab", "float32")
    journal.close(done=False)
    assert Journal.load(path, JOB, num_lines=1).model == ("en-de", "ab", "int8")


@pytest.mark.parametrize(
    "entry",
    [
        '{"model": "en-de"}',
        '{"model": 1, "digest": "ab"}',
        '{"failed_line": "1"}',
        '{"doubtful_line": 1}',
        "{}",
    ],
)
def test_journal_that_was_changed_by_hand_is_refused_by_the_line_at_fault(path: Path, entry: str) -> None:
    begun(path).close(done=False)
    path.write_text(path.read_text() + entry + "\n")

    with pytest.raises(JournalError) as caught:
        Journal.load(path, JOB, num_lines=1)
    assert entry in str(caught.value)
    assert "leave --resume off" in str(caught.value)


@pytest.mark.parametrize("data", [b"", b"{}\n", b"[]\n", b"{", b"no\n", b"\xff\n", b'{"format": 99}\n'])
def test_what_is_no_journal_is_refused(path: Path, data: bytes) -> None:
    path.write_bytes(data)

    with pytest.raises(JournalError, match="is no journal"):
        Journal.load(path, JOB, num_lines=0)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=40)
@given(st.data())
def test_journal_torn_anywhere_after_its_first_line_can_be_read(path: Path, data: st.DataObject) -> None:
    journal = begun(path)
    journal.check_model("en-de", "ab" * 32, "int8")
    for number in range(1, 9):
        journal.fail(number)
    journal.close(done=False)
    whole = path.read_bytes()
    cut = data.draw(st.integers(whole.index(b"\n") + 1, len(whole)))
    path.write_bytes(whole[:cut])

    loaded = Journal.load(path, JOB, num_lines=100)

    num_entries = whole[:cut].count(b"\n") - 1  # besides the header
    assert loaded.model == (("en-de", "ab" * 32, "int8") if num_entries else None)
    assert loaded.failed_lines == set(range(1, num_entries))


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"", (0, 0)),
        (b"a", (0, 0)),
        (b"a\n", (1, 2)),
        (b"a\nb", (1, 2)),
        (b"\n\n\nx", (3, 3)),
        (b"\r\n", (1, 2)),
    ],
)
def test_lines_are_counted_up_to_the_last_line_end(data: bytes, expected: tuple[int, int]) -> None:
    assert count_lines(io.BytesIO(data)) == expected


def test_lines_of_a_large_file_are_counted_across_its_parts() -> None:
    data = (b"x" * 99 + b"\n") * 30_000 + b"torn"

    assert count_lines(io.BytesIO(data)) == (30_000, 3_000_000)


def test_journal_lies_beside_the_file_itself(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "out").touch()
    (tmp_path / "link").symlink_to(tmp_path / "real" / "out")

    assert journal_path(tmp_path / "link") == (tmp_path / "real" / "out.journal").resolve()


def test_file_that_is_being_written_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "out"
    with path.open("wb") as first, path.open("r+b") as second:
        lock(first, path)
        with pytest.raises(JournalError, match="being written by another process"):
            lock(second, path)
        first.close()
        lock(second, path)
