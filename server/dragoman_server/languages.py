"""Language tags: which are well-formed, and which served one a caller's falls back to."""

from __future__ import annotations

import re
from collections.abc import Iterator

# RFC 5646, section 2.1, letter for letter: langtag, privateuse, irregular and regular grandfathered tags.
_WELL_FORMED = re.compile(
    r"""
    (?: (?: [a-z]{2,3} (?: -[a-z]{3} ){0,3} | [a-z]{4} | [a-z]{5,8} )   # language, with extended language subtags
        (?: -[a-z]{4} )?                                                # script
        (?: -(?: [a-z]{2} | [0-9]{3} ) )?                               # region
        (?: -(?: [a-z0-9]{5,8} | [0-9][a-z0-9]{3} ) )*                  # variants
        (?: -[0-9a-wy-z] (?: -[a-z0-9]{2,8} )+ )*                       # extensions
        (?: -x (?: -[a-z0-9]{1,8} )+ )?                                 # private use
      | x (?: -[a-z0-9]{1,8} )+
      | i-(?: ami | bnn | default | enochian | hak | klingon | lux | mingo | navajo | pwn | tao | tay | tsu )
      | en-gb-oed | sgn-(?: be-fr | be-nl | ch-de )
      | art-lojban | cel-gaulish | no-(?: bok | nyn )
      | zh-(?: guoyu | hakka | min | min-nan | xiang )
    )
    """,
    re.VERBOSE | re.IGNORECASE | re.ASCII,
)

# RFC 5646, section 4.4.1: no tag needs more, and an unbounded one has no business in an error message.
MAX_TAG_LENGTH = 64


def is_well_formed(tag: str) -> bool:
    """Whether a tag follows BCP 47's grammar; it may still name no language."""
    return len(tag) <= MAX_TAG_LENGTH and _WELL_FORMED.fullmatch(tag) is not None


def fallbacks(tag: str) -> Iterator[str]:
    """Yields the tag, then ever more general ones, in lower case (RFC 4647, section 3.4).

    ``en-Latn-GB`` gives ``en-latn-gb``, ``en-latn``, ``en``.
    """
    subtags = tag.lower().split("-")
    while subtags:
        yield "-".join(subtags)
        subtags.pop()
        # A single letter introduces what followed it and means nothing at the end.
        while subtags and len(subtags[-1]) == 1:
            subtags.pop()
