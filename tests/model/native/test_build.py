import logging
import shutil
import subprocess

import pytest

from dragoman_model.native import build


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """An empty cache, and nothing remembered of what was built before."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    build.library.cache_clear()
    yield tmp_path / "dragoman" / "kernels"
    build.library.cache_clear()


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """Kernels that were built once, in a cache of their own."""
    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("built")
        patch.setenv("XDG_CACHE_HOME", str(folder))
        build.library.cache_clear()
        if build.library() is None:
            pytest.skip("no C compiler here")
    return next(folder.glob("dragoman/kernels/*.so"))


def test_kernels_are_built_once_and_kept(cache, monkeypatch):
    if build.library() is None:
        pytest.skip("no C compiler here")
    (kept,) = cache.iterdir()
    assert kept.suffix == ".so"
    build.library.cache_clear()
    monkeypatch.setattr(build, "_build", lambda *_: pytest.fail("built again"))
    assert build.library() is not None


def test_a_cache_that_cannot_be_written_is_done_without(cache):
    cache.parent.mkdir()
    cache.write_text("a file in the folder's place")
    if build.library() is None:
        pytest.skip("no C compiler here")
    assert cache.is_file()


@pytest.fixture
def copied(cache, monkeypatch, built):
    """The cache, where to build is to copy what was built once."""
    monkeypatch.setattr(build, "_build", lambda _, target: shutil.copy(built, target))
    return cache


def test_a_user_without_a_home_has_the_kernels_all_the_same(copied, monkeypatch):
    def fail():
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setattr(build.Path, "home", fail)
    assert build.library() is not None


def test_half_a_library_is_built_anew_and_kept(copied, built):
    copied.mkdir(parents=True, mode=0o700)
    kept = copied / built.name
    kept.write_bytes(built.read_bytes()[:100])
    kept.chmod(0o700)
    assert build.library() is not None
    assert kept.read_bytes() == built.read_bytes()


@pytest.mark.parametrize("mode", [0o720, 0o702])
def test_a_library_that_others_may_have_written_is_built_anew(copied, built, mode):
    copied.mkdir(parents=True, mode=0o700)
    kept = copied / built.name
    kept.write_bytes(b"planted")
    kept.chmod(mode)
    assert build.library() is not None
    assert kept.read_bytes() == built.read_bytes()


def test_a_folder_that_others_may_write_to_is_left_alone(copied, built):
    copied.mkdir(parents=True)
    copied.chmod(0o777)
    (copied / built.name).write_bytes(b"planted")
    assert build.library() is not None
    assert [kept.read_bytes() for kept in copied.iterdir()] == [b"planted"]


def test_a_full_disk_under_the_cache_is_done_without(cache, monkeypatch, built):
    def build_elsewhere(_, target):
        if target.is_relative_to(cache):
            raise subprocess.CalledProcessError(1, "cc", stderr="no space left on device")
        shutil.copy(built, target)

    monkeypatch.setattr(build, "_build", build_elsewhere)
    assert build.library() is not None


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
