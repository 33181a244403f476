from __future__ import annotations

import fcntl
import io
import json
import logging
import mmap
import os
import pty
from collections.abc import Iterator
from typing import TextIO

import pytest
from grpc._cython import cygrpc

from dragoman_server.logs import describe_exception, log_event, set_up_logging


@pytest.fixture(autouse=True)
def restore_logging() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


def lines(log_format: str, level: str = "info") -> tuple[logging.Logger, io.StringIO]:
    stream = io.StringIO()
    set_up_logging(log_format, level, stream)
    return logging.getLogger("dragoman_server.test"), stream


def test_text_lines_hold_the_event_and_its_fields():
    logger, stream = lines("text")
    log_event(logger, logging.INFO, "call", method="TranslateText", seconds=0.25, model="", note="two words")
    (line,) = stream.getvalue().splitlines()
    assert line.endswith('INFO call method=TranslateText seconds=0.250000 model="" note="two words"')


def test_json_lines_are_json():
    logger, stream = lines("json")
    log_event(logger, logging.WARNING, "call", texts=3, request_id='a"b')
    record = json.loads(stream.getvalue())
    assert record["level"] == "warning"
    assert record["event"] == "call"
    assert record["texts"] == 3
    assert record["request_id"] == 'a"b'


@pytest.mark.parametrize("log_format", ["text", "json"])
def test_a_record_is_one_line_whatever_it_holds(log_format: str):
    logger, stream = lines(log_format)
    try:
        raise ValueError("a user's\ntext")
    except ValueError:
        logger.exception("first\nsecond")
    assert len(stream.getvalue().splitlines()) == 1
    assert "a user's" not in stream.getvalue()
    assert "ValueError" in stream.getvalue()


def test_lower_levels_are_left_out():
    logger, stream = lines("text", "warning")
    log_event(logger, logging.INFO, "call")
    assert stream.getvalue() == ""


def test_an_exception_is_described_by_type_and_place_only():
    try:
        raise KeyError("a user's text")
    except KeyError as error:
        description = describe_exception(error)
    assert description["exception"] == "KeyError"
    assert "test_logs.py" in description["at"]
    assert "a user's text" not in str(description)


def test_an_answer_whose_caller_is_gone_is_no_error():
    _, stream = lines("text")
    grpc_logger = logging.getLogger("grpc._cython.cygrpc")
    for said in ('Failed "execute_batch": (<an operation>,)', "Failed grpc_call_start_batch: 2"):
        try:
            raise cygrpc.ExecuteBatchError(said)
        except cygrpc.ExecuteBatchError:
            grpc_logger.exception("ExecuteBatchError raised in core by servicer method [%s]", said)
    (line,) = stream.getvalue().splitlines()
    assert "grpc_call_start_batch" in line


@pytest.fixture
def pipe() -> Iterator[tuple[int, TextIO]]:
    """A small pipe: what is read from, and what is written to as the server writes to standard error."""
    read_end, write_end = os.pipe()
    fcntl.fcntl(write_end, fcntl.F_SETPIPE_SZ, 4 * mmap.PAGESIZE)
    with os.fdopen(write_end, "w", buffering=1) as stream:
        yield read_end, stream
    os.close(read_end)


def test_a_log_that_nobody_reads_is_not_waited_for_and_says_later_what_it_lost(pipe: tuple[int, TextIO]):
    read_end, stream = pipe
    set_up_logging("json", "info", stream)
    logger = logging.getLogger("dragoman_server.test")
    for number in range(1000):  # far more than the pipe holds
        log_event(logger, logging.INFO, "call", number=number)
    first = os.read(read_end, 1 << 20)
    log_event(logger, logging.INFO, "call", number=1000)
    log_event(logger, logging.INFO, "call", number=1001)
    kept = [json.loads(line) for line in first.splitlines()]
    told, *after = [json.loads(line) for line in os.read(read_end, 1 << 20).splitlines()]
    assert [line["number"] for line in kept] == list(range(len(kept)))
    assert 0 < len(kept) < 1000
    assert (told["level"], told["event"], told["count"]) == ("warning", "log lines lost", 1000 - len(kept))
    assert [line["number"] for line in after] == [1000, 1001]


def test_a_line_that_is_longer_than_what_a_pipe_has_room_for_is_not_waited_for(pipe: tuple[int, TextIO]):
    read_end, stream = pipe
    set_up_logging("json", "info", stream)
    logger = logging.getLogger("dragoman_server.test")
    for number in range(20):
        log_event(logger, logging.INFO, "call", number=number, ids="i" * 5000)
    first = os.read(read_end, 1 << 20).splitlines()[0]
    assert json.loads(first)["number"] == 0


def test_a_terminal_that_nobody_reads_is_not_waited_for():
    near_end, far_end = pty.openpty()
    with os.fdopen(near_end, "rb", buffering=0) as screen, os.fdopen(far_end, "w", buffering=1) as stream:
        set_up_logging("json", "info", stream)
        logger = logging.getLogger("dragoman_server.test")
        for number in range(1000):  # far more than it holds
            log_event(logger, logging.INFO, "call", number=number)
        first = json.loads(screen.read(1 << 20).splitlines()[0])
    assert first["number"] == 0
