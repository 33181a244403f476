"""Tables of a TOML file as frozen data, read strictly.

A key that nobody knows is a typing mistake whose default would do another thing than the one written down, so it is
refused like a value out of range.
"""

import types
import typing
from collections.abc import Mapping
from dataclasses import field, fields
from typing import Any, TypeVar

from dragoman_model.errors import RecipeError

_TYPE_NAMES = {str: "a string", int: "a whole number", float: "a number", bool: "true or false"}


def number(default: Any = None, *, minimum: float, maximum: float = float("inf")) -> Any:
    """A numeric field with the range that it is checked against; without a default the key is required."""
    metadata = {"minimum": minimum, "maximum": maximum}
    return field(metadata=metadata) if default is None else field(default=default, metadata=metadata)


def rate(default: float) -> Any:
    """A numeric field from 0 to 1."""
    return number(default, minimum=0.0, maximum=1.0)


class Section:
    """A table: the types and ranges of its fields are checked whoever makes one. A subclass is a frozen dataclass."""

    def __post_init__(self) -> None:
        hints = typing.get_type_hints(type(self))
        for spec in fields(self):  # type: ignore[arg-type]
            value = getattr(self, spec.name)
            expected = hints[spec.name]
            if expected in _TYPE_NAMES:
                object.__setattr__(self, spec.name, _checked(spec.name, value, expected))
            if spec.metadata and not spec.metadata["minimum"] <= value <= spec.metadata["maximum"]:
                raise RecipeError(f"{spec.name} is {value!r}; allowed: {_range_text(spec.metadata)}")


_SectionT = TypeVar("_SectionT", bound=Section)


def read_section(
    cls: type[_SectionT], table: Mapping[str, object], where: str = "", **computed: object
) -> _SectionT:
    """Returns a section from its table.

    Args:
        cls: A field that is a section, too, is read from a table in this one, and a tuple of sections from a list of tables;
            a field of any other type keeps its table as written.
        table: As TOML gives it.
        where: Leads every complaint, as in ``corpus.``.
        computed: Fields that no table holds.

    Raises:
        RecipeError: A key is unknown or missing, or its value isn't allowed; the message says which, what was seen and what
            is allowed.
    """
    hints = typing.get_type_hints(cls)
    specs = {spec.name: spec for spec in fields(cls) if spec.name not in computed}  # type: ignore[arg-type]
    for key in table:
        if key not in specs:
            raise RecipeError(f"{where}{key}: unknown key; allowed: {', '.join(specs)}")
    for name, spec in specs.items():
        has_default = spec.default is not spec.default_factory  # both are MISSING when there is none
        if name not in table and not has_default:
            raise RecipeError(f"{where}{name}: is missing")
    values = {key: _read_value(key, value, hints[key], where) for key, value in table.items()}
    try:
        return cls(**values, **computed)
    except RecipeError as error:
        raise RecipeError(f"{where}{error}") from None


def _read_value(key: str, value: object, expected: Any, where: str) -> object:
    if typing.get_origin(expected) is tuple:
        item_class = typing.get_args(expected)[0]
        if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
            raise RecipeError(f"{where}{key} is {value!r}; allowed: tables, each under [[{key}]]")
        return tuple(read_section(item_class, item, f"{key}[{i}].") for i, item in enumerate(value))
    if expected in _TYPE_NAMES:
        return value
    if not isinstance(value, dict):
        raise RecipeError(f"{where}{key} is {value!r}; allowed: a table [{key}]")
    if isinstance(expected, type) and issubclass(expected, Section):
        return read_section(expected, value, f"{key}.")
    return types.MappingProxyType(value)


def _checked(name: str, value: object, expected: type) -> object:
    """The value as ``expected``; a whole number is good as a number, true and false are no numbers."""
    if expected is float and type(value) is int:
        return float(value)
    if type(value) is not expected:
        raise RecipeError(f"{name} is {value!r}; allowed: {_TYPE_NAMES[expected]}")
    return value


def _range_text(metadata: Mapping[str, float]) -> str:
    minimum, maximum = metadata["minimum"], metadata["maximum"]
    return f"at least {minimum:g}" if maximum == float("inf") else f"{minimum:g} to {maximum:g}"
