import struct
import sys
import warnings
import xml.etree.ElementTree as ET

import pytest

from dragoman_client.pictures.plot import PlotFormat, check_plotting, render_figure
from tests.client.made_up_attention import ALL_KINDS, make_attention

PAIR = ("Tom likes tea.", "Tom mag Tee.")
MEAN = "ATTENTION_REDUCTION_MEAN"
REDUCED = {"level": "ATTENTION_LEVEL_WORD", "layer_reduction": MEAN, "head_reduction": MEAN}


def size_of(png: bytes) -> tuple[int, int]:
    assert png.startswith(b"\x89PNG\r\n\x1a\n")
    width, height = struct.unpack(">II", png[16:24])
    return width, height


def panels(svg: bytes) -> int:
    groups = ET.fromstring(svg).iter("{http://www.w3.org/2000/svg}g")
    return sum(group.get("id", "").startswith("QuadMesh_") for group in groups)


def test_figure_grows_with_the_sentence() -> None:
    short = size_of(render_figure(make_attention(PAIR, **REDUCED), "png"))
    long = size_of(render_figure(make_attention((PAIR[0] * 3, PAIR[1]), **REDUCED), "png"))

    assert long[0] > short[0] > 300


def test_layers_and_heads_that_are_apart_have_a_panel_each() -> None:
    assert panels(render_figure(make_attention(PAIR, level="ATTENTION_LEVEL_WORD"), "svg")) == 2 * 4


def test_each_sentence_is_drawn() -> None:
    assert panels(render_figure(make_attention(PAIR, PAIR, PAIR, **REDUCED), "svg")) == 3


@pytest.mark.parametrize("plot_format", ["png", "svg"])
def test_equal_attention_makes_equal_files(plot_format: PlotFormat) -> None:
    assert render_figure(make_attention(PAIR), plot_format) == render_figure(
        make_attention(PAIR), plot_format
    )


def test_words_that_look_like_mathematics_are_drawn_as_they_are() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        render_figure(
            make_attention((r"It costs $5$ \frac{ $x", r"Es kostet $5$ \frac{ $x"), **REDUCED), "svg"
        )


def test_nothing_but_special_tokens_is_said_to_be() -> None:
    empty = make_attention(("Tom.", " "), kinds=ALL_KINDS[:1], drop_special_tokens=True)

    assert size_of(render_figure(empty, "png"))[0] > 100


def test_what_to_install_is_said_where_matplotlib_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)

    with pytest.raises(ImportError, match=r"pip install '\.\[plot\]'"):
        check_plotting()
