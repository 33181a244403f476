import io
import os
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman_client.lines import MAX_LINE_BYTES, MAX_LINES_PER_WINDOW, LineError, LineReader, Window
from dragoman_client.requests import MAX_CHARACTERS_PER_CALL


def windows_of(data: bytes) -> list[Window]:
    return list(LineReader(io.BytesIO(data)).windows())


def texts_of(data: bytes) -> list[str]:
    return [text for window in windows_of(data) for text in window.texts]


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
    assert texts_of(data) == texts


@given(st.lists(st.text(st.characters(exclude_characters="\n", exclude_categories=["Cs"]))))
def test_whatever_lines_hold_they_come_out_as_they_went_in(lines: list[str]) -> None:
    data = b"\xef\xbb\xbf" + "".join(f"{line}\r\n" for line in lines).encode()

    assert texts_of(data) == (lines or [""])


@given(st.binary(max_size=200))
def test_any_bytes_give_a_text_a_line_or_an_error_that_names_the_line(data: bytes) -> None:
    lines = data.split(b"\n")[: None if not data.endswith(b"\n") and data else -1]
    try:
        texts = texts_of(data)
    except LineError as error:
        number = int(str(error).split()[1])
        with pytest.raises(UnicodeDecodeError):
            lines[number - 1].decode()
    else:
        assert len(texts) == len(lines)


def test_windows_hold_so_many_lines_and_say_where_they_start_and_end() -> None:
    data = b"x\n" * (2 * MAX_LINES_PER_WINDOW + 3)

    windows = windows_of(data)

    assert [len(window.texts) for window in windows] == [MAX_LINES_PER_WINDOW, MAX_LINES_PER_WINDOW, 3]
    assert [window.first_line for window in windows] == [
        1,
        1 + MAX_LINES_PER_WINDOW,
        1 + 2 * MAX_LINES_PER_WINDOW,
    ]
    assert windows[-1].end_bytes == len(data)


def test_windows_of_long_lines_hold_fewer() -> None:
    windows = windows_of((b"x" * (MAX_CHARACTERS_PER_CALL // 2) + b"\n") * 5)

    assert [len(window.texts) for window in windows] == [2, 2, 1]
    assert [window.first_line for window in windows] == [1, 3, 5]


def test_lines_before_a_bad_one_are_handed_over_first() -> None:
    reader = LineReader(io.BytesIO(b"fine\nalso fine\nb\xffd\nnever\n")).windows()

    assert next(reader).texts == ["fine", "also fine"]
    with pytest.raises(LineError, match="line 3 is not UTF-8: byte 2 of the line is 0xff"):
        next(reader)


def test_surrogates_that_were_written_as_utf8_are_refused() -> None:
    with pytest.raises(LineError, match="line 2 is not UTF-8"):
        texts_of(b"fine\n\xed\xa0\x80\n")


def test_file_without_line_ends_is_refused_before_it_fills_the_memory() -> None:
    class Endless(io.RawIOBase):
        given = 0

        def read(self, size: int = -1) -> bytes:
            self.given += size
            return b"x" * size

    endless = Endless()

    with pytest.raises(LineError, match="line 1 is longer than 1,048,576 bytes"):
        list(LineReader(endless).windows())  # type: ignore[arg-type]
    assert endless.given < 2 * MAX_LINE_BYTES


def test_line_is_handed_over_while_the_next_is_still_being_typed() -> None:
    read_end, write_end = os.pipe()
    with os.fdopen(read_end, "rb") as stream, os.fdopen(write_end, "wb", buffering=0) as keyboard:
        reader = LineReader(stream).windows()
        keyboard.write(b"first\nsec")
        assert next(reader).texts == ["first"]
        keyboard.write(b"ond\n")
        assert next(reader).texts == ["second"]


def test_pipe_that_is_full_of_lines_makes_full_windows() -> None:
    read_end, write_end = os.pipe()
    with os.fdopen(read_end, "rb") as stream, os.fdopen(write_end, "wb") as writer:
        feeding = threading.Thread(target=lambda: (writer.write(b"x\n" * 300), writer.close()))
        feeding.start()
        feeding.join()
        windows = list(LineReader(stream).windows())

    assert [len(window.texts) for window in windows] == [64, 64, 64, 64, 44]
