import pytest

from dragoman_server.languages import fallbacks, is_well_formed


@pytest.mark.parametrize(
    "tag",
    ["en", "de-DE", "pt-BR", "zh-Hant-TW", "es-419", "sl-rozaj-biske", "de-1996", "sr-Latn", "EN-gb", "x-own", "yue",
     "i-klingon", "de-a-value-x-private", "zh-yue-Hant", "en-GB-oed"],
)  # fmt: skip
def test_tags_of_the_grammar_are_well_formed(tag: str):
    assert is_well_formed(tag)


@pytest.mark.parametrize(
    "tag",
    ["", "e", "english-", "en_GB", "-en", "en--GB", "en-G", "en-a", "x", "en-x", "é", "en GB", "en\n", "１２", "123",
     "en-" + "x-" + "a1-" * 40 + "b"],
)  # fmt: skip
def test_other_tags_are_not(tag: str):
    assert not is_well_formed(tag)


@pytest.mark.parametrize(
    ("tag", "expected"),
    [
        ("en", ["en"]),
        ("en-GB", ["en-gb", "en"]),
        ("zh-Hant-TW", ["zh-hant-tw", "zh-hant", "zh"]),
        ("de-a-value-x-own", ["de-a-value-x-own", "de-a-value", "de"]),
    ],
)
def test_tags_fall_back_to_more_general_ones(tag: str, expected: list[str]):
    assert list(fallbacks(tag)) == expected
