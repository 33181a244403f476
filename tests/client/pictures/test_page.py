import base64
import hashlib
import json
import re
from array import array
from typing import Any

import pytest

from dragoman_client.pictures.page import render_page
from tests.client.made_up_attention import ALL_KINDS, make_attention

PAIR = ("Tom likes tea.", "Tom mag Tee.")
HOSTILE = [
    "</script><script>alert(1)</script>",
    "<!--<script> &amp; %data% %title%",
    "\u2028\u2029 \\ \" ' <img/src=x>",
]


def data_of(page: str) -> dict[str, Any]:
    match = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    assert match
    return dict(json.loads(match[1]))


def weights_of(tensor: dict[str, Any]) -> list[float]:
    return [value / 65535 for value in array("H", base64.b64decode(tensor["weights"]))]


def test_page_holds_every_weight() -> None:
    [attention] = make_attention(PAIR)
    [sentence] = data_of(render_page([attention]))["sentences"]

    for tensor, written in zip(attention.tensors, sentence["tensors"], strict=True):
        assert written["kind"] == tensor.kind.value
        assert (written["layers"], written["heads"]) == (list(tensor.layers), list(tensor.heads))
        assert weights_of(written) == pytest.approx(list(tensor.values), abs=1e-5)


def test_weights_that_were_left_out_are_zero() -> None:
    [attention] = make_attention(PAIR, kinds=ALL_KINDS[:1], top_k=1)
    [tensor] = data_of(render_page([attention]))["sentences"][0]["tensors"]
    row = weights_of(tensor)[: attention.weights.num_columns]

    assert sorted(row)[:-1] == [0.0] * (len(row) - 1)
    assert max(row) == pytest.approx(attention.weights.values[0], abs=1e-5)


def test_reduced_axes_are_not_there_and_the_caption_says_how() -> None:
    reduced = {"head_reduction": "ATTENTION_REDUCTION_MAX", "layer_reduction": "ATTENTION_REDUCTION_MAX"}
    page = render_page(make_attention(PAIR, **reduced), reduction="max")
    [tensor] = data_of(page)["sentences"][0]["tensors"]

    assert (tensor["layers"], tensor["heads"]) == (None, None)
    assert tensor["description"] == ["cross-attention", "maximum of 2 layers", "maximum of 4 heads"]


@pytest.mark.parametrize("text", HOSTILE)
def test_text_cannot_leave_the_place_that_holds_it(text: str) -> None:
    page = render_page(make_attention((text, text)))

    [sentence] = data_of(page)["sentences"]
    assert sentence["translation"] == " ".join(text.split())
    plain = render_page(make_attention(PAIR))
    for mark in ("<script", "</script", "<!--", "<img", "<title", "</title"):
        assert page.count(mark) == plain.count(mark)
    assert not re.search("[\u2028\u2029]", page)


def test_policy_allows_the_page_s_own_script_and_style_and_no_network() -> None:
    page = render_page(make_attention(PAIR))
    policy = re.search(r'http-equiv="Content-Security-Policy" content="([^"]*)"', page)
    assert policy

    for element, directive in (("script", "script-src"), ("style", "style-src")):
        [content] = re.findall(rf"<{element}>(.*?)</{element}>", page, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
        assert f"{directive} 'sha256-{digest}'" in policy[1]
    assert policy[1].startswith("default-src 'none';")
    assert "http:" not in page.replace("http://www.w3.org/2000/svg", "")
    assert "https:" not in page
