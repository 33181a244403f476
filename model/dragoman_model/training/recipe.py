"""Training recipes: one TOML file that says what a model is trained from, and how.

A recipe is read strictly. A key that nobody knows is a typing mistake whose default would train another model than
the one written down, so it is refused like a value out of range.
"""

import hashlib
import re
import tomllib
import types
import typing
import urllib.parse
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path, PurePosixPath
from typing import Any, ClassVar

from dragoman_model.errors import RecipeError

RECIPE_FILE = "recipe.toml"  # a model directory carries the recipe it was made by
_TYPE_NAMES = {str: "a string", int: "a whole number", float: "a number", bool: "true or false"}


def _number(default: Any = None, *, minimum: float, maximum: float = float("inf")) -> Any:
    """A numeric field with the range that it is checked against; without a default the key is required."""
    metadata = {"minimum": minimum, "maximum": maximum}
    return field(metadata=metadata) if default is None else field(default=default, metadata=metadata)


def _rate(default: float) -> Any:
    return _number(default, minimum=0.0, maximum=1.0)


class _Section:
    """A table of a recipe: the types and ranges of its fields are checked whoever makes one."""

    def __post_init__(self) -> None:
        hints = typing.get_type_hints(type(self))
        for spec in fields(self):  # type: ignore[arg-type]
            value = getattr(self, spec.name)
            expected = hints[spec.name]
            if expected in _TYPE_NAMES:
                object.__setattr__(self, spec.name, _checked(spec.name, value, expected))
            if spec.metadata and not spec.metadata["minimum"] <= value <= spec.metadata["maximum"]:
                raise RecipeError(f"{spec.name} is {value!r}; allowed: {_range_text(spec.metadata)}")


@dataclass(frozen=True, kw_only=True)
class Download(_Section):
    """A file that a recipe needs, as its owner publishes it.

    Attributes:
        name: What the rest of the recipe calls it.
        url: Its public address, https (or http on this machine itself).
        size_bytes: Its size.
        sha256: Its SHA-256, in lower-case hex.
        member: The file to read inside it when it is a zip archive; empty: the file itself.
        file_name: Its name in the cache; empty: the last part of the address.
        mirror_name: A second name that it may have in a mirror folder; empty: none.
    """

    name: str
    url: str
    size_bytes: int = _number(minimum=1)
    sha256: str
    member: str = ""
    file_name: str = ""
    mirror_name: str = ""

    def __post_init__(self) -> None:
        super().__post_init__()
        address = urllib.parse.urlsplit(self.url)
        on_loopback = address.hostname in ("localhost", "127.0.0.1", "::1")
        if address.scheme != "https" and not (address.scheme == "http" and on_loopback):
            raise RecipeError(f"url is {self.url!r}; allowed: an https address")
        if not re.fullmatch(r"[0-9a-f]{64}", self.sha256):
            raise RecipeError(f"sha256 is {self.sha256!r}; allowed: 64 lower-case hexadecimal digits")
        if not self.file_name:
            object.__setattr__(self, "file_name", PurePosixPath(urllib.parse.unquote(address.path)).name)
        for key in ("file_name", "mirror_name"):
            value = getattr(self, key)
            if value != PurePosixPath(value).name or "\\" in value or value == "..":
                raise RecipeError(f"{key} is {value!r}; allowed: a file name without folders")
        if not self.file_name:
            raise RecipeError(f"url is {self.url!r}, which ends in no file name; set file_name")


@dataclass(frozen=True, kw_only=True)
class CorpusOptions(_Section):
    """Which downloads hold the sentence pairs, and how they are laid out.

    Attributes:
        train: The download with the training pairs, one a line.
        format: How a line is laid out; ``tsv``: columns with a tab between them.
        source_column: The source side's column, from 0.
        target_column: The target side's column, from 0.
        test_source: The download with the test set's source sentences, one a line.
        test_target: The download with their translations, line by line.
        dev_size: Pairs that are kept from training to choose the best checkpoint; 0: none.
        seed: Which pairs those are.
    """

    FORMATS: ClassVar[tuple[str, ...]] = ("tsv",)

    train: str
    format: str = "tsv"
    source_column: int = _number(0, minimum=0)
    target_column: int = _number(1, minimum=0)
    test_source: str
    test_target: str
    dev_size: int = _number(2000, minimum=0)
    seed: int = _number(0, minimum=0)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.format not in self.FORMATS:
            raise RecipeError(f"format is {self.format!r}; allowed: {', '.join(self.FORMATS)}")
        if self.source_column == self.target_column:
            raise RecipeError(
                f"target_column is {self.target_column}, which is the source's; allowed: another column"
            )


@dataclass(frozen=True, kw_only=True)
class CleaningOptions(_Section):
    """Which pairs are left out of training.

    Attributes:
        min_characters: Shortest side.
        max_characters: Longest side.
        max_words: Longest side in words.
        max_length_ratio: The longer side has at most this many times the characters of the shorter one, plus
            ``length_slack``.
        length_slack: Characters by which a side may always be longer: "Hi." is "Guten Tag!".
        drop_identical: Leave out pairs whose two sides are the same.
        drop_duplicates: Leave out a pair that was there before.
    """

    min_characters: int = _number(1, minimum=1)
    max_characters: int = _number(400, minimum=1)
    max_words: int = _number(80, minimum=1)
    max_length_ratio: float = _number(2.5, minimum=1.0)
    length_slack: int = _number(12, minimum=0)
    drop_identical: bool = True
    drop_duplicates: bool = True


@dataclass(frozen=True, kw_only=True)
class AugmentationOptions(_Section):
    """How often a pair is changed into what people type; every rate is a share of the pairs, 0 is off.

    Attributes:
        drop_punctuation: Final punctuation is dropped on both sides.
        lower_case: The source is lower-cased.
        lower_case_drop_punctuation: Both of the above.
        capitals: Both sides are in CAPITALS.
        typographic: The source has curly apostrophes and quotation marks.
        number_copies: Copies of each pair that holds the same numbers on both sides, with other numbers; 0 is off.
        numbered: Numbers are added before or after both sides.
        joined: Additional rows of 2 to 4 pairs, as a share of the pairs.
        joined_numbers: Additional rows of 2 to 4 pairs that all hold numbers, as a share of the pairs.
        max_joined_characters: Longest side of such a row.
        copied: A symbol, an emoji or an address is added on both sides.
        names: A name that both sides hold is swapped for another, as a share of the pairs with such a name.
    """

    drop_punctuation: float = _rate(0.08)
    lower_case: float = _rate(0.08)
    lower_case_drop_punctuation: float = _rate(0.03)
    capitals: float = _rate(0.08)
    typographic: float = _rate(0.03)
    number_copies: int = _number(8, minimum=0, maximum=1000)
    numbered: float = _rate(0.04)
    joined: float = _rate(0.12)
    joined_numbers: float = _rate(0.01)
    max_joined_characters: int = _number(400, minimum=1)
    copied: float = _rate(0.02)
    names: float = _rate(0.05)

    SURFACE_CHANGES: ClassVar[tuple[str, ...]] = (
        "drop_punctuation",
        "lower_case",
        "lower_case_drop_punctuation",
        "capitals",
        "typographic",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        total = sum(getattr(self, name) for name in self.SURFACE_CHANGES)
        if total > 1:
            raise RecipeError(f"{' + '.join(self.SURFACE_CHANGES)} is {total:.3g}; allowed: at most 1")


@dataclass(frozen=True, kw_only=True)
class TokenizerOptions(_Section):
    """The joint vocabulary.

    Attributes:
        vocab_size: Pieces, the 5 special ones and the 256 bytes included.
        character_coverage: Share of all characters that get a piece of their own; the rest is spelt in bytes.
        seed: Which changes the augmentation pass for the vocabulary makes.
    """

    vocab_size: int = _number(8000, minimum=262, maximum=64000)
    character_coverage: float = _number(0.9999, minimum=0.98, maximum=1.0)
    seed: int = _number(0, minimum=0)


@dataclass(frozen=True, kw_only=True)
class Recipe(_Section):
    """All that a training run is made from.

    Attributes:
        name: The model's name.
        source_language: BCP-47.
        target_language: BCP-47.
        model: The table ``[model]`` as written; the model's configuration checks it.
        training: The table ``[training]`` as written; the trainer's options check it.
        digest: SHA-256 of the file, hex: a checkpoint belongs to one recipe.
    """

    name: str
    source_language: str
    target_language: str
    downloads: tuple[Download, ...]
    corpus: CorpusOptions
    cleaning: CleaningOptions = field(default_factory=CleaningOptions)
    augmentation: AugmentationOptions = field(default_factory=AugmentationOptions)
    tokenizer: TokenizerOptions = field(default_factory=TokenizerOptions)
    model: Mapping[str, object] = field(default_factory=lambda: types.MappingProxyType({}))
    training: Mapping[str, object] = field(default_factory=lambda: types.MappingProxyType({}))
    digest: str

    def __post_init__(self) -> None:
        super().__post_init__()
        names = [download.name for download in self.downloads]
        for name in names:
            if names.count(name) > 1:
                raise RecipeError(f"downloads: two have the name {name!r}; allowed: names of their own")
        for key in ("train", "test_source", "test_target"):
            wanted = getattr(self.corpus, key)
            if wanted not in names:
                raise RecipeError(
                    f"corpus.{key} is {wanted!r}; allowed: the name of a download ({', '.join(names)})"
                )

    def download(self, name: str) -> Download:
        """Returns the download that the recipe calls ``name``."""
        return next(download for download in self.downloads if download.name == name)


def load_recipe(path: Path) -> Recipe:
    """Reads a recipe.

    Raises:
        RecipeError: It can't be read or isn't valid; the message names the file, the key, what was seen and what is
            allowed.
    """
    try:
        content = path.read_bytes()
        table = tomllib.loads(content.decode())
    except OSError as error:
        raise RecipeError(f"{path}: cannot be read: {error.strerror}") from error
    except ValueError as error:  # not UTF-8, or not TOML
        raise RecipeError(f"{path}: is not a TOML file: {error}") from error
    if "digest" in table:
        raise RecipeError(f"{path}: digest: unknown key; it is computed from the file")
    table["digest"] = hashlib.sha256(content).hexdigest()
    try:
        return typing.cast(Recipe, _section(Recipe, table, ""))
    except RecipeError as error:
        raise RecipeError(f"{path}: {error}") from None


def _section(cls: type[_Section], table: Mapping[str, object], where: str) -> _Section:
    """Builds one section of a recipe from its table; ``where`` leads every complaint, as in ``corpus.``."""
    hints = typing.get_type_hints(cls)
    specs = {spec.name: spec for spec in fields(cls)}  # type: ignore[arg-type]
    for key in table:
        if key not in specs:
            allowed = ", ".join(name for name in specs if name != "digest")
            raise RecipeError(f"{where}{key}: unknown key; allowed: {allowed}")
    for name, spec in specs.items():
        has_default = spec.default is not spec.default_factory  # both are MISSING when there is none
        if name not in table and not has_default:
            raise RecipeError(f"{where}{name}: is missing")
    values: dict[str, object] = {}
    for key, value in table.items():
        expected = hints[key]
        if typing.get_origin(expected) is tuple:
            item_class = typing.get_args(expected)[0]
            if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
                raise RecipeError(f"{where}{key} is {value!r}; allowed: tables, each under [[{key}]]")
            values[key] = tuple(_section(item_class, item, f"{key}[{i}].") for i, item in enumerate(value))
        elif expected in _TYPE_NAMES:
            values[key] = value
        elif not isinstance(value, dict):
            raise RecipeError(f"{where}{key} is {value!r}; allowed: a table [{key}]")
        elif isinstance(expected, type) and issubclass(expected, _Section):
            values[key] = _section(expected, value, f"{key}.")
        else:
            values[key] = types.MappingProxyType(value)
    try:
        return cls(**values)
    except RecipeError as error:
        raise RecipeError(f"{where}{error}") from None


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
