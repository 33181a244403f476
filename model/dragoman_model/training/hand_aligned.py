"""Hand-made word links: 100 sentences of Europarl, English and German (E. Bicici, 2014).

They are in small letters, tokenised, and far from what a model of everyday sentences was trained on; "can be used for
training and testing word alignment systems". They measure, and choose nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from dragoman_model.errors import CorpusError
from dragoman_model.training.corpus import Pair
from dragoman_model.training.download import fetch, read_text
from dragoman_model.training.fast_align import Links
from dragoman_model.training.recipe import Download

_FOLDER = "German-English_WordAlignment"
LINKS = Download(
    name="word links",
    url="https://raw.githubusercontent.com/bicici/SMTData/eb81ef33c1d77412eee2b5a0ab8dd97936d23cb0/German-English_WordAlignment.zip",
    size_bytes=14543,
    sha256="8e5a80cf26e7f48e675960c097069c29db5ed50d59fef1cd264571a2ee596d7d",
    member=f"{_FOLDER}/de-en.ref.wa",
)
ENGLISH = replace(LINKS, name="English", member=f"{_FOLDER}/test.en")
GERMAN = replace(LINKS, name="German", member=f"{_FOLDER}/test.de")


@dataclass(frozen=True)
class HandAligned:
    """Sentence pairs and their links.

    Attributes:
        pairs: Their words, joined by single spaces.
        links: Of each pair (source word, target word), from 0; all of them sure. One of the file's 1,233 leads beyond its
            sentence and is left out.
    """

    pairs: list[Pair]
    links: list[Links]


def hand_aligned(
    source_language: str, target_language: str, cache_dir: Path | None = None, mirror: Path | None = None
) -> HandAligned:
    """Fetches the sentences; English to German, or the other way round.

    Args:
        source_language: BCP-47.
        target_language: BCP-47.
        cache_dir: See `download.fetch`.
        mirror: See `download.fetch`.

    Raises:
        CorpusError: There are none of these languages, or a file isn't laid out as expected.
        DownloadError: The file can't be had.
    """
    languages = tuple(code.partition("-")[0] for code in (source_language, target_language))
    if languages not in (("en", "de"), ("de", "en")):
        raise CorpusError(
            f"{source_language} to {target_language}: the hand-made word links are English and German"
        )
    english, german, links = (
        read_text(download, fetch(download, cache_dir, mirror)) for download in (ENGLISH, GERMAN, LINKS)
    )
    return parse(english, german, links, from_english=languages[0] == "en")


def parse(english: str, german: str, links: str, *, from_english: bool) -> HandAligned:
    """Returns what the three files say.

    Args:
        english: A sentence a line.
        german: Their translations.
        links: A link a line: sentence, from 1; German word and English word, from 0; S for sure.
        from_english: English is the source.

    Raises:
        CorpusError: They don't fit together; the message says where.
    """
    sides = [
        [" ".join(line.split()) for line in text.lstrip("\ufeff").splitlines()] for text in (english, german)
    ]
    if len(sides[0]) != len(sides[1]):
        raise CorpusError(
            f"{len(sides[0])} English sentences and {len(sides[1])} German ones; expected as many"
        )
    found: list[Links] = [set() for _ in sides[0]]
    for number, line in enumerate(links.splitlines(), start=1):
        try:
            sentence, german_word, english_word, kind = line.split()
            index, place = int(sentence) - 1, (int(english_word), int(german_word))
            lengths = tuple(len(side[index].split()) for side in sides)
        except (ValueError, IndexError):
            raise CorpusError(
                f"word links: line {number} is {line!r}; expected a link of a sentence"
            ) from None
        if kind != "S" or index < 0 or min(place) < 0:
            raise CorpusError(
                f"word links: line {number} is {line!r}; expected a sure link between two words"
            )
        if place[0] >= lengths[0] or place[1] >= lengths[1]:
            continue  # the published file has one that leads beyond its sentence
        found[index].add(place if from_english else place[::-1])
    both = zip(*(sides if from_english else sides[::-1]), strict=True)
    return HandAligned([Pair(*pair) for pair in both], found)
