"""The pages on attention name functions; they are where the pages say."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from dragoman_model import attention_maps

DOCS = Path(__file__).parents[2] / "docs"


def links(page: str) -> list[tuple[str, str]]:
    """Returns what a page's links say, and to which files they lead."""
    content = (DOCS / page).read_text(encoding="utf-8")
    return re.findall(r"\[([^]]+)]\(([^)#]+)(?:#[^)]*)?\)", content)


@pytest.mark.parametrize(("text", "target"), sorted({*links("attention.md"), *links("alignments.md")}))
def test_a_link_leads_to_a_file_that_has_what_it_names(text: str, target: str):
    file = DOCS / target
    assert file.is_file()
    for name in re.findall("`([^`]+)`", text):
        for part in name.split("."):
            content = file.read_text(encoding="utf-8")
            assert re.search(rf"^\s*(def|class) {part}\b", content, re.MULTILINE), part


def test_every_function_on_weights_is_on_the_page():
    names = {
        name
        for name, value in vars(attention_maps).items()
        if getattr(value, "__module__", "") == attention_maps.__name__ and not name.startswith("_")
    }
    linked = {
        text.strip("`") for text, target in links("attention.md") if target.endswith("attention_maps.py")
    }
    assert linked == names - {"renormalise"}  # which `keep` does
