from dragoman_server.queue import WaitingQueue


def drain(queue: WaitingQueue[str]) -> list[str]:
    return [queue.pop() for _ in range(len(queue))]


def lettered(**counts: int) -> WaitingQueue[str]:
    """Returns a queue with one call of each letter, of so many items, a1, a2 and so on."""
    queue = WaitingQueue[str]()
    for letter, count in counts.items():
        queue.add(ord(letter), [f"{letter}{i}" for i in range(1, count + 1)])
    return queue


def streams(widths: dict[str, int], count: int) -> WaitingQueue[str]:
    """Returns a queue with so many items of each letter, each added by itself and of the letter's width."""
    queue = WaitingQueue[str](lambda item: widths[item[0]])
    for letter in widths:
        for i in range(1, count + 1):
            queue.add(ord(letter), [f"{letter}{i}"])
    return queue


def is_idle(queue: WaitingQueue[str]) -> bool:
    held = (queue._jobs, queue._line, queue._ends, queue._sharing, queue._now, queue._num_items)
    return queue._seen is None and not any(held)


def test_a_callers_own_items_leave_in_their_order():
    assert drain(lettered(a=3)) == ["a1", "a2", "a3"]


def test_calls_of_one_size_are_served_whole_in_the_order_in_which_they_came():
    assert drain(lettered(a=2, b=2, c=2)) == ["a1", "a2", "b1", "b2", "c1", "c2"]


def test_the_smallest_of_those_that_came_together_is_first():
    assert drain(lettered(a=4, b=2, c=1)) == ["c1", "b1", "b2", "a1", "a2", "a3", "a4"]


def test_streams_take_turns():
    assert drain(streams({"a": 1, "b": 1}, 3)) == ["a1", "b1", "a2", "b2", "a3", "b3"]


def test_turns_are_counted_in_what_items_take():
    order = drain(streams({"a": 4, "b": 1}, 9))
    assert order[:10] == ["b1", "b2", "b3", "a1", "b4", "b5", "b6", "b7", "a2", "b8"]


def test_a_call_of_one_passes_one_of_a_thousand():
    queue = lettered(a=1000)
    for _ in range(5):
        queue.pop()
    queue.add(ord("b"), ["b1"])
    assert queue.pop() == "b1"


def test_what_is_nearly_done_is_not_passed_by_what_is_smaller_but_later():
    queue = lettered(a=4)
    for _ in range(3):
        queue.pop()
    queue.add(ord("b"), ["b1", "b2"])
    assert drain(queue) == ["a4", "b1", "b2"]


def test_a_stream_that_had_more_than_its_share_is_behind_who_had_less():
    queue = lettered(z=50)
    for i in range(1, 5):
        queue.add(ord("a"), [f"a{i}"])
        assert queue.pop() == f"a{i}"  # even sharing is at the second, beside z
    queue.add(ord("a"), ["a5"])
    queue.add(ord("b"), ["b1", "b2"])
    assert drain(queue)[:3] == ["b1", "b2", "a5"]


def test_a_large_job_among_small_ones_that_never_cease_gets_its_turn():
    queue = lettered(z=20)
    for caller in range(1000, 2000):
        queue.add(caller, ["small"])
        if queue.pop() == "z1":
            break
    # By even sharing the small ones slow each other down, too: 20 of the large job's units take 20 * 20.
    assert 200 < caller - 1000 < 20 * 20
    assert queue.num_callers < 100  # the others are forgotten


def test_more_items_of_a_caller_come_behind_its_first():
    queue = lettered(a=2)
    queue.add(ord("a"), ["a3"])
    assert queue.num_callers == 1
    assert drain(queue) == ["a1", "a2", "a3"]


def test_nothing_is_added_where_there_is_nothing_to_add():
    queue = lettered(a=0)
    assert len(queue) == queue.num_callers == 0
    assert is_idle(queue)


def test_removed_items_are_forgotten_and_no_others():
    queue = lettered(a=3, b=1)
    assert queue.remove(ord("a"), lambda item: item != "a2") == ["a1", "a3"]
    assert queue.remove(ord("c"), lambda item: True) == []
    assert len(queue) == 2
    assert drain(queue) == ["a2", "b1"]
    assert queue.num_callers == 0


def test_what_is_left_of_a_job_is_as_near_its_turn_as_if_it_had_been_all():
    queue = lettered(a=9, b=3)
    queue.remove(ord("a"), lambda item: item > "a2")
    assert drain(queue) == ["a1", "a2", "b1", "b2", "b3"]


def test_the_share_of_a_call_that_is_cancelled_is_the_others():
    queue = lettered(a=10, c=100)
    for _ in range(6):
        queue.pop()  # of a, which is ahead: even sharing did three of c
    queue.remove(ord("c"), lambda item: True)
    queue.add(ord("b"), ["b1", "b2", "b3", "b4", "b5"])
    assert queue.pop() == "a7"


def test_a_stream_gets_nothing_for_what_it_takes_back():
    queue = lettered(b=1)
    queue.add(ord("a"), ["a1", "a2", "a3"])
    queue.pop()
    queue.add(ord("c"), ["c1"])
    queue.add(ord("a"), ["a4"])
    queue.remove(ord("a"), lambda item: item < "a4")
    assert drain(queue) == ["c1", "a4"]


def test_a_caller_that_is_removed_whole_leaves_nothing_behind():
    queue = lettered(a=3)
    queue.pop()
    assert queue.remove(ord("a"), lambda item: True) == ["a2", "a3"]
    assert is_idle(queue)


def test_what_was_seen_as_the_next_leaves_next_whatever_comes_meanwhile():
    queue = lettered(a=4)
    assert queue.peek() == "a1"
    queue.add(ord("b"), ["b1"])
    assert queue.peek() == "a1"
    assert drain(queue) == ["a1", "b1", "a2", "a3", "a4"]


def test_what_was_seen_as_the_next_and_is_removed_leaves_the_turn_to_others():
    queue = lettered(a=4)
    queue.peek()
    queue.add(ord("b"), ["b1"])
    queue.remove(ord("a"), lambda item: item == "a4")
    assert queue.peek() == "a1"
    queue.remove(ord("a"), lambda item: item == "a1")
    assert queue.peek() == "b1"
    assert drain(queue) == ["b1", "a2", "a3"]
