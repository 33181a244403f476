import asyncio
import io
import os
import threading
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman_client.lines import MAX_LINE_BYTES, Line, LineReader, read_ahead


def lines_of(data: bytes, skip: int = 0) -> list[Line]:
    return [line for part in LineReader(io.BytesIO(data), skip=skip).read() for line in part]


def texts_of(data: bytes) -> list[str]:
    return [line.text for line in lines_of(data)]


@pytest.mark.parametrize(
    ("data", "texts"),
    [
        (b"", []),
        (b"\n", [""]),
        (b"a", ["a"]),
        (b"a\n", ["a"]),
        (b"a\n\n\nb", ["a", "", "", "b"]),
        (b"a\r\nb\r\n", ["a", "b"]),
        (b"a\r\r\nb\rc", ["a\r", "b\rc"]),
        (b"a\r", ["a\r"]),
        (b"\xef\xbb\xbfa\n\xef\xbb\xbfb\n", ["a", "\ufeffb"]),
        (b"\xef\xbb\xbf", [""]),
        (
            "a\u2028b\u2029c\x85d\x0be\x0cf\x1cg\x1dh\x1ei\n".encode(),
            ["a\u2028b\u2029c\x85d\x0be\x0cf\x1cg\x1dh\x1ei"],
        ),
        (b"a\0b\n\0\n", ["a\0b", "\0"]),
        (b"   \t\n", ["   \t"]),
        ("🙂\n你好\n".encode(), ["🙂", "你好"]),
    ],
)
def test_lines_end_at_lf_and_crlf_and_nowhere_else(data: bytes, texts: list[str]) -> None:
    lines = lines_of(data)

    assert [line.text for line in lines] == texts
    assert [line.number for line in lines] == list(range(1, len(texts) + 1))
    assert not lines or lines[-1].end_bytes == len(data)


@given(st.lists(st.text(st.characters(exclude_characters="\n", exclude_categories=["Cs"]))))
def test_whatever_lines_hold_they_come_out_as_they_went_in(lines: list[str]) -> None:
    data = b"\xef\xbb\xbf" + "".join(f"{line}\r\n" for line in lines).encode()

    assert texts_of(data) == (lines or [""])


@given(st.binary(max_size=200), st.integers(0, 5))
def test_any_bytes_give_a_line_for_a_line_and_bad_ones_say_why(data: bytes, skip: int) -> None:
    expected = data.split(b"\n")[: None if not data.endswith(b"\n") and data else -1]

    lines = lines_of(data, skip)

    assert [line.number for line in lines] == list(range(skip + 1, len(expected) + 1))
    for line in lines:
        raw = expected[line.number - 1]
        try:
            raw.decode()
        except UnicodeDecodeError:
            assert line.text == ""
            assert line.error
            assert "not UTF-8" in line.error
        else:
            assert line.error is None
            assert line.text.encode() in raw


def test_surrogates_that_were_written_as_utf8_are_no_text() -> None:
    fine, bad = lines_of(b"fine\n\xed\xa0\x80\n")

    assert (fine.text, fine.error) == ("fine", None)
    assert bad.error == ("not UTF-8: byte 1 of the line is 0xed; convert the file, for example with iconv")


def test_line_that_is_far_too_long_keeps_its_place_and_takes_no_memory() -> None:
    class Long(io.RawIOBase):
        left = 40 * MAX_LINE_BYTES

        def read(self, size: int = -1) -> bytes:
            self.left -= size
            return b"x" * size if self.left >= 0 else b"\nlast" if self.left == -size else b""

    tracemalloc.start()
    long, last = [line for part in LineReader(Long()).read() for line in part]  # type: ignore[arg-type]
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert (long.number, long.text) == (1, "")
    assert long.error == "longer than 1,048,576 bytes; split it"
    assert (last.number, last.text, last.end_bytes) == (2, "last", 40 * MAX_LINE_BYTES + 5)
    assert peak < 5 * MAX_LINE_BYTES


@pytest.mark.parametrize(("length", "fits"), [(MAX_LINE_BYTES, True), (MAX_LINE_BYTES + 1, False)])
def test_bound_of_a_line_is_exact(length: int, fits: bool) -> None:
    first, second = lines_of(b"x" * length + b"\ny")

    assert (first.error is None, len(first.text)) == (fits, length if fits else 0)
    assert second.text == "y"


def test_line_is_handed_over_while_the_next_is_still_being_typed() -> None:
    read_end, write_end = os.pipe()
    with os.fdopen(read_end, "rb") as stream, os.fdopen(write_end, "wb", buffering=0) as keyboard:
        reader = LineReader(stream).read()
        keyboard.write(b"first\nsec")
        assert [line.text for line in next(reader)] == ["first"]
        keyboard.write(b"ond\n")
        assert [line.text for line in next(reader)] == ["second"]


async def test_lines_are_read_only_a_little_ahead() -> None:
    class Endless(io.RawIOBase):
        given = 0

        def read(self, size: int = -1) -> bytes:
            self.given += 1
            return b"line\n" * 100

    endless = Endless()
    number = 0
    async for line in read_ahead(LineReader(endless)):  # type: ignore[arg-type]
        number += 1
        assert line.number == number
        # Being handed over, in the queue, waiting to be put there.
        assert endless.given <= number // 100 + 3
        if number == 1000:
            break


async def test_error_of_the_input_comes_after_what_preceded_it() -> None:
    class Broken(io.RawIOBase):
        parts = iter([b"a\nb\n"])

        def read(self, size: int = -1) -> bytes:
            for part in self.parts:
                return part
            raise OSError("the disk is gone")

    lines = read_ahead(LineReader(Broken()))  # type: ignore[arg-type]

    assert [(await anext(lines)).text, (await anext(lines)).text] == ["a", "b"]
    with pytest.raises(OSError, match="disk is gone"):
        await anext(lines)


async def test_line_that_is_waited_for_keeps_no_other_task_waiting() -> None:
    read_end, write_end = os.pipe()
    with os.fdopen(read_end, "rb") as stream:
        lines = read_ahead(LineReader(stream))
        waiting = asyncio.ensure_future(anext(lines))
        await asyncio.sleep(0)
        assert not waiting.done()
        os.write(write_end, b"now\n")
        assert (await waiting).text == "now"
        os.close(write_end)
        assert [line async for line in lines] == []


def test_reading_thread_is_a_daemon() -> None:
    before = threading.enumerate()

    async def begin() -> list[threading.Thread]:
        read_end, write_end = os.pipe()
        with os.fdopen(read_end, "rb") as stream:
            waiting = asyncio.ensure_future(anext(read_ahead(LineReader(stream))))
            await asyncio.sleep(0)
            threads = [thread for thread in threading.enumerate() if thread not in before]
            os.close(write_end)
            with pytest.raises(StopAsyncIteration):
                await waiting
        return threads

    assert [thread.daemon for thread in asyncio.run(begin())] == [True]
