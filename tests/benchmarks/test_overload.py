"""What is said of an overload in the end."""

import base64

import pytest
from overload_calls import Ended, Load
from overload_checks import overload_checks, recovery_seconds

from dragoman_server.errors import QueueFullError
from dragoman_server.interceptors import trailing_metadata
from dragoman_server.statuses import status_message


def load(*calls: Ended) -> Load:
    return Load(started=10.0, stopped=20.0, calls=list(calls))


def test_a_server_that_answers_nothing_misses_its_bars():
    calm = load(Ended(11.0, 11.1, "OK"))
    status = status_message(QueueFullError("the queue is full"), "id")
    trailers = tuple(
        # As it stands on the wire.
        (name, base64.b64encode(value).decode().rstrip("=") if isinstance(value, bytes) else value)
        for name, value in trailing_metadata("id", status)
    )
    refused = load(Ended(11.0, 11.01, "RESOURCE_EXHAUSTED", trailers))

    checks = overload_checks(calm, calm, refused, calm, [(15.0, 100)], 8)

    holds = {check.what.split(" (")[0]: check.holds for check in checks}
    assert not holds["goodput, share of the best"]
    assert holds["refusals, p99"]
    assert holds["refusals that say when to come back, of 1"]


def test_a_server_has_recovered_with_the_last_call_but_one_in_a_hundred_that_is_refused_or_slow():
    before = load(*(Ended(11.0, 11.1, "OK") for _ in range(100)))
    usual = [Ended(11 + index / 100, 11.1 + index / 100, "OK") for index in range(200)]
    assert recovery_seconds(before, load(*usual)) == 0
    troubled = list(usual)
    for index, code in ((30, "RESOURCE_EXHAUSTED"), (50, "OK"), (120, "OK"), (199, "OK")):
        troubled[index] = Ended(usual[index].due, usual[index].due + 0.3, code)
    assert recovery_seconds(before, load(*troubled)) == pytest.approx(1.5)
