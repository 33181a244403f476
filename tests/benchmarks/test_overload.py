"""What is said of an overload in the end."""

import base64

from overload import Ended, Load, judge

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

    verdicts = {verdict.what: verdict for verdict in judge(calm, calm, refused, calm, [(15.0, 100)], 8)}

    assert not verdicts["goodput, share of the best"].holds
    assert verdicts["refusals, p99"].holds
    assert verdicts["refusals that say when to come back"].holds
