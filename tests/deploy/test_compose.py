"""docker-compose.yml, the image's files and the page about them, as far as reading them shows."""

from __future__ import annotations

import dataclasses
import re

from dragoman_server.config import ServerConfig
from tests.deploy.files import DEPLOY, ROOT, RULES

COMPOSE = (ROOT / "docker-compose.yml").read_text()
DOCKERFILE = (DEPLOY / "Dockerfile").read_text()
PAGE = (ROOT / "docs/deployment.md").read_text()


def test_every_port_is_published_on_loopback_unless_told_otherwise():
    ports = re.findall(r"^ +- (\S+:\d+)$", COMPOSE, re.MULTILINE)

    assert len(ports) == COMPOSE.count("PORT:-") >= 6
    assert all(port.startswith("${DRAGOMAN_BIND:-127.0.0.1}:") for port in ports)


def test_every_variable_is_documented_with_its_default():
    variables = dict(re.findall(r"\$\{([A-Z_]+):?-([^}]*)\}", COMPOSE))
    assert variables["DRAGOMAN_PORT"] == "50051"

    for name, default in variables.items():
        (row,) = re.findall(rf"^\| `{name}` \|.*$", PAGE, re.MULTILINE)
        assert f"`{default}`" in row or (default.startswith("https://") and "PyTorch's" in row)


def test_every_setting_that_the_server_is_given_is_one_that_it_has():
    given = set(re.findall(r"^ +(DRAGOMAN_[A-Z_]+): ", COMPOSE, re.MULTILINE))
    given |= set(re.findall(r"(DRAGOMAN_[A-Z_]+)=", DOCKERFILE))

    assert given
    assert given <= {f"DRAGOMAN_{field.name.upper()}" for field in dataclasses.fields(ServerConfig)}


def test_server_is_not_killed_while_it_drains():
    (stop,) = re.findall(r"DRAGOMAN_STOP_GRACE:-(\d+)s", COMPOSE)
    (grace,) = re.findall(r"DRAGOMAN_GRACE_SECONDS:-(\d+)", COMPOSE)

    # It flushes for a second and waits for each engine's last step for up to five.
    assert int(stop) >= int(grace) + 6


def test_every_image_that_is_fetched_is_pinned():
    fetched = re.findall(r"image: (\S+)", COMPOSE) + re.findall(r"^FROM (\S+)", DOCKERFILE, re.MULTILINE)
    fetched = [image for image in fetched if not image.startswith("dragoman-")]

    assert len(fetched) == 4
    assert all(re.search(r":v?\d+\.\d+\.\d+", image) for image in fetched)


def test_every_file_that_the_image_is_built_from_is_in_its_context():
    sent = (ROOT / ".dockerignore").read_text().split()
    needed = {
        "constraints.txt",
        "pyproject.toml",
        "README.md",
        "LICENSE",
        "proto",
        "model",
        "server",
        "client",
    }

    assert needed == {line.removeprefix("!") for line in sent if line.startswith("!")}
    assert all((ROOT / name).exists() for name in needed)


def test_the_page_lists_every_alert_with_its_severity():
    rules = re.findall(r"alert: (\w+)(?:(?!alert:).)*?severity: (\w+)", RULES.read_text(), re.DOTALL)

    assert sorted(re.findall(r"^\| `(Dragoman\w+)` \|.*\| (\w+) \|$", PAGE, re.MULTILINE)) == sorted(rules)
