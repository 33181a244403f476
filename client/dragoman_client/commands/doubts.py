"""What is said of translations that may be cut or bad."""

from dataclasses import dataclass, field

import click

from dragoman_client.results import FinishReason, Translation, WarningKind

MAX_NUMBERS_NAMED = 10

_SUSPICIONS = {
    WarningKind.UNCOVERED_SOURCE: "may leave out a part of the source",
    WarningKind.REPETITION: "may have repetitions",
    WarningKind.COPY: "may be copied from the source",
    WarningKind.LENGTH_RATIO: "may be too long or too short",
    WarningKind.UNSPECIFIED: "may be bad",
}


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
        cut: Those that reached their length limit.
        suspect: For each kind of warning those that have one.
    """

    noun: str
    cut: Numbers = field(default_factory=Numbers)
    suspect: dict[WarningKind, Numbers] = field(default_factory=dict)

    def note(self, number: int, translation: Translation) -> None:
        """Remembers a translation, counted from 1, where there is anything to say of it."""
        if translation.finish_reason is FinishReason.LENGTH:
            self.cut.add(number)
        for kind in dict.fromkeys(warning.kind for warning in translation.warnings):
            self.suspect.setdefault(kind, Numbers()).add(number)

    def warn(self) -> None:
        """Says on standard error which they were."""
        self._warn_of(self.cut, "reached the length limit and may be cut")
        for kind in sorted(self.suspect, key=list(WarningKind).index):
            self._warn_of(self.suspect[kind], _SUSPICIONS[kind])

    def _warn_of(self, numbers: Numbers, what: str) -> None:
        if numbers.count:
            click.echo(
                f"Warning: {numbers.count:,} of the translations {what}: {self.noun} {numbers}", err=True
            )
