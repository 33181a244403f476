from __future__ import annotations

from dragoman_server.request import Attend, Call
from dragoman_server.roster import Roster
from dragoman_server.sentences import CallState, Lane, Sentence
from tests.server.scheduler_stage import decode

ATTEND = Attend(source_ids=(5, 2), target_ids=(6, 2))


def call_of(*lengths: int) -> CallState:
    work = tuple(map(decode, lengths))
    return CallState(Call(work=work, arrived=0.0), Lane.INTERACTIVE, 0.0, [None] * len(work), len(work))


def start(roster: Roster, state: CallState, index: int = 0) -> tuple[Sentence, int]:
    sentence = Sentence(state, index, 1)
    return sentence, roster.start(sentence, decode(5)).id


def test_each_sentence_has_an_id_of_its_own_and_leaves_by_it():
    roster, state = Roster(), call_of(5, 5)
    first, second = start(roster, state), start(roster, state, 1)
    forced = roster.start_attention(Sentence(state, 0, 0), ATTEND)
    assert len({first[1], second[1], forced.id}) == 3
    assert state.running == {first[1], second[1], forced.id}
    assert roster.running(first[1]) is first[0]
    assert roster.running(forced.id) is None  # it has no rows
    assert roster.leave(first[1]) is first[0]
    assert roster.leave(first[1]) is None
    assert state.running == {second[1], forced.id}


def test_rows_of_a_call_that_is_abandoned_are_taken_back_once():
    roster, state, other = Roster(), call_of(5, 5), call_of(5)
    kept, kept_id = start(roster, other)
    sentences = [start(roster, state, index) for index in range(2)]
    forced = roster.start_attention(Sentence(state, 0, 0), ATTEND)
    assert {id(sentence) for sentence in roster.abandon(state)} == {id(sentence) for sentence, _ in sentences}
    assert state.running == set()
    assert roster.calls() == [other]
    assert roster.leave_attention(forced.id) is None  # its result is nobody's any more
    assert roster.take_abandoned() == tuple(sentence_id for _, sentence_id in sentences)
    assert roster.take_abandoned() == ()
    assert roster.leave(kept_id) is kept
    assert not roster.has_rows


def test_what_ends_before_the_batch_is_told_to_let_go_of_it_need_not_be_told():
    roster, state = Roster(), call_of(5)
    _, sentence_id = start(roster, state)
    roster.abandon(state)
    assert roster.has_rows
    assert roster.leave(sentence_id) is None
    assert roster.take_abandoned() == ()
    assert not roster.has_rows


def test_steps_are_those_of_the_sentences_lane_since_it_started():
    roster = Roster()
    roster.count_step({Lane.INTERACTIVE})
    _, sentence_id = start(roster, call_of(5))
    roster.count_step({Lane.BULK})
    roster.count_step({Lane.INTERACTIVE, Lane.BULK})
    assert roster.num_steps(sentence_id) == 1
