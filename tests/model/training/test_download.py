import contextlib
import hashlib
import http.server
import io
import threading
import zipfile

import pytest

from dragoman_model.errors import DownloadError
from dragoman_model.training import download as module
from dragoman_model.training.download import default_cache_dir, fetch, read_text
from dragoman_model.training.recipe import Download

CONTENT = bytes(range(256)) * 1000  # more than one chunk


class Handler(http.server.BaseHTTPRequestHandler):
    """Serves CONTENT, and on other paths what goes wrong with servers."""

    def do_GET(self):
        self.server.paths.append(self.path)
        if self.path == "/moved/file.bin":
            self.send_response(302)
            self.send_header("Location", "/file.bin")
            self.end_headers()
            return
        if self.path == "/missing/file.bin":
            self.send_error(404)
            return
        body = {"/longer/file.bin": CONTENT + b"!", "/other/file.bin": CONTENT[::-1]}.get(self.path, CONTENT)
        body = CONTENT[:70_000] if self.path in ("/short/file.bin", "/broken/file.bin") else body
        self.send_response(200)
        self.send_header(
            "Content-Length", str(len(CONTENT) if self.path == "/broken/file.bin" else len(body))
        )
        self.end_headers()
        with contextlib.suppress(ConnectionError):  # a client that saw too much hangs up
            self.wfile.write(body)

    def log_message(self, *args):
        pass


@pytest.fixture
def server():
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.paths = []
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture(autouse=True)
def no_surroundings(monkeypatch, tmp_path):
    monkeypatch.delenv("DRAGOMAN_DATA_MIRROR", raising=False)
    monkeypatch.setenv("DRAGOMAN_CACHE", str(tmp_path / "default-cache"))


@pytest.fixture
def cache(tmp_path):
    return tmp_path / "cache"


def wanted(server, path="/file.bin", **changes):
    values = {
        "name": "data",
        "url": f"http://127.0.0.1:{server.server_address[1]}{path}",
        "size_bytes": len(CONTENT),
        "sha256": hashlib.sha256(CONTENT).hexdigest(),
    }
    return Download(**(values | changes))


def files_in(folder):
    return [path for path in folder.rglob("*") if path.is_file()] if folder.exists() else []


def test_a_file_is_downloaded_once_and_then_taken_from_the_cache(server, cache):
    path = fetch(wanted(server), cache)
    assert path.read_bytes() == CONTENT
    assert fetch(wanted(server), cache) == path
    assert server.paths == ["/file.bin"]
    assert files_in(cache) == [path]


def test_redirections_are_followed(server, cache):
    assert fetch(wanted(server, "/moved/file.bin"), cache).read_bytes() == CONTENT


def test_progress_counts_up_to_the_size_of_the_file(server, cache):
    seen = []
    fetch(wanted(server), cache, on_progress=lambda download, num_bytes: seen.append(num_bytes))
    assert len(seen) > 1
    assert seen == sorted(seen)
    assert seen[-1] == len(CONTENT)


def test_a_damaged_file_in_the_cache_is_downloaded_again(server, cache):
    path = fetch(wanted(server), cache)
    path.write_bytes(CONTENT[:-1])
    assert fetch(wanted(server), cache) == path
    assert path.read_bytes() == CONTENT
    assert len(server.paths) == 2


def test_two_versions_of_a_file_do_not_push_each_other_out(server, cache):
    other = wanted(server, "/other/file.bin", sha256=hashlib.sha256(CONTENT[::-1]).hexdigest())
    for _ in range(2):
        fetch(wanted(server), cache)
        fetch(other, cache)
    assert len(server.paths) == 2


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("/other/file.bin", f"SHA-256 is {hashlib.sha256(CONTENT[::-1]).hexdigest()}, expected"),
        ("/longer/file.bin", "is longer than the 256,000 bytes"),
        ("/short/file.bin", "ended after 70,000 of 256,000 bytes"),
        ("/broken/file.bin", "70,000 of 256,000 bytes"),
        ("/missing/file.bin", "404"),
    ],
)
def test_a_wrong_or_broken_download_is_named_and_leaves_nothing_behind(server, cache, path, message):
    with pytest.raises(DownloadError, match=message) as caught:
        fetch(wanted(server, path), cache)
    assert str(caught.value).startswith("file.bin: ")
    assert "DRAGOMAN_DATA_MIRROR" in str(caught.value)
    assert files_in(cache) == []


def test_a_wrong_download_leaves_the_good_file_of_another_recipe_alone(server, cache):
    good = fetch(wanted(server), cache)
    with pytest.raises(DownloadError):
        fetch(wanted(server, sha256="0" * 64), cache)
    assert files_in(cache) == [good]


def test_an_interrupted_download_leaves_nothing_behind(server, cache):
    def interrupt(download, num_bytes):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fetch(wanted(server), cache, on_progress=interrupt)
    assert files_in(cache) == []


def test_a_server_that_does_not_answer_in_time_is_named(server, cache, monkeypatch):
    monkeypatch.setattr(module, "_TIMEOUT_SECONDS", 0.05)
    release = threading.Event()
    monkeypatch.setattr(Handler, "do_GET", lambda self: release.wait(10))
    try:
        with pytest.raises(DownloadError, match="timed out"):
            fetch(wanted(server), cache)
    finally:
        release.set()
    assert files_in(cache) == []


def test_a_refused_connection_is_named(server, cache):
    server.shutdown()
    server.server_close()
    with pytest.raises(DownloadError, match=r"file\.bin: cannot be downloaded from http://127"):
        fetch(wanted(server), cache)


@pytest.mark.parametrize("name", ["file.bin", "file.en.bin"])
def test_a_mirror_is_looked_in_before_the_network(server, cache, tmp_path, monkeypatch, name):
    mirrored = tmp_path / "mirror" / "deep" / "down" / name
    mirrored.parent.mkdir(parents=True)
    mirrored.write_bytes(CONTENT)
    monkeypatch.setenv("DRAGOMAN_DATA_MIRROR", str(tmp_path / "mirror"))
    assert fetch(wanted(server, mirror_name="file.en.bin"), cache) == mirrored
    assert server.paths == []


def test_a_mirror_file_with_a_wrong_hash_is_passed_over(server, cache, tmp_path):
    (tmp_path / "mirror" / "a").mkdir(parents=True)
    (tmp_path / "mirror" / "b").mkdir()
    wrong, right = tmp_path / "mirror" / "a" / "file.bin", tmp_path / "mirror" / "b" / "file.bin"
    wrong.write_bytes(CONTENT[::-1])
    assert fetch(wanted(server), cache, tmp_path / "mirror").parent == cache
    assert server.paths == ["/file.bin"]
    right.write_bytes(CONTENT)
    assert fetch(wanted(server), tmp_path / "empty", tmp_path / "mirror") == right
    with pytest.raises(DownloadError, match=r"a/file\.bin.* was passed over"):
        fetch(wanted(server, "/missing/file.bin", sha256="0" * 64), cache, tmp_path / "mirror")


def test_a_mirror_folder_that_does_not_exist_is_passed_over(server, cache, tmp_path):
    assert fetch(wanted(server), cache, tmp_path / "nowhere").read_bytes() == CONTENT


def test_a_cache_folder_that_cannot_be_made_is_named(server, tmp_path):
    (tmp_path / "occupied").write_text("a file")
    with pytest.raises(
        DownloadError, match=r"the cache folder .*occupied.* cannot be written.*DRAGOMAN_CACHE"
    ):
        fetch(wanted(server), tmp_path / "occupied" / "cache")


def test_the_cache_is_where_the_environment_says(monkeypatch, tmp_path):
    assert default_cache_dir() == tmp_path / "default-cache"
    monkeypatch.delenv("DRAGOMAN_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert default_cache_dir() == tmp_path / "xdg" / "dragoman"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert default_cache_dir() == tmp_path / "home" / ".cache" / "dragoman"


@pytest.fixture
def archive(tmp_path):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("pairs.tsv", "a\tä\n")
        archive.writestr("latin1.tsv", b"\xe4")
    path = tmp_path / "archive.zip"
    path.write_bytes(buffer.getvalue())
    return path


def member(name):
    return Download(name="x", url="https://example.org/x", size_bytes=1, sha256="0" * 64, member=name)


def test_a_member_of_a_zip_archive_is_read(archive):
    assert read_text(member("pairs.tsv"), archive) == "a\tä\n"


def test_a_plain_file_is_read_byte_for_byte(tmp_path):
    path = tmp_path / "text"
    path.write_bytes("ä\r\n\x85".encode())
    assert read_text(member(""), path) == "ä\r\n\x85"


@pytest.mark.parametrize(
    ("name", "message"),
    [("none.tsv", "holds no file 'none.tsv'"), ("latin1.tsv", r"is not UTF-8 text \(byte 0\)")],
)
def test_what_cannot_be_read_from_an_archive_is_named(archive, name, message):
    with pytest.raises(DownloadError, match=message):
        read_text(member(name), archive)


def test_a_file_that_is_no_archive_is_named(tmp_path):
    path = tmp_path / "text"
    path.write_text("no archive")
    with pytest.raises(DownloadError, match=r"text: is not a zip archive"):
        read_text(member("pairs.tsv"), path)
