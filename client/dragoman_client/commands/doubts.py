"""What is said of translations that may be cut or bad."""

from collections.abc import Iterable
from dataclasses import dataclass, field

import click

from dragoman_client.results import FinishReason, Translation, WarningKind

MAX_NUMBERS_NAMED = 10

_CUT = "cut"
# In the order in which they are told.
_SAID_OF = {
    _CUT: "reached the length limit and may be cut",
    **{
        kind.value.lower(): said
        for kind, said in {
            WarningKind.UNSPECIFIED: "may be bad",
            WarningKind.UNCOVERED_SOURCE: "may leave out a part of the source",
            WarningKind.REPETITION: "may have repetitions",
            WarningKind.COPY: "may be copied from the source",
            WarningKind.LENGTH_RATIO: "may be too long or too short",
        }.items()
    },
}


def doubts_about(translation: Translation) -> tuple[str, ...]:
    """Returns the names of what is doubtful about a translation."""
    cut = (_CUT,) if translation.finish_reason is FinishReason.LENGTH else ()
    return (*cut, *dict.fromkeys(warning.kind.value.lower() for warning in translation.warnings))


@dataclass
class Numbers:
    """Numbers of lines or texts to tell of: how many there are, and the first few of them."""

    count: int = 0
    first: list[int] = field(default_factory=list)

    def add(self, number: int) -> None:
        """Takes one more."""
        self.count += 1
        if self.count <= MAX_NUMBERS_NAMED:
            self.first.append(number)

    def __str__(self) -> str:
        return ", ".join(map(str, self.first)) + (", …" if self.count > len(self.first) else "")


@dataclass
class Doubts:
    """Remembers translations that may be cut or bad.

    Attributes:
        noun: What a number counts: texts, lines or sentences.
        by_name: The translations that each doubt is about.
    """

    noun: str
    by_name: dict[str, Numbers] = field(default_factory=dict)

    def note(self, number: int, translation: Translation) -> None:
        """Remembers a translation, counted from 1, where there is anything to say of it."""
        self.add(number, doubts_about(translation))

    def add(self, number: int, names: Iterable[str]) -> None:
        """Remembers what `doubts_about` says of a translation."""
        for name in names:
            self.by_name.setdefault(name, Numbers()).add(number)

    def warn(self) -> None:
        """Says on standard error which they were."""
        for name, said in _SAID_OF.items():
            if name in self.by_name:
                numbers = self.by_name[name]
                click.echo(
                    f"Warning: {numbers.count:,} of the translations {said}: {self.noun} {numbers}", err=True
                )
