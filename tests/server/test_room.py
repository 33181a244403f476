"""Who is let in, and what is held for calls whose texts are being prepared."""

from __future__ import annotations

import pytest

from dragoman_server.errors import QueueFullError
from dragoman_server.limits import SchedulerLimits
from dragoman_server.room import QueueState, Room

LIMITS = SchedulerLimits(max_queue_size=10, max_queue_seconds=1.0)


def test_a_refused_call_is_told_of_its_own_sentences_and_of_all_that_are_before_it():
    room = Room(LIMITS, lambda: QueueState(5, False))
    said = "8 sentences wait, at most 10 may, 4 more"
    with room.hold(3), pytest.raises(QueueFullError, match=said), room.hold(4):
        pass


def test_a_call_without_sentences_is_let_in_however_full_the_queue():
    room = Room(LIMITS, lambda: QueueState(10, False, interactive_seconds=5.0))
    assert room.find_refusal() is not None
    with pytest.raises(QueueFullError), room.hold(1):
        pass
    with room.hold(0):
        pass
