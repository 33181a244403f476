"""docs/attention.md names functions; they are where it says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from dragoman_model import attention_maps

PAGE = Path(__file__).parents[2] / "docs" / "attention.md"
LINKS = re.findall(r"\[([^]]+)]\(([^)#]+)(?:#[^)]*)?\)", PAGE.read_text(encoding="utf-8"))


@pytest.mark.parametrize(("text", "target"), sorted(set(LINKS)))
def test_a_link_leads_to_a_file_that_has_what_it_names(text: str, target: str):
    file = PAGE.parent / target
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
    linked = {text.strip("`") for text, target in LINKS if target.endswith("attention_maps.py")}
    assert linked == names - {"renormalise"}  # which `keep` does
