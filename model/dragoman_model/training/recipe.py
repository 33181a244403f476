"""Training recipes: one TOML file that says what a model is trained from, and how."""

import hashlib
import re
import tomllib
import types
import urllib.parse
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import ClassVar

from dragoman_model.errors import RecipeError
from dragoman_model.training.sections import Section, number, rate, read_section

RECIPE_FILE = "recipe.toml"  # a model directory carries the recipe it was made by


@dataclass(frozen=True, kw_only=True)
class Download(Section):
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
    size_bytes: int = number(minimum=1)
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
class CorpusOptions(Section):
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
    source_column: int = number(0, minimum=0)
    target_column: int = number(1, minimum=0)
    test_source: str
    test_target: str
    dev_size: int = number(2000, minimum=0)
    seed: int = number(0, minimum=0)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.format not in self.FORMATS:
            raise RecipeError(f"format is {self.format!r}; allowed: {', '.join(self.FORMATS)}")
        if self.source_column == self.target_column:
            raise RecipeError(
                f"target_column is {self.target_column}, which is the source's; allowed: another column"
            )


@dataclass(frozen=True, kw_only=True)
class CleaningOptions(Section):
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

    min_characters: int = number(1, minimum=1)
    max_characters: int = number(400, minimum=1)
    max_words: int = number(80, minimum=1)
    max_length_ratio: float = number(2.5, minimum=1.0)
    length_slack: int = number(12, minimum=0)
    drop_identical: bool = True
    drop_duplicates: bool = True


@dataclass(frozen=True, kw_only=True)
class AugmentationOptions(Section):
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

    drop_punctuation: float = rate(0.08)
    lower_case: float = rate(0.08)
    lower_case_drop_punctuation: float = rate(0.03)
    capitals: float = rate(0.08)
    typographic: float = rate(0.03)
    number_copies: int = number(8, minimum=0, maximum=1000)
    numbered: float = rate(0.04)
    joined: float = rate(0.12)
    joined_numbers: float = rate(0.01)
    max_joined_characters: int = number(400, minimum=1)
    copied: float = rate(0.02)
    names: float = rate(0.05)

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
class TokenizerOptions(Section):
    """The joint vocabulary.

    Attributes:
        vocab_size: Pieces, the 5 special ones and the 256 bytes included.
        character_coverage: Share of all characters that get a piece of their own; the rest is spelt in bytes.
        seed: Which changes the augmentation pass for the vocabulary makes.
    """

    vocab_size: int = number(8000, minimum=262, maximum=64000)
    character_coverage: float = number(0.9999, minimum=0.98, maximum=1.0)
    seed: int = number(0, minimum=0)


@dataclass(frozen=True, kw_only=True)
class Recipe(Section):
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
    try:
        return read_section(Recipe, table, digest=hashlib.sha256(content).hexdigest())
    except RecipeError as error:
        raise RecipeError(f"{path}: {error}") from None
