"""What scripts/_setup.sh does on a machine, seen through a stand-in for Python that writes down its calls."""

import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

# Answers as Python would, makes "environments" that hold itself, and installs nothing.
STAND_IN = """#!/bin/bash
case "$*" in
  "-c "*) exit "${TOO_OLD:-0}" ;;
  --version) echo "Python 3.11.0" ;;
  "-m venv --clear "*) rm -rf .venv; mkdir -p .venv/bin; cp "$0" .venv/bin/python; echo venv >>calls ;;
  "-m pip install"*) echo "${@: -1}" >>calls; echo "no room on the disk"; exit "${PIP_FAILS:-0}" ;;
esac
"""


@dataclass(frozen=True)
class Machine:
    """A checkout in a folder of its own, on a machine whose only Python is the stand-in."""

    folder: Path

    def install(self, name: str, **environment: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["/bin/bash", "-c", f"set -euo pipefail; source scripts/_setup.sh; install_set {name}"],
            cwd=self.folder,
            env={"PATH": f"{self.folder.parent}/bin:/usr/bin:/bin", "PYTHON": "stand-in"} | environment,
            capture_output=True,
            text=True,
            check=False,
        )

    def calls(self) -> list[str]:
        """The environments made and the sets installed so far."""
        calls = self.folder / "calls"
        return calls.read_text().split() if calls.exists() else []


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    stand_in = tmp_path / "bin" / "stand-in"
    stand_in.parent.mkdir()
    stand_in.write_text(STAND_IN)
    stand_in.chmod(0o755)
    folder = tmp_path / "checkout"
    (folder / "scripts").mkdir(parents=True)
    for name in ("scripts/_setup.sh", "pyproject.toml", "constraints.txt"):
        (folder / name).write_text((ROOT / name).read_text())
    return Machine(folder)


def test_second_run_installs_nothing(machine: Machine) -> None:
    assert machine.install("server").returncode == 0
    assert machine.install("server").returncode == 0

    assert machine.calls() == ["venv", ".[server]"]


@pytest.mark.parametrize("changed", ["pyproject.toml", "constraints.txt"])
def test_changed_requirements_are_installed_again(machine: Machine, changed: str) -> None:
    machine.install("dev")
    with (machine.folder / changed).open("a") as file:
        file.write("# changed\n")
    machine.install("dev")

    assert machine.calls() == ["venv", ".[dev]", ".[dev]"]


def test_dev_set_serves_where_the_server_is_asked_for_but_not_the_reverse(machine: Machine) -> None:
    machine.install("server")
    machine.install("dev")
    machine.install("server")

    assert machine.calls() == ["venv", ".[server]", ".[dev]"]


def test_environment_behind_a_link_to_another_folder_is_left_alone(machine: Machine) -> None:
    theirs = machine.folder.with_name("theirs")
    theirs.mkdir()
    (theirs / ".folder").write_text("/elsewhere\n")
    (machine.folder / ".venv").symlink_to(theirs)

    result = machine.install("server")

    assert result.returncode == 1
    assert "is a link to" in result.stderr
    assert (theirs / ".folder").exists()
    assert machine.calls() == []


def test_environment_that_came_from_another_folder_is_made_anew(machine: Machine) -> None:
    machine.install("server")
    moved = Machine(machine.folder.rename(machine.folder.with_name("elsewhere")))
    moved.install("server")

    assert moved.calls() == ["venv", ".[server]", "venv", ".[server]"]


def test_failed_installation_says_why_and_is_tried_again(machine: Machine) -> None:
    failed = machine.install("server", PIP_FAILS="1")

    assert failed.returncode == 1
    assert "no room on the disk" in failed.stderr
    assert machine.install("server").returncode == 0
    assert machine.calls() == ["venv", ".[server]", ".[server]"]


def test_machine_without_a_new_enough_python_is_told_so(machine: Machine) -> None:
    # Real Pythons further down the path must not be found either.
    result = machine.install("server", TOO_OLD="1", PATH=f"{machine.folder.parent}/bin")

    assert result.returncode == 1
    assert "needs Python 3.11 or newer" in result.stderr
    assert not (machine.folder / ".venv").exists()
