from dragoman_server.queue import WaitingQueue


def drain(queue: WaitingQueue[str]) -> list[str]:
    return [queue.pop() for _ in range(len(queue))]


def drain_into_rows(queue: WaitingQueue[str], num_rows: dict[str, int]) -> list[str]:
    """Hands everything out; an item's first letter is its caller, and what it takes is in ``num_rows``."""
    order = []
    while queue:
        order.append(item := queue.pop())
        queue.charge(ord(item[0]), num_rows[item[0]])
    return order


def lettered(**counts: int) -> WaitingQueue[str]:
    queue = WaitingQueue[str]()
    for letter, count in counts.items():
        queue.add(ord(letter), [f"{letter}{i}" for i in range(1, count + 1)])
    return queue


def test_a_callers_own_items_leave_in_their_order():
    assert drain(lettered(a=3)) == ["a1", "a2", "a3"]


def test_callers_of_like_sentences_take_turns():
    order = drain_into_rows(lettered(a=4, b=2, c=1), {"a": 1, "b": 1, "c": 1})
    assert order == ["a1", "b1", "c1", "a2", "b2", "a3", "a4"]


def test_turns_are_counted_in_rows():
    order = drain_into_rows(lettered(a=2, b=9), {"a": 4, "b": 1})
    assert order == ["a1", "b1", "b2", "b3", "b4", "a2", "b5", "b6", "b7", "b8", "b9"]


def test_who_has_no_rows_comes_before_who_has_some():
    queue = lettered(a=900)
    for _ in range(5):
        queue.pop()
        queue.charge(ord("a"), 1)
    queue.add(ord("b"), ["b1"])
    assert queue.pop() == "b1"


def test_rows_that_are_given_back_no_longer_count():
    queue = lettered(a=3)
    queue.pop()
    queue.charge(ord("a"), 8)
    queue.add(ord("b"), ["b1", "b2"])
    queue.pop()
    queue.charge(ord("b"), 1)
    assert queue.peek() == "b2"
    queue.charge(ord("a"), -8)
    assert queue.peek() == "a2"


def test_rows_are_remembered_while_nothing_waits():
    queue = lettered(a=1)
    queue.pop()
    queue.charge(ord("a"), 8)
    queue.add(ord("a"), ["a2"])
    queue.add(ord("b"), ["b1"])
    assert queue.pop() == "b1"


def test_more_items_of_a_caller_come_behind_its_first():
    queue = lettered(a=2)
    queue.add(ord("a"), ["a3"])
    assert queue.num_callers == 1
    assert drain(queue) == ["a1", "a2", "a3"]


def test_removed_items_are_forgotten_and_no_others():
    queue = lettered(a=3, b=1)
    assert queue.remove(ord("a"), lambda item: item != "a2") == ["a1", "a3"]
    assert queue.remove(ord("c"), lambda item: True) == []
    assert len(queue) == 2
    assert drain(queue) == ["a2", "b1"]
    assert queue.num_callers == 0


def test_a_caller_that_is_removed_whole_leaves_nothing_behind():
    queue = lettered(a=3)
    queue.pop()
    queue.charge(ord("a"), 2)
    assert queue.remove(ord("a"), lambda item: True) == ["a2", "a3"]
    queue.charge(ord("a"), -2)
    assert not queue._waiting
    assert not queue._rows
    assert not queue._by_rows


def test_what_is_seen_first_is_what_leaves_first():
    queue = lettered(a=2, b=1)
    for _ in range(3):
        assert queue.peek() == queue.pop()
