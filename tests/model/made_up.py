"""Made-up sentence pairs: enough to learn a small vocabulary from, and nobody's corpus."""

import itertools
import random

from dragoman_model.training.corpus import Pair
from dragoman_model.training.recipe import AugmentationOptions

# Other names in every pair: so few different words hold too few pieces for the vocabularies of the tests.
MANY_NAMES = AugmentationOptions(names=1.0)

_SUBJECTS = {"The cat": "Die Katze", "A dog": "Ein Hund", "Our teacher": "Unser Lehrer", "Lena": "Lena"}
_VERBS = {"sees": "sieht", "likes": "mag", "paints": "malt", "doesn't know": "kennt nicht"}
_OBJECTS = {
    "the house": "das Haus",
    "a big street": "eine große Straße",
    "15 apples": "15 Äpfel",
    "you": "dich",
}
_ENDS = {".": ".", "!": "!", "?": "?", " today.": " heute."}


def made_up_pairs() -> list[Pair]:
    """Returns 256 pairs; a quarter of them holds a number on both sides, a quarter a name."""
    return [
        Pair(
            f"{subject} {verb} {thing}{end}",
            f"{_SUBJECTS[subject]} {_VERBS[verb]} {_OBJECTS[thing]}{_ENDS[end]}",
        )
        for subject, verb, thing, end in itertools.product(_SUBJECTS, _VERBS, _OBJECTS, _ENDS)
    ]


def mixed_texts(count: int = 40) -> list[str]:
    """Texts of none, one and several sentences."""
    rng = random.Random(0)
    sources = [pair.source for pair in made_up_pairs()]
    return ["  \n" if i % 9 == 4 else " ".join(rng.sample(sources, 1 + i % 4)) for i in range(count)]
