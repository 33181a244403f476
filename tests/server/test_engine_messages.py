"""Messages between two processes: whole, in order, and nothing lost."""

from __future__ import annotations

import asyncio
import pickle
import socket
from collections.abc import Callable

import pytest

from dragoman_server.engine_messages import MessageSocket, QueueBoard
from dragoman_server.errors import (
    CallError,
    CancelledError,
    DeadlineError,
    DeadlineUnreachableError,
    DrainingError,
    EngineGoneError,
    EngineHungError,
    FieldViolation,
    InternalError,
    InvalidArgumentError,
    NotFoundError,
    QueueFullError,
)
from dragoman_server.room import QueueState
from dragoman_server.statuses import ANSWERS, status_message

ERRORS = [
    InvalidArgumentError(violations=[FieldViolation("texts[0]", "too long")]),
    NotFoundError("no such model"),
    QueueFullError("the queue is full", retry_seconds=2.5),
    DeadlineUnreachableError(3.0, 1.0),
    EngineHungError("en-de", 61.0),
    EngineGoneError("en-de"),
    DrainingError(),
    DeadlineError(),
    CancelledError(),
    InternalError(),
]


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_an_error_tells_a_caller_the_same_on_the_other_side(error: CallError):
    over_there = pickle.loads(pickle.dumps(error))
    assert type(over_there) is type(error)
    assert vars(over_there) == vars(error)
    assert str(over_there) == str(error)
    assert status_message(over_there, "id").message == status_message(error, "id").message


def test_every_kind_of_error_was_tried():
    assert {type(error) for error in ERRORS} == {
        kind for kind in ANSWERS if kind.__name__ != "UnsupportedError"
    }


Pair = tuple[MessageSocket, list[object], MessageSocket, list[object], asyncio.Event]


def opened() -> Pair:
    ends = socket.socketpair()
    closed = asyncio.Event()
    left, right = map(MessageSocket, ends)
    to_left: list[object] = []
    to_right: list[object] = []
    left.open(to_left.append, closed.set)
    right.open(to_right.append, closed.set)
    return left, to_left, right, to_right, closed


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not condition():  # noqa: ASYNC110 (nothing tells of a list that grows)
            await asyncio.sleep(0)


async def test_messages_of_any_size_come_whole_and_in_order_both_ways():
    left, to_left, right, to_right, _ = opened()
    sent = [b"x" * size for size in (0, 1, 70_000, 3_000_000, 5, 1_000_000)]
    for message in sent:
        left.send(message)
        right.send((message, "back"))
    await until(lambda: len(to_left) == len(to_right) == len(sent))
    assert to_right == sent
    assert to_left == [(message, "back") for message in sent]
    left.close()
    right.close()


async def test_the_other_end_learns_of_a_close_after_the_last_message():
    left, _, right, to_right, closed = opened()
    left.send("last")
    await until(lambda: to_right == ["last"])
    left.close()
    async with asyncio.timeout(10):
        await closed.wait()
    right.send("into the void")
    left.send("likewise")
    await asyncio.sleep(0)
    assert to_right == ["last"]


def test_what_is_on_its_way_counts_among_those_that_wait():
    board = QueueBoard()
    assert board.read(0) == QueueState(0, False)
    assert board.read(3).num_waiting == 3
    board.count_taken(3)
    board.publish(QueueState(2, True, 0.5, 1.5, 0.1))
    assert board.read(3) == QueueState(2, True, 0.5, 1.5, 0.1)
    assert board.read(7) == QueueState(6, True, 0.5, 1.5, 0.1)


async def test_the_other_end_learns_of_a_close_although_another_process_holds_this_one():
    left, _, _, _, closed = opened()
    with left._end.dup():  # as what is forked later does
        left.close()
        async with asyncio.timeout(10):
            await closed.wait()


async def test_a_message_that_fails_whoever_takes_it_is_taken_once_and_keeps_none_from_the_others():
    near, far = map(MessageSocket, socket.socketpair())
    taken: list[object] = []
    failures: list[dict[str, object]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: failures.append(context))

    def take(message: object) -> None:
        taken.append(message)
        if message == "bad":
            raise RuntimeError("of the test's making")

    near.open(taken.append, lambda: None)
    far.open(take, lambda: None)
    for message in ("good", "bad", "better", "best"):
        near.send(message)
    await until(lambda: len(taken) >= 4)
    assert taken == ["good", "bad", "better", "best"]
    assert [str(failure["exception"]) for failure in failures] == ["of the test's making"]
    near.close()
    far.close()
