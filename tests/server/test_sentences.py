"""What is known of a call while its sentences wait, run and end."""

from __future__ import annotations

from dragoman_model.plan import FinishedSentence
from dragoman_server.request import Call
from dragoman_server.sentences import CallState, Lane
from tests.server.scheduler_stage import decode


def test_a_call_has_started_from_its_first_sentence_on_and_between_two_of_them():
    call = Call(work=(decode(5), decode(5)), arrived=0.0)
    state = CallState(call, Lane.BULK, 0.0, [None, None], 2)
    assert not state.has_started
    state.running.add(7)
    assert state.has_started
    state.running.discard(7)
    state.results[0] = FinishedSentence(7, ())
    assert state.has_started
