"""The bar of a long file, and what is said above it."""

import io

from rich.console import Console

from dragoman_client.commands.progress import LineProgress


def test_message_is_shown_as_it_is_above_the_bar() -> None:
    screen = io.StringIO()
    console = Console(file=screen, force_terminal=True, width=60)

    with LineProgress(console, 10, num_done=0, shown=True) as progress:
        progress.say("line 1: [red]12[/bold] [link]")

    assert "line 1: [red]12[/bold] [link]" in screen.getvalue()
