"""scripts/demo, run as a newcomer runs it, with the bundled model."""

import os
import re
import select
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DRAGOMAN = ROOT / ".venv/bin/dragoman"

FOLDER = ROOT / ".venv/.folder"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not DRAGOMAN.exists() or not FOLDER.exists() or FOLDER.read_text().strip() != str(ROOT),
        reason="the demo would first set up .venv, as scripts/test does",
    ),
]


@contextmanager
def demo(*arguments: str, **environment: str) -> Iterator[subprocess.Popen[str]]:
    """A running demo, the leader of a process group that holds all that it starts."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("DRAGOMAN_")}
    process = subprocess.Popen(
        [ROOT / "scripts/demo", *arguments],
        env=inherited | environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        if has_processes(process.pid):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def has_processes(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


def test_demo_translates_draws_an_attention_map_and_leaves_no_process() -> None:
    with demo("A girl is reading a book in the garden.") as process:
        output, errors = process.communicate(timeout=120)

        assert process.returncode == 0, errors
        assert not has_processes(process.pid)

    translation = output.partition('$ dragoman translate "A girl is reading a book in the garden."\n')[
        2
    ].splitlines()[0]
    attention = output.partition('$ dragoman attention "A girl is reading a book in the garden."\n')[2]
    assert "Buch" in translation
    assert "girl" in attention
    assert "Buch" in attention
    assert "To go on:" in output


def test_kept_server_answers_at_the_printed_address_until_it_is_stopped_as_printed() -> None:
    with demo("--keep", "Good morning!") as process:
        output, errors = process.communicate(timeout=120)
        assert process.returncode == 0, errors
        address = re.search(r"export DRAGOMAN_SERVER=(\S+)", output)
        server = re.search(r"Stop it with: kill (\d+)", output)
        assert address is not None
        watch = re.search(r"dragoman (status --watch .*)", output)
        assert server is not None
        assert watch is not None

        subprocess.run([DRAGOMAN, "status", "--server", address[1]], check=True, capture_output=True)
        subprocess.run([DRAGOMAN, *watch[1].split(), "--count", "1"], check=True, capture_output=True)
        ended = os.pidfd_open(int(server[1]))
        os.kill(int(server[1]), signal.SIGTERM)

        assert select.select([ended], [], [], 30)[0], "the server did not stop"
        os.close(ended)


def test_server_that_does_not_start_is_shown_with_its_reason() -> None:
    with demo("Good morning!", DRAGOMAN_MODEL="/nowhere") as process:
        _, errors = process.communicate(timeout=120)

        assert process.returncode == 1
        assert "the server did not start" in errors
        assert "/nowhere" in errors
        assert not has_processes(process.pid)


def test_interrupted_demo_stops_its_server() -> None:
    with demo("Good morning!") as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith("Starting a server")
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)

        assert process.returncode == 128 + signal.SIGTERM
        assert not has_processes(process.pid)


def test_unknown_option_is_refused_before_anything_starts() -> None:
    with demo("--kep") as process:
        output, errors = process.communicate(timeout=60)

        assert process.returncode == 2
        assert output == ""
        assert "--kep" in errors
