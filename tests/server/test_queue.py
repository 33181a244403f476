import pytest

from dragoman_server.errors import QueueFullError
from dragoman_server.queue import WaitingQueue


def drain(queue: WaitingQueue[str]) -> list[str]:
    return [queue.pop() for _ in range(len(queue))]


def test_a_calls_own_items_leave_in_their_order():
    queue = WaitingQueue[str](8)
    queue.add(1, ["a", "b", "c"])
    assert drain(queue) == ["a", "b", "c"]


def test_calls_take_turns():
    queue = WaitingQueue[str](16)
    queue.add(1, ["a1", "a2", "a3", "a4"])
    queue.add(2, ["b1", "b2"])
    queue.add(3, ["c1"])
    assert drain(queue) == ["a1", "b1", "c1", "a2", "b2", "a3", "a4"]


def test_an_interactive_call_waits_for_one_item_of_a_bulk_call_at_most():
    queue = WaitingQueue[str](1000)
    queue.add(1, [f"bulk {i}" for i in range(900)])
    queue.pop()
    queue.add(2, ["interactive"])
    assert "interactive" in [queue.pop(), queue.pop()]


def test_a_call_that_does_not_fit_is_refused_whole():
    queue = WaitingQueue[str](3)
    queue.add(1, ["a", "b"])
    with pytest.raises(QueueFullError, match="2 sentences wait, at most 3 may, 2 more don't fit"):
        queue.add(2, ["c", "d"])
    assert drain(queue) == ["a", "b"]


def test_room_is_checked_without_taking_it():
    queue = WaitingQueue[str](2)
    queue.check_room(2)
    queue.add(1, ["a", "b"])
    with pytest.raises(QueueFullError):
        queue.check_room(1)


def test_a_removed_call_gives_its_places_back():
    queue = WaitingQueue[str](3)
    queue.add(1, ["a", "b", "c"])
    assert queue.pop() == "a"
    assert queue.remove(1) == 2
    assert queue.remove(1) == 0
    queue.add(2, ["d", "e", "f"])
    assert drain(queue) == ["d", "e", "f"]


def test_what_is_seen_first_is_what_leaves_first():
    queue = WaitingQueue[str](8)
    queue.add(1, ["a1", "a2"])
    queue.add(2, ["b1"])
    for _ in range(3):
        assert queue.peek() == queue.pop()
