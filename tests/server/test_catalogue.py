from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from dragoman_server.catalogue import Catalogue, ServedModel
from dragoman_server.errors import InvalidArgumentError, NotFoundError
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
