import contextlib
import hashlib
import http.server
import re
import socket
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

import pytest
from support.full_disk import small_disk

from streamkit.core.errors import ModelError
from streamkit.models.card import Card, load_card
from streamkit.models.pull import pull

CONTENT = bytes(range(256)) * 3000
REDIRECTS = {
    "/moved": "/net.onnx",
    "/ftp": "ftp://127.0.0.1:9/net.onnx",
    "/file": "file:///etc/hostname",
    "/twice": "/ftp",
}


class _Files(http.server.BaseHTTPRequestHandler):
    requests: ClassVar[list[str]] = []

    def do_GET(self):
        self.requests.append(self.path)
        if self.path.startswith("/gone"):
            self.send_error(404)
            return
        if target := REDIRECTS.get(self.path):
            self.send_response(302)
            self.send_header("Location", target)
            self.end_headers()
            return
        self.send_response(200)
        if self.path != "/unknown":
            length = {"/huge": 2**31 + 1, "/odd": "many", "/less": -5}.get(self.path, len(CONTENT))
            self.send_header("Content-Length", str(length))
        self.end_headers()
        if self.path == "/slow":
            for start in range(0, len(CONTENT), len(CONTENT) // 6):
                time.sleep(0.1)
                self.wfile.write(CONTENT[start : start + len(CONTENT) // 6])
            return
        self.wfile.write(CONTENT[:1000] if self.path.startswith("/short") else CONTENT)

    def log_message(self, *args):
        pass


@pytest.fixture(scope="module")
def address():
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Files)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch) -> Path:
    """The folder of downloaded networks; it does not exist yet."""
    monkeypatch.setenv("no_proxy", "*")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "streamkit" / "models"


@pytest.fixture
def card(tmp_path, address) -> Card:
    path = tmp_path / "net.yaml"
    path.write_text(
        f"""\
task: detect
family: yolox
file: files/net.onnx
url: {address}/net.onnx
sha256: "{hashlib.sha256(CONTENT).hexdigest()}"
input: {{size: [64, 64]}}
labels: [a]
"""
    )
    return load_card(path)


def fails(card: Card) -> str:
    with pytest.raises(ModelError) as caught:
        pull(card)
    return str(caught.value).removeprefix(f"{card.path}: ")


def networks_in(folder: Path) -> list[str]:
    """The files of a folder without its locks."""
    return sorted(path.name for path in folder.iterdir() if path.suffix != ".lock")


def test_pull_downloads_and_checks_the_file(card, cache):
    assert pull(card) == card.file == cache / f"net-{card.sha256[:12]}.onnx"
    assert card.file.read_bytes() == CONTENT
    assert networks_in(cache) == [card.file.name]
    assert card.file.stat().st_mode & 0o777 == 0o644


def test_an_existing_file_is_not_downloaded_again(card):
    card.file.parent.mkdir(parents=True)
    card.file.write_bytes(CONTENT)
    assert pull(replace(card, url="http://127.0.0.1:9/none")) == card.file
    assert [path.name for path in card.file.parent.iterdir()] == [card.file.name]


def test_a_wrong_file_is_replaced(card):
    card.file.parent.mkdir(parents=True)
    card.file.write_bytes(b"old")
    pull(card)
    assert card.file.read_bytes() == CONTENT


def test_a_file_beside_the_card_is_taken_if_it_is_the_right_one(card, cache):
    beside = card.path.parent / "files" / "net.onnx"
    beside.parent.mkdir()
    beside.write_bytes(CONTENT)
    there = load_card(card.path)
    assert pull(replace(there, url="http://127.0.0.1:9/none")) == there.file == beside
    assert not cache.exists()


@pytest.mark.parametrize("file", ["files/net.onnx", "../precious.onnx", "precious"])
def test_another_file_that_the_card_names_is_never_replaced(file, card, cache):
    path = card.path.parent / "cards" / "net.yaml"
    path.parent.mkdir()
    path.write_text(card.path.read_text().replace("files/net.onnx", file))
    precious = path.parent / file
    precious.parent.mkdir(exist_ok=True)
    precious.write_bytes(b"old")
    downloaded = pull(load_card(path))
    assert downloaded.parent == cache
    assert downloaded.read_bytes() == CONTENT
    assert precious.read_bytes() == b"old"
    assert load_card(path).file == downloaded


@pytest.mark.parametrize("old", [None, b"old"])
@pytest.mark.parametrize(
    ("page", "sum_", "expected"),
    [
        ("net.onnx", "0" * 64, "is not the file of this card: its SHA-256 is"),
        ("gone", None, "/gone answers 404 Not Found; or download it elsewhere and put it here: "),
        ("short", None, "/short broke off after 1000 of 768000 bytes; try again; or download it elsewhere and put it"),
    ],
)
def test_a_failed_download_changes_nothing(page, sum_, expected, old, card, address):
    if old is not None:
        card.file.parent.mkdir(parents=True)
        card.file.write_bytes(old)
    assert expected in fails(replace(card, url=f"{address}/{page}", sha256=sum_ or card.sha256))
    left = [(card.file.parent / name).read_bytes() for name in networks_in(card.file.parent)]
    assert left == ([] if old is None else [old])


def test_a_silent_server_times_out(card):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        there = replace(card, url=f"http://127.0.0.1:{silent.getsockname()[1]}/net.onnx")
        started_s = time.monotonic()
        with pytest.raises(ModelError, match="cannot be fetched: timed out"):
            pull(there, silence_s=0.1)
        assert time.monotonic() - started_s < 3
    assert networks_in(card.file.parent) == []


def test_a_server_that_accepts_no_connection_is_left_within_5_s(card):
    with socket.create_server(("127.0.0.1", 0), backlog=0) as full:
        place = full.getsockname()
        waiting = [socket.socket() for _ in range(8)]
        for client in waiting:  # fill the queue of connections: further ones are not answered
            client.setblocking(False)
            client.connect_ex(place)
        started_s = time.monotonic()
        assert "cannot be fetched: timed out" in fails(replace(card, url=f"http://127.0.0.1:{place[1]}/net.onnx"))
        assert time.monotonic() - started_s < 5
        for client in waiting:
            client.close()


PULL = """
import sys
import time
from pathlib import Path
from streamkit.models.card import load_card
from streamkit.models.pull import pull
pull(load_card(Path(sys.argv[1])))
"""

SILENT_NAME_SERVER = """
mount --bind {resolv_conf} /etc/resolv.conf && ip link set lo up || exit 77
exec {python} -c "
import socket, sys
silent = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
silent.bind(('127.0.0.1', 53))
sys.argv = ['pull', '{card}']
{pull}"
"""


def test_a_name_server_that_is_silent_is_left_within_5_s(card, tmp_path):
    card.path.write_text(re.sub("url: .*", "url: https://models.example.org/net.onnx", card.path.read_text()))
    resolv_conf = tmp_path / "resolv.conf"
    resolv_conf.write_text("nameserver 127.0.0.1\n")
    script = SILENT_NAME_SERVER.format(resolv_conf=resolv_conf, python=sys.executable, card=card.path, pull=PULL)
    started_s = time.monotonic()
    line = ["unshare", "--mount", "--net", "sh", "-c", script]
    completed = subprocess.run(line, capture_output=True, text=True, timeout=60, check=False)
    if "ModelError" not in completed.stderr:
        pytest.skip(f"needs a network and a file system of its own: {completed.stderr}")
    assert time.monotonic() - started_s < 8  # with the start of Python; 10 s and more by default
    assert "net.onnx cannot be fetched: Temporary failure in name resolution" in completed.stderr


def test_a_slow_server_is_waited_for(card, address):
    assert pull(replace(card, url=f"{address}/slow"), silence_s=0.5).read_bytes() == CONTENT


def test_a_full_disk_is_reported_and_leaves_nothing(card, tmp_path, monkeypatch):
    with small_disk(tmp_path / "small") as disk:
        monkeypatch.setenv("XDG_CACHE_HOME", str(disk.folder))
        full = load_card(card.path)
        assert fails(full) == (
            f"cannot write {full.file}: the disk is full; set XDG_CACHE_HOME to a folder that has space and can be "
            "written"
        )
        assert networks_in(full.file.parent) == []


def test_an_unreachable_server_is_reported(card):
    assert "http://127.0.0.1:9/net.onnx cannot be fetched: " in fails(replace(card, url="http://127.0.0.1:9/net.onnx"))


@pytest.mark.parametrize("page", ["gone", "short", "net.onnx"])
def test_no_secret_of_the_url_is_shown(card, address, page):
    url = f"{address}/{page}?token=geheim&expires=3"
    text = fails(replace(card, url=url, sha256="0" * 64))
    assert "geheim" not in text
    assert f"{address}/{page}?token=***&expires=***" in text


def test_no_password_is_shown_without_a_server(card):
    text = fails(replace(card, url="http://ann:geheim@127.0.0.1:9/net.onnx"))
    assert "geheim" not in text
    assert "http://ann:***@127.0.0.1:9/net.onnx cannot be fetched: " in text


def test_a_card_without_url_is_refused(card):
    text = fails(replace(card, url="", note="Ask the authors."))
    assert text == f"the card has no url. Ask the authors. (its place: {card.file})"


def test_a_cache_that_cannot_be_created_is_reported(card, tmp_path):
    (tmp_path / "cache").write_text("a file")
    assert fails(card) == (
        f"cannot write {card.file}: a part of the path is a file where a folder is needed; set XDG_CACHE_HOME to a "
        "folder that has space and can be written"
    )


@pytest.mark.parametrize("file", ["../../net.onnx", "/etc/net.onnx", "link/net.onnx", "authorized_keys", ".onnx"])
def test_only_the_cache_is_written_whatever_the_card_names(file, card, tmp_path, cache):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    card.path.write_text(re.sub("file: .*", f"file: {file}", card.path.read_text()))
    downloaded = pull(load_card(card.path))
    assert downloaded.parent == cache
    assert downloaded.suffix == ".onnx"
    assert list((tmp_path / "elsewhere").iterdir()) == []


TOO_LARGE = (
    "an ONNX file has at most 2 GiB; nothing was kept: url must be that of the network, not of an archive or page"
)


def test_a_length_above_2_gib_is_refused_before_writing(card, address, monkeypatch):
    calls = []
    monkeypatch.setattr("streamkit.models.pull._write", lambda *now: calls.append(now))
    with pytest.raises(ModelError) as caught:
        pull(replace(card, url=f"{address}/huge"))
    assert str(caught.value) == f"{card.path}: its url has 2,147,483,649 bytes, and {TOO_LARGE}"
    assert calls == []
    assert networks_in(card.file.parent) == []


@pytest.mark.parametrize("page", ["unknown", "odd", "less"])
def test_a_file_of_unknown_length_is_limited_while_downloading(page, card, address, monkeypatch):
    there = replace(card, url=f"{address}/{page}")
    monkeypatch.setattr("streamkit.models.pull._MAX_BYTES", len(CONTENT))
    assert pull(there).read_bytes() == CONTENT
    card.file.unlink()
    monkeypatch.setattr("streamkit.models.pull._MAX_BYTES", len(CONTENT) - 1)
    assert fails(there) == f"its url has more than {len(CONTENT) - 1:,} bytes, and {TOO_LARGE}"
    assert networks_in(card.file.parent) == []


def test_a_redirect_to_http_is_followed(card, address):
    assert pull(replace(card, url=f"{address}/moved")).read_bytes() == CONTENT


@pytest.mark.parametrize("page", ["ftp", "file", "twice"])
def test_a_redirect_to_another_scheme_is_refused(page, card, address):
    text = fails(replace(card, url=f"{address}/{page}"))
    assert text.startswith(f"{address}/{page} answers 302 Found")
    assert ("file:///etc/hostname" if page == "file" else "ftp://127.0.0.1:9/net.onnx") in text
    assert networks_in(card.file.parent) == []


@pytest.fixture
def endless_address():
    """The address of a server that sends the first bytes of a file, and then nothing more."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        connections = []

        def answer() -> None:
            with contextlib.suppress(OSError):
                connection = listener.accept()[0]
                connections.append(connection)
                connection.recv(4096)
                connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 900000\r\n\r\n" + bytes(600_000))

        thread = threading.Thread(target=answer)
        thread.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        listener.shutdown(socket.SHUT_RDWR)
        thread.join()
        for connection in connections:
            connection.close()


def test_the_partial_file_of_a_killed_pull_is_replaced(card, address, endless_address):
    text = card.path.read_text()
    card.path.write_text(re.sub("url: .*", f"url: {endless_address}/net.onnx", text))
    with subprocess.Popen([sys.executable, "-c", PULL, str(card.path)]) as process:
        deadline_s = time.monotonic() + 20
        while not any(path.stat().st_size for path in card.file.parent.glob(".net-*.part")):
            assert process.poll() is None
            assert time.monotonic() < deadline_s
            time.sleep(0.01)
        process.kill()
    assert len(networks_in(card.file.parent)) == 1
    assert pull(card).read_bytes() == CONTENT
    assert networks_in(card.file.parent) == [card.file.name]


def test_processes_that_pull_at_once_download_once(card, address, cache):
    slow = re.sub("url: .*", f"url: {address}/slow", card.path.read_text())
    card.path.write_text(slow)
    before = len(_Files.requests)
    processes = [subprocess.Popen([sys.executable, "-c", PULL, str(card.path)]) for _ in range(2)]
    assert [process.wait(timeout=30) for process in processes] == [0, 0]
    assert card.file.read_bytes() == CONTENT
    assert _Files.requests[before:] == ["/slow"]


@pytest.mark.parametrize("url", ["http://[::1/net.onnx", "http://127.0.0.1:no/net.onnx", "http://h/a b\x7f"])
def test_an_invalid_address_is_reported(url, card):
    assert "cannot be fetched: " in fails(replace(card, url=url))
