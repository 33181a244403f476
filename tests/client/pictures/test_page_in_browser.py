"""The page in a real browser, which shows what it should and asks nobody for anything."""

import re
import shutil
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright

from dragoman_client.pictures.page import render_page
from tests.client.made_up_attention import make_attention

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
pytestmark = pytest.mark.skipif(
    CHROMIUM is None, reason="no chromium on this machine; Debian's package is `chromium`"
)
FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
]

SENTENCES = [("Tom likes tea.", "Tom mag Tee."), ("She sleeps.", "Sie schläft.")]
PATIENCE = 120_000  # milliseconds; a machine at work may take long, and what works waits for nothing
LEFT, TOP = (f"(found) => found.getBoundingClientRect().{side}" for side in ("x", "y"))
Open = Callable[..., Page]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    expect.set_options(timeout=PATIENCE)
    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS, timeout=PATIENCE)
        yield running
        running.close()


@pytest.fixture
def open_page(browser: Browser, tmp_path: Path) -> Iterator[Open]:
    """Opens a page from a file; what it logs, and what it asks for beyond itself, fails the test in the end."""
    complaints: list[str] = []

    def show(*pairs: tuple[str, str], scheme: str = "light", width: int = 1200, **selection: object) -> Page:
        file = tmp_path / "attention.html"
        attentions = make_attention(*(pairs or SENTENCES), **selection)
        file.write_text(render_page(attentions), encoding="utf-8")
        page = browser.new_page(color_scheme=scheme, viewport={"width": width, "height": 800})  # type: ignore[arg-type]
        page.set_default_timeout(PATIENCE)
        page.on("console", lambda message: complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on(
            "request",
            lambda request: complaints.append(request.url) if request.url != file.as_uri() else None,
        )
        page.goto(file.as_uri())
        return page

    yield show
    for context in browser.contexts:
        context.close()
    assert complaints == []


def choose(page: Page, name: str) -> None:
    page.get_by_role("radio", name=name, exact=True).check(force=True)


def picture(page: Page) -> str:
    return page.locator("#drawing").inner_html()


def hover_cell(page: Page, row: int, column: int) -> None:
    """Points at the middle of a cell."""
    frame = page.locator(".cells .cursor")
    size = float(frame.get_attribute("width") or 0)
    page.locator(".cells").hover(position={"x": (column + 0.5) * size, "y": (row + 0.5) * size})


def test_pointing_at_a_cell_shows_its_weight_and_words(open_page: Open) -> None:
    page = open_page()
    hover_cell(page, 1, 2)

    [attention, _] = make_attention(*SENTENCES)
    weight = attention.tensors[0].mean()[1][2]
    expect(page.locator("#tooltip")).to_have_text(f"{100 * weight:.1f} %mag → tea.")
    expect(page.locator(".rows .on")).to_have_text("mag")
    expect(page.locator(".columns .on")).to_have_text("tea.")

    page.mouse.move(0, 0)
    expect(page.locator("#tooltip")).to_be_hidden()


def test_arrow_keys_move_from_cell_to_cell(open_page: Open) -> None:
    page = open_page()
    page.locator(".map").focus()
    for key in ("ArrowRight", "ArrowDown", "ArrowDown", "End"):
        page.keyboard.press(key)

    expect(page.locator("#tooltip")).to_contain_text("Tee. → </s>")
    page.keyboard.press("Escape")
    expect(page.locator("#tooltip")).to_be_hidden()


def test_kind_layer_and_head_change_the_picture(open_page: Open) -> None:
    page = open_page()
    pictures = [picture(page)]
    for change in (
        lambda: choose(page, "Encoder self"),
        lambda: choose(page, "Decoder self"),
        lambda: page.locator("#layer").select_option("1"),
        lambda: page.locator("#head").select_option("2"),
    ):
        change()
        pictures.append(picture(page))

    assert len(set(pictures)) == 5
    expect(page.locator("#caption")).to_have_text("decoder self-attention · layer 1 · head 2")
    assert page.locator(".columns text").all_text_contents() == ["<s>", "Tom", "mag", "Tee."]


def test_small_multiple_of_each_layer_and_head_chooses_it(open_page: Open) -> None:
    page = open_page()
    multiples = page.locator("#multiples button")
    expect(multiples).to_have_count(3 * 5)  # their means among them
    multiples.nth(1).click()
    expect(page.locator("#caption")).to_have_text("cross-attention · layer 0 · head 1")

    page.keyboard.press("ArrowDown")
    expect(page.locator("#caption")).to_have_text("cross-attention · layer 1 · head 1")
    assert page.locator("#layer").input_value() == "1"
    assert page.locator("#multiples [aria-checked=true]").count() == 1


def test_words_show_their_own_lines_and_shares(open_page: Open) -> None:
    page = open_page()
    choose(page, "Words")
    [attention, _] = make_attention(*SENTENCES)
    weights = attention.tensors[0].mean()
    drawn = [weight for row in weights for weight in row if weight >= 0.02]
    opacities = [
        float(path.get_attribute("stroke-opacity") or 0) for path in page.locator(".links path").all()
    ]
    assert opacities == pytest.approx(sorted(drawn), abs=0.001)

    page.locator(".word", has_text="mag").hover()
    shown = [weight for weight in weights[1] if weight >= 0.02]
    expect(page.locator(".links path:not(.off)")).to_have_count(len(shown))
    assert sorted(map(int, page.locator(".share").all_text_contents())) == sorted(
        round(100 * weight) for weight in shown
    )
    expect(page.locator("#tooltip")).to_contain_text(re.compile("mag.*looks at.*likes"))


def test_words_can_be_reached_by_keys(open_page: Open) -> None:
    page = open_page()
    choose(page, "Words")
    page.locator(".word[tabindex='0']").first.focus()
    page.keyboard.press("ArrowRight")

    expect(page.locator("#tooltip")).to_contain_text("is looked at by")
    expect(page.locator(".word:focus")).to_have_text("likes")


def test_sentences_can_be_chosen(open_page: Open) -> None:
    page = open_page()
    page.get_by_label("Sentence").select_option("1")

    expect(page.locator("#translation")).to_have_text("Sie schläft.")
    assert page.locator(".rows text").all_text_contents() == ["Sie", "schläft.", "</s>"]


def test_single_sentence_is_not_to_be_chosen(open_page: Open) -> None:
    expect(open_page(SENTENCES[0]).get_by_label("Sentence")).to_be_hidden()


@pytest.mark.parametrize(("scheme", "other"), [("light", "dark"), ("dark", "light")])
def test_theme_follows_the_system_until_it_is_chosen(open_page: Open, scheme: str, other: str) -> None:
    page = open_page(scheme=scheme)
    shades = {scheme: brightness(page)}
    page.locator("#theme").click()
    shades[other] = brightness(page)

    assert shades["light"] > 600 > 150 > shades["dark"]


def brightness(page: Page) -> int:
    """Red, green and blue of the page's background together."""
    color = page.evaluate("getComputedStyle(document.body).backgroundColor")
    return sum(map(int, re.findall(r"\d+", color)))


@pytest.mark.parametrize("width", [380, 1200])
def test_hundred_words_can_be_read_in_both_views(open_page: Open, width: int) -> None:
    source = " ".join(f"word{number}" for number in range(100))
    page = open_page((source, source), width=width, layers=[0], level="ATTENTION_LEVEL_WORD")
    page.locator(".map").focus()
    page.keyboard.press("End")
    page.keyboard.press("PageDown")

    expect(page.locator("#tooltip")).to_contain_text("</s> → </s>")
    [left, label] = page.evaluate(f"[...document.querySelectorAll('.cursor, .columns .on')].map({LEFT})")
    assert 0 < left < width
    assert label == pytest.approx(left, abs=12)

    choose(page, "Words")
    tops = page.evaluate(f"[...document.querySelectorAll('.word')].slice(0, 101).map({TOP})")
    assert len(tops) == 101
    assert all(below - above > 10 for above, below in pairwise(tops))
    assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_hostile_text_is_shown_as_it_is(open_page: Open) -> None:
    text = "</script><script>alert(1)</script><b>x</b> &amp; %data%"
    page = open_page((text, text))

    expect(page.locator("#source")).to_have_text(text)
    hover_cell(page, 0, 0)
    expect(page.locator("#tooltip")).to_contain_text("<b>x</b>")


def test_nothing_but_special_tokens_is_said_to_be(open_page: Open) -> None:
    page = open_page(("Tom.", " "), drop_special_tokens=True)

    expect(page.locator("#drawing")).to_have_text("Nothing but special tokens.")
    expect(page.locator("#hint")).to_be_empty()
