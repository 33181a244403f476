"""The bar of a long file, and what is said above it."""

import io

import pytest
from rich.console import Console

from dragoman_client.commands import progress as module
from dragoman_client.commands.progress import LineProgress
from dragoman_client.lines import Line
from dragoman_client.results import FinishReason, Translation


class Clock:
    """Seconds that pass when they are told to."""

    def __init__(self) -> None:
        self.now = 100.0

    def monotonic(self) -> float:
        return self.now


def translation(sentence_count: int) -> Translation:
    return Translation(
        text="",
        finish_reason=FinishReason.EOS,
        score=-1.0,
        normalized_score=-0.5,
        source_token_count=2,
        target_token_count=2,
        sentence_count=sentence_count,
        tokens=(),
        model="en-de",
        model_digest="",
    )


def test_message_is_shown_as_it_is_above_the_bar() -> None:
    screen = io.StringIO()
    console = Console(file=screen, force_terminal=True, width=60)

    with LineProgress(console, 10, num_done=0, shown=True) as progress:
        progress.say("line 1: [red]12[/bold] [link]")

    assert "line 1: [red]12[/bold] [link]" in screen.getvalue()


@pytest.mark.parametrize("num_done", [0, 50])
def test_bar_tells_the_speed_of_this_run_and_the_time_left(
    monkeypatch: pytest.MonkeyPatch, num_done: int
) -> None:
    clock = Clock()
    monkeypatch.setattr(module, "time", clock)
    screen = io.StringIO()
    console = Console(
        file=screen, force_terminal=True, color_system=None, width=100, get_time=clock.monotonic
    )

    # Lines of ten bytes, two sentences each, one a second; a hundred are left when it breaks off.
    with LineProgress(console, 10 * (num_done + 111), num_done=num_done, shown=True) as progress:
        for index in range(11):
            clock.now += 1.0
            line = Line(num_done + index + 1, "", 10 * (num_done + index + 1))
            progress.advance(line, translation(2))

    last = screen.getvalue().splitlines()[-2]  # behind it the cursor comes back
    assert f"{num_done + 11} lines" in last
    assert "2.0 sentences/s" in last
    assert "left 01:40" in last
