"""Texts in which it is hard to say what stands where, and what holds of spans in any."""

from __future__ import annotations

TEXTS = {
    "normalised to more": "½ ﬁsh at ㍿ costs … 3²",
    "normalised to less": "Cafe\u0301 na\u0308ive",
    "full width": "Ｈｅｌｌｏ　１２",
    "emoji": "He 😀 sings 👩\u200d👧 loud 🏳️\u200d🌈!",
    "marks that combine with nothing": "\u0301a b\u0308\u0323c",
    "bytes": "日本語 Ж → ō",
    "runs of spaces": "  \t The   cat \u00a0 sees\u2003\u2003the house  ",
    "several sentences": "He sings!  She  reads 😀 ½ a book.\n\n\tWhere is Ｌena?\r\nA café.",
    "capitals": "THE CAT SEES 15 APPLES. Lena does NOT. ½ DOG!",
    "ignored characters": "the\u200bcat \u00adsees\ufeff it",
}


def assert_in_order(spans: list[tuple[int, int]], length: int) -> None:
    """Spans lie in the text, one behind the other; pieces that spell one character share its span."""
    last = (0, 0)
    for span in spans:
        assert 0 <= span[0] <= span[1] <= length
        assert span == last or span[0] >= last[1]
        last = span


# White space, and what normalisation takes out.
_NOTHING = {"\u200b", "\u00ad", "\ufeff"}


def seen(text: str, spans: list[tuple[int, int]]) -> str:
    places = sorted({place for start, end in spans for place in range(start, end)})
    return "".join(
        text[place] for place in places if not text[place].isspace() and text[place] not in _NOTHING
    )


def visible(text: str) -> str:
    return "".join(c for c in text if not c.isspace() and c not in _NOTHING)
