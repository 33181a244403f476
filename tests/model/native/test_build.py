import logging
import subprocess

import pytest

from dragoman_model.native import build


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """An empty cache, and nothing remembered of what was built before."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    build.library.cache_clear()
    yield tmp_path / "dragoman"
    build.library.cache_clear()


def test_kernels_are_built_once_and_kept(cache, monkeypatch):
    if build.library() is None:
        pytest.skip("no C compiler here")
    (kept,) = cache.iterdir()
    assert kept.suffix == ".so"
    build.library.cache_clear()
    monkeypatch.setattr(build, "_build", lambda *_: pytest.fail("built again"))
    assert build.library() is not None


def test_a_cache_that_cannot_be_written_is_done_without(cache):
    cache.write_text("a file in the folder's place")
    if build.library() is None:
        pytest.skip("no C compiler here")
    assert cache.is_file()


def test_without_a_compiler_there_are_no_kernels(cache, monkeypatch, caplog):
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.delenv("CC", raising=False)
    with caplog.at_level(logging.INFO):
        assert build.library() is None
    assert "no C compiler" in caplog.text or "x86" in caplog.text


def test_a_compiler_that_fails_is_said_and_done_without(cache, monkeypatch, caplog):
    def fail(*_):
        raise subprocess.CalledProcessError(1, "cc", stderr="unknown option -march")

    monkeypatch.setattr(build, "_build", fail)
    assert build.library() is None
    assert "unknown option" in caplog.text or not caplog.text  # no compiler, no attempt
