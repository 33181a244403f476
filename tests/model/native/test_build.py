import logging
import shutil
import subprocess

import pytest
from click.testing import CliRunner

from dragoman_model.errors import DeviceError
from dragoman_model.native import build


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """An empty cache, and nothing remembered of what was built before."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("DRAGOMAN_KERNELS_DIR", str(tmp_path / "ahead"))
    build.library.cache_clear()
    yield tmp_path / "dragoman" / "kernels"
    build.library.cache_clear()


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """Kernels that were built once, in a cache of their own."""
    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("built")
        patch.setenv("XDG_CACHE_HOME", str(folder))
        patch.setenv("DRAGOMAN_KERNELS_DIR", str(folder / "ahead"))
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
    monkeypatch.setattr(build, "_build", lambda *args: shutil.copy(built, args[-1]))
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
    def build_elsewhere(compiler, variant, target):
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


def test_kernels_that_were_built_ahead_are_taken_where_there_is_no_compiler(copied, monkeypatch, tmp_path):
    said = CliRunner().invoke(build.main, [str(tmp_path / "ahead")])
    assert said.exit_code == 0
    files = said.output.split()
    assert len(files) == len(build.VARIANTS)
    monkeypatch.setattr(build, "_compiler", lambda: None)
    kernels = build.library()
    assert kernels is not None
    assert kernels._name in files
    assert not copied.exists()


def test_what_was_built_ahead_from_another_source_is_left_alone(copied, monkeypatch, tmp_path):
    build.build_ahead(tmp_path / "ahead")
    other = tmp_path / "kernels.c"
    other.write_bytes(build.SOURCE.read_bytes() + b"\n")
    monkeypatch.setattr(build, "SOURCE", other)
    monkeypatch.setattr(build, "_compiler", lambda: None)
    assert build.library() is None


def test_a_file_is_named_after_all_that_it_is_built_from(monkeypatch, tmp_path):
    folder = tmp_path / "native"
    shutil.copytree(
        build.SOURCE.parent, folder, ignore=shutil.ignore_patterns("built", "__pycache__", "*.py")
    )
    monkeypatch.setattr(build, "SOURCE", folder / build.SOURCE.name)
    names = {build._file_name(build.VARIANTS[0])}
    for file in sorted(folder.iterdir()):
        with file.open("a", encoding="utf-8") as text:
            text.write("/**/")
        names.add(build._file_name(build.VARIANTS[0]))
    assert len(names) == 1 + len(list(folder.iterdir())) > 2


def test_to_build_ahead_without_a_compiler_is_an_error_that_says_what_to_install(monkeypatch, tmp_path):
    monkeypatch.setattr(build, "_compiler", lambda: None)
    said = CliRunner().invoke(build.main, [str(tmp_path)])
    assert said.exit_code == 1
    assert "gcc" in said.output


def test_other_processors_have_nothing_to_build(monkeypatch, tmp_path):
    monkeypatch.setattr(build.platform, "machine", lambda: "aarch64")
    said = CliRunner().invoke(build.main, [str(tmp_path)])
    assert said.exit_code == 0
    assert not list(tmp_path.iterdir())
    assert build.runnable() == []


def test_the_variant_can_be_named_and_so_can_none(copied, monkeypatch):
    for variant in build.runnable():
        monkeypatch.setenv("DRAGOMAN_KERNELS", variant.name)
        build.library.cache_clear()
        assert f"kernels-{variant.name}-" in build.library()._name
    monkeypatch.setenv("DRAGOMAN_KERNELS", "none")
    build.library.cache_clear()
    assert build.library() is None


def test_a_variant_that_this_processor_lacks_is_refused_with_those_it_can_run(cache, monkeypatch):
    monkeypatch.setenv("DRAGOMAN_KERNELS", "avx1024")
    with pytest.raises(DeviceError, match=r"'avx1024'; this processor can run auto.*none"):
        build.library()


def test_a_variant_that_the_compiler_does_not_know_gives_way_to_the_next(cache, monkeypatch, built, caplog):
    best, *others = build.runnable()
    if not others:
        pytest.skip("one variant is all that this processor can run")

    def build_others(_, variant, target):
        if variant == best:
            raise subprocess.CalledProcessError(1, "cc", stderr="unrecognized option")
        shutil.copy(built, target)

    monkeypatch.setattr(build, "_build", build_others)
    assert f"kernels-{others[0].name}-" in build.library()._name
    assert "unrecognized option" in caplog.text
