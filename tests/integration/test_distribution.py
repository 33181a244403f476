"""What a person gets who installs the distribution, whole or in its light form."""

import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = {
    "dragoman": "proto",
    "dragoman_model": "model",
    "dragoman_server": "server",
    "dragoman_client": "client",
}


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-d", folder], cwd=ROOT, check=True, capture_output=True
    )
    return folder


def list_files(package: str) -> set[str]:
    """A package's files, as a wheel names them."""
    room = ROOT / PACKAGES[package]
    files = (path for path in (room / package).rglob("*") if path.is_file())
    return {path.relative_to(room).as_posix() for path in files if "__pycache__" not in path.parts}


@pytest.mark.parametrize("package", PACKAGES)
def test_wheel_holds_every_file_of_each_room_and_its_type_marker(built: Path, package: str) -> None:
    (wheel,) = built.glob("*.whl")
    names = set(zipfile.ZipFile(wheel).namelist())

    assert list_files(package) <= names
    assert f"{package}/py.typed" in names


def test_wheel_holds_the_contract_and_nothing_outside_its_packages(built: Path) -> None:
    (wheel,) = built.glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()

    assert "dragoman/v1/translation.proto" in names
    assert {name.split("/")[0] for name in names if ".dist-info/" not in name} == set(PACKAGES)


def test_source_distribution_holds_the_rooms_and_the_licence(built: Path) -> None:
    (archive,) = built.glob("*.tar.gz")
    with tarfile.open(archive) as contents:
        names = {name.partition("/")[2] for name in contents.getnames()}

    assert {"LICENSE", "README.md", "pyproject.toml", "proto/dragoman/v1/translation.proto"} <= names
    assert {f"{room}/{file}" for package, room in PACKAGES.items() for file in list_files(package)} <= names


# Runs in a fresh interpreter. Only what the base install has (and what that pulls in) may be imported.
IMPORT_CLIENT = """
import importlib, pkgutil, sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ABSENT:
            raise ModuleNotFoundError(f"{name} is not in the base install", name=name)

ABSENT = set(sys.argv[1:])
sys.meta_path.insert(0, Absent())
import dragoman_client
for module in pkgutil.walk_packages(dragoman_client.__path__, "dragoman_client."):
    importlib.import_module(module.name)
    print(module.name)
"""
# An import name that differs from the distribution's.
IMPORT_NAMES = {"grpcio_reflection": "grpc_reflection"}


def name_extras() -> set[str]:
    """Import names of all that a base install lacks and another brings."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    distributions = {
        re.match(r"[\w-]+", line)[0].replace("-", "_")
        for line in extras["server"] + extras["train"] + extras["plot"]
    }
    return {IMPORT_NAMES.get(name, name) for name in distributions - {"dragoman"}}


def test_client_imports_with_the_base_install_alone() -> None:
    absent = name_extras() | {"dragoman_model", "dragoman_server"}
    assert {"torch", "numpy", "sentencepiece", "grpc_reflection", "matplotlib"} <= absent

    result = subprocess.run(
        [sys.executable, "-c", IMPORT_CLIENT, *sorted(absent)], capture_output=True, text=True, check=False
    )

    assert result.returncode == 0, result.stderr
    assert "dragoman_client.errors" in result.stdout.split()
