"""What is said of an overload in the end."""

from overload import Ended, Load, judge


def load(*calls: Ended) -> Load:
    return Load(started=10.0, stopped=20.0, calls=list(calls))


def test_a_server_that_answers_nothing_misses_its_bars():
    calm = load(Ended(11.0, 11.1, "OK"))
    refused = load(Ended(11.0, 11.01, "RESOURCE_EXHAUSTED", says_when=True))

    verdicts = {verdict.what: verdict for verdict in judge(calm, calm, refused, calm, [(15.0, 100)], 8)}

    assert not verdicts["goodput, share of the best"].holds
    assert verdicts["refusals, p99"].holds
