"""What is wrong with a request, gathered field by field."""

from __future__ import annotations

from dataclasses import dataclass, field

from dragoman_server.errors import FieldViolation, InvalidArgumentError, UnsupportedError


@dataclass
class Findings:
    """What is wrong with a request so far."""

    invalid: list[FieldViolation] = field(default_factory=list)
    unsupported: list[FieldViolation] = field(default_factory=list)

    def refuse(self, path: str, description: str) -> None:
        """Notes a value that no server would take."""
        self.invalid.append(FieldViolation(path, description))

    def not_yet(self, path: str, description: str) -> None:
        """Notes a sound value for what this server can't do."""
        self.unsupported.append(FieldViolation(path, description))

    def raise_any(self) -> None:
        """Raises what was found, if anything.

        Raises:
            InvalidArgumentError: A field holds what no server would take.
            UnsupportedError: A field asks for what this server can't do.
        """
        if self.invalid:
            raise InvalidArgumentError(violations=self.invalid)
        if self.unsupported:
            raise UnsupportedError(violations=self.unsupported)
