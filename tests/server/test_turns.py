import pytest

from dragoman_model.plan import BatchOutput, PhaseStats
from dragoman_server.turns import BulkTurns

ALONE, TOGETHER = 0.002, 0.012


def step(seconds: float) -> BatchOutput:
    return BatchOutput([], [], None, PhaseStats(seconds, 1, 1, 0))


def run(turns: BulkTurns, num_steps: int) -> list[bool]:
    """Takes steps of interactive rows with bulk rows beside them when they are due."""
    joined = []
    for _ in range(num_steps):
        joined.append(bulk := turns.is_due)
        turns.observe(step(TOGETHER if bulk else ALONE), interactive=True, bulk=bulk)
    return joined


@pytest.mark.parametrize("share", [0.1, 0.25, 0.5])
def test_bulk_rows_add_their_share_to_the_time_and_no_more(share: float):
    joined = run(BulkTurns(share), 2000)[200:]  # until the time of a step alone is known
    added = joined.count(True) * (TOGETHER - ALONE)
    assert added / (added + len(joined) * ALONE) == pytest.approx(share, rel=0.1)


def test_a_caller_that_arrives_amid_bulk_work_has_the_next_steps_alone():
    turns = BulkTurns(0.25)
    run(turns, 50)
    for _ in range(3):
        turns.observe(step(TOGETHER), interactive=False, bulk=True)
    joined = run(turns, 10)
    assert not any(joined)


def test_bulk_rows_that_cost_nothing_never_stand_still():
    turns = BulkTurns(0.25)
    turns.observe(step(ALONE), interactive=True, bulk=False)
    for _ in range(100):
        assert turns.is_due
        turns.observe(step(ALONE), interactive=True, bulk=True)


def test_bulk_rows_are_never_shut_out():
    assert run(BulkTurns(0.01), 5000)[-1000:].count(True) >= 1
