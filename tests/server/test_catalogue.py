from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from dragoman_server.catalogue import Catalogue, ServedModel
from dragoman_server.errors import InvalidArgumentError, NotFoundError, QueueFullError
from dragoman_server.heartbeat import Heartbeat
from dragoman_server.request import ModelChoice


def served(name: str, *pairs: tuple[str, str]) -> ServedModel:
    model = SimpleNamespace(name=name, config=SimpleNamespace(language_pairs=pairs))
    return ServedModel(cast(Any, model), cast(Any, None), cast(Any, None))


CATALOGUE = Catalogue(
    [
        served("en-de", ("en", "de")),
        served("en-de-big", ("en", "de")),
        served("many", ("de", "en"), ("pt-BR", "en")),
    ]
)


@pytest.mark.parametrize(
    ("name", "source", "target", "expected"),
    [
        ("", "", "", "en-de"),
        ("", "en", "de", "en-de"),
        ("", "en-GB", "de-AT", "en-de"),
        ("", "EN", "De", "en-de"),
        ("", "de", "", "many"),
        ("", "", "en", "many"),
        ("", "pt-BR", "en", "many"),
        ("", "pt-br-x-own", "en", "many"),
        ("en-de-big", "", "", "en-de-big"),
        ("many", "de-DE", "en-US", "many"),
    ],
)
def test_a_caller_gets_the_first_model_that_fits(name: str, source: str, target: str, expected: str):
    choice = ModelChoice(name=name, source_language=source, target_language=target)
    assert CATALOGUE.select(choice).name == expected


@pytest.mark.parametrize(
    ("name", "source", "target", "field"),
    [
        ("de-en", "", "", "model"),
        ("EN-DE", "", "", "model"),
        ("", "fr", "de", "source_language_code"),
        ("", "", "fr", "target_language_code"),
        ("", "pt", "en", "source_language_code"),
        ("", "de", "de", "source_language_code"),
        ("en-de", "de", "en", "source_language_code"),
    ],
)
def test_what_is_not_served_is_not_found_with_what_there_is(name: str, source: str, target: str, field: str):
    with pytest.raises(
        NotFoundError, match=r"served: en-de \(en to de\), .*, many \(de to en, pt-BR to en\)"
    ) as caught:
        CATALOGUE.select(ModelChoice(name=name, source_language=source, target_language=target))
    assert [violation.field for violation in caught.value.violations] == [field]


def test_a_callers_huge_name_is_not_repeated_whole():
    with pytest.raises(NotFoundError) as caught:
        CATALOGUE.select(ModelChoice(name="x" * 100_000))
    assert len(str(caught.value)) < 400


def test_labels_are_names_of_served_models_or_unknown():
    assert [CATALOGUE.label(name) for name in ("many", "", "mine")] == ["many", "unknown", "unknown"]


@pytest.mark.parametrize("size", [0, 1, 2, 3, 99])
def test_pages_hold_every_model_once_in_order(size: int):
    names: list[str] = []
    token = ""
    while True:
        page, token = CATALOGUE.page(size, token)
        assert size == 0 or len(page) <= size
        names += [model.name for model in page]
        if not token:
            break
    assert names == ["en-de", "en-de-big", "many"]


@pytest.mark.parametrize(("size", "token", "field"), [(-1, "", "page_size"), (1, "nonsense", "page_token")])
def test_a_bad_page_is_refused(size: int, token: str, field: str):
    with pytest.raises(InvalidArgumentError) as caught:
        CATALOGUE.page(size, token)
    assert [violation.field for violation in caught.value.violations] == [field]


class FakeEngine:
    """One whose queue has room, or is full and says for how long."""

    def __init__(self, *, is_full: bool, seconds: float | None = None) -> None:
        self.heartbeat = Heartbeat()
        self.room = self
        self.has_failed = False
        self.is_alive = True
        self._refusal = QueueFullError("full", retry_seconds=seconds) if is_full else None

    def find_refusal(self) -> QueueFullError | None:
        return self._refusal


def full(seconds: float | None) -> FakeEngine:
    return FakeEngine(is_full=True, seconds=seconds)


def catalogue_of(*engines: FakeEngine) -> Catalogue:
    return Catalogue(
        [
            ServedModel(cast(Any, SimpleNamespace(name=str(number))), cast(Any, engine), cast(Any, None))
            for number, engine in enumerate(engines)
        ]
    )


@pytest.mark.parametrize(
    ("seconds", "soonest"),
    [([9.0, 2.0, 5.0], 2.0), ([2.0, 9.0], 2.0), ([5.0], 5.0), ([3.0, None], None), ([None, 3.0], None)],
)
def test_where_every_queue_is_full_callers_hear_when_the_first_has_room(
    seconds: list[float | None], soonest: float | None
):
    refusal = catalogue_of(*map(full, seconds)).find_refusal()
    assert isinstance(refusal, QueueFullError)
    assert refusal.retry_seconds == soonest


@pytest.mark.parametrize("place", [0, 1, 2])
def test_nobody_is_refused_unread_while_one_of_several_models_has_room_hangs_or_is_gone(place: int):
    has_room, hung, gone = FakeEngine(is_full=False), full(1.0), full(1.0)
    hung.heartbeat.is_missed = True
    gone.has_failed, gone.is_alive = True, False
    for other in (has_room, hung, gone):
        engines = [full(1.0), full(2.0)]
        engines.insert(place, other)
        assert catalogue_of(*engines).find_refusal() is None


@pytest.mark.parametrize(("is_gone", "says"), [(False, "'0' hangs"), (True, "'0' is gone")])
def test_the_only_model_refuses_unread_while_its_engine_hangs_or_is_gone(is_gone: bool, says: str):
    engine = FakeEngine(is_full=False)
    engine.heartbeat.is_missed = not is_gone
    engine.has_failed, engine.is_alive = is_gone, not is_gone
    assert says in str(catalogue_of(engine).find_refusal())
