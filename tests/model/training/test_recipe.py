import hashlib
import re
from pathlib import Path

import pytest

from dragoman_model.errors import RecipeError
from dragoman_model.training.recipe import AugmentationOptions, CleaningOptions, Download, load_recipe

RECIPE = f"""
name = "en-de"
source_language = "en"
target_language = "de"

[[downloads]]
name = "pairs"
url = "https://example.org/a/pairs%20all.tsv"
size_bytes = 12
sha256 = "{"0" * 64}"

[[downloads]]
name = "test"
url = "https://example.org/test.txt"
size_bytes = 7
sha256 = "{"1" * 64}"
mirror_name = "test.en.txt"

[corpus]
train = "pairs"
test_source = "test"
test_target = "test"
dev_size = 5

[cleaning]
max_length_ratio = 3

[model]
d_model = 256

[training]
"""


@pytest.fixture
def write(tmp_path):
    def write(text=RECIPE):
        path = tmp_path / "recipe.toml"
        path.write_text(text)
        return path

    return write


def test_a_recipe_is_read_with_its_values_and_the_defaults_of_the_rest(write):
    path = write()
    recipe = load_recipe(path)
    assert (recipe.name, recipe.source_language, recipe.target_language) == ("en-de", "en", "de")
    assert recipe.corpus.dev_size == 5
    assert recipe.cleaning == CleaningOptions(max_length_ratio=3.0)
    assert type(recipe.cleaning.max_length_ratio) is float
    assert recipe.augmentation == AugmentationOptions()
    assert recipe.tokenizer.vocab_size == 8000
    assert recipe.model == {"d_model": 256}
    assert recipe.training == {}
    assert recipe.digest == hashlib.sha256(path.read_bytes()).hexdigest()


def test_a_download_is_named_after_the_end_of_its_address(write):
    recipe = load_recipe(write())
    assert recipe.download("pairs").file_name == "pairs all.tsv"
    assert recipe.download("test").file_name == "test.txt"
    assert recipe.download("test").mirror_name == "test.en.txt"


def test_a_recipe_cannot_be_changed(write):
    recipe = load_recipe(write())
    with pytest.raises(AttributeError):
        recipe.name = "other"
    with pytest.raises(TypeError):
        recipe.model["d_model"] = 512


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('name = "en-de"', "", "name: is missing"),
        ('name = "en-de"', "name = 3", "name is 3; allowed: a string"),
        ('name = "en-de"', 'name = "en-de"\nnaem = "x"', "naem: unknown key; allowed: name, source_language"),
        ('name = "en-de"', 'name = "en-de"\ndigest = "x"', "digest: unknown key"),
        ("dev_size = 5", "dev_size = -1", "corpus.dev_size is -1; allowed: at least 0"),
        ("dev_size = 5", 'dev_size = "5"', "corpus.dev_size is '5'; allowed: a whole number"),
        ("dev_size = 5", "dev_size = true", "corpus.dev_size is True; allowed: a whole number"),
        ("dev_size = 5", "dev_size = 5.0", "corpus.dev_size is 5.0; allowed: a whole number"),
        ("dev_size = 5", "devsize = 5", "corpus.devsize: unknown key; allowed: train, format"),
        ("dev_size = 5", 'format = "csv"', "corpus.format is 'csv'; allowed: tsv"),
        ("dev_size = 5", "target_column = 0", "corpus.target_column is 0, which is the source's"),
        (
            'train = "pairs"',
            'train = "pears"',
            "corpus.train is 'pears'; allowed: the name of a download (pairs, test)",
        ),
        ('train = "pairs"', "", "corpus.train: is missing"),
        ("[model]", "[model", "is not a TOML file"),
        ("[model]\nd_model = 256", "", None),
        (
            "max_length_ratio = 3",
            "max_length_ratio = 0.5",
            "cleaning.max_length_ratio is 0.5; allowed: at least 1",
        ),
        (
            "max_length_ratio = 3",
            "max_length_ratio = nan",
            "cleaning.max_length_ratio is nan; allowed: at least 1",
        ),
        ("max_length_ratio = 3", "max_length_ratio = inf", None),
        (
            "max_length_ratio = 3",
            "drop_identical = 1",
            "cleaning.drop_identical is 1; allowed: true or false",
        ),
        ("[training]", "[augmentation]\njoined = 1.5", "augmentation.joined is 1.5; allowed: 0 to 1"),
        ("[training]", "[augmentation]\njoined = true", "augmentation.joined is True; allowed: a number"),
        ("[training]", "[augmentation]\ncapitals = 0.9", "is 1.12; allowed: at most 1"),
        ("[training]", "[tokenizer]\nvocab_size = 200", "tokenizer.vocab_size is 200; allowed: 262 to 64000"),
        ("[training]", "[[training]]", "training is [{}]; allowed: a table [training]"),
        (
            "[cleaning]\n",
            "[[cleaning]]\n",
            "cleaning is [{'max_length_ratio': 3}]; allowed: a table [cleaning]",
        ),
        ("size_bytes = 12", "size_bytes = 0", "downloads[0].size_bytes is 0; allowed: at least 1"),
        (
            '"test.en.txt"',
            '"../test"',
            "downloads[1].mirror_name is '../test'; allowed: a file name without folders",
        ),
        ("0" * 64, "0" * 63 + "G", "allowed: 64 lower-case hexadecimal digits"),
        ("https://example.org/a", "http://example.org/a", "downloads[0].url is 'http://example.org/a"),
        ("https://example.org/a", "file:///etc", "allowed: an https address"),
        ('name = "test"', 'name = "pairs"', "downloads: two have the name 'pairs'"),
    ],
)
def test_a_wrong_value_is_refused_with_file_key_and_what_is_allowed(write, old, new, message):
    assert old in RECIPE
    path = write(RECIPE.replace(old, new))
    if message is None:
        load_recipe(path)
        return
    with pytest.raises(RecipeError, match=re.escape(message)) as caught:
        load_recipe(path)
    assert str(caught.value).startswith(f"{path}: ")


def test_downloads_must_be_tables(write):
    text = re.sub(r"\[\[downloads\]\].*?(?=\[corpus\])", "", RECIPE, flags=re.DOTALL)
    with pytest.raises(
        RecipeError, match=r"downloads is \['a'\]; allowed: tables, each under \[\[downloads\]\]"
    ):
        load_recipe(write('downloads = ["a"]\n' + text))


def test_a_missing_recipe_is_named(tmp_path):
    with pytest.raises(RecipeError, match=r"none\.toml: cannot be read: No such file"):
        load_recipe(tmp_path / "none.toml")


def test_a_recipe_that_is_not_utf8_is_refused(tmp_path):
    path = tmp_path / "recipe.toml"
    path.write_bytes(b'name = "\xff"')
    with pytest.raises(RecipeError, match="is not a TOML file"):
        load_recipe(path)


@pytest.mark.parametrize("host", ["127.0.0.1:80", "localhost", "[::1]:8080"])
def test_plain_http_is_good_on_this_machine(host):
    Download(name="x", url=f"http://{host}/x", size_bytes=1, sha256="0" * 64)


def test_the_shipped_recipe_is_valid():
    recipe = load_recipe(Path(__file__).parents[3] / "recipes" / "tatoeba-en-de.toml")
    assert (recipe.source_language, recipe.target_language) == ("en", "de")
    assert [download.file_name for download in recipe.downloads] == [
        "deu-eng.zip",
        "tatoeba-test-v2021-08-07.eng",
        "tatoeba-test-v2021-08-07.deu",
    ]
