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

import pytest

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
    def do_GET(self):
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
def _no_proxy(monkeypatch):
    monkeypatch.setenv("no_proxy", "*")


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


def test_pull_downloads_and_checks_the_file(card):
    assert pull(card) == card.file
    assert card.file.read_bytes() == CONTENT
    assert [path.name for path in card.file.parent.iterdir()] == ["net.onnx"]
    assert card.file.stat().st_mode & 0o777 == 0o644


def test_an_existing_file_is_not_downloaded_again(card):
    card.file.parent.mkdir()
    card.file.write_bytes(CONTENT)
    assert pull(replace(card, url="http://127.0.0.1:9/none")) == card.file


def test_a_wrong_file_is_replaced(card):
    card.file.parent.mkdir()
    card.file.write_bytes(b"old")
    pull(card)
    assert card.file.read_bytes() == CONTENT


@pytest.mark.parametrize("old", [None, b"old"])
@pytest.mark.parametrize(
    ("page", "sum_", "expected"),
    [
        ("net.onnx", "0" * 64, "is not the file of this card: its SHA-256 is"),
        ("gone", None, "/gone answers 404 Not Found"),
        ("short", None, "/short broke off after 1000 of 768000 bytes; try again"),
    ],
)
def test_a_failed_download_changes_nothing(page, sum_, expected, old, card, address):
    if old is not None:
        card.file.parent.mkdir()
        card.file.write_bytes(old)
    assert expected in fails(replace(card, url=f"{address}/{page}", sha256=sum_ or card.sha256))
    left = [path.read_bytes() for path in card.file.parent.iterdir()]
    assert left == ([] if old is None else [old])


def test_a_silent_server_times_out(card):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        there = replace(card, url=f"http://127.0.0.1:{silent.getsockname()[1]}/net.onnx")
        with pytest.raises(ModelError, match="cannot be fetched: timed out"):
            pull(there, timeout_s=0.1)
    assert list(card.file.parent.iterdir()) == []


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


def test_a_folder_that_cannot_be_created_is_reported(card, tmp_path):
    (tmp_path / "files").write_text("a file")
    assert fails(card) == f"cannot write {card.file}: a part of the path is a file where a folder is needed"


def test_an_unwritable_package_folder_is_reported(card):
    text = fails(replace(card, path=Path("/sys/net.yaml"), file=Path("/sys/files/net.onnx")))
    assert re.fullmatch(
        r"cannot write /sys/files/net\.onnx: [\w\s-]+; copy /sys/net\.yaml to a folder of yours and pull it there: "
        r"streamkit models pull models/net\.yaml",
        text,
    )


def placed(tmp_path, address, file: str) -> Card:
    """A card in a folder `cards` with this `file:`."""
    path = tmp_path / "cards" / "net.yaml"
    path.parent.mkdir(exist_ok=True)
    path.write_text(
        f"task: detect\nfamily: yolox\nfile: {file}\nurl: {address}/net.onnx\n"
        f'sha256: "{hashlib.sha256(CONTENT).hexdigest()}"\ninput: {{size: [64, 64]}}\nlabels: [a]\n'
    )
    return load_card(path)


def files_in(folder) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


@pytest.mark.parametrize("file", ["net.onnx", "a/b/net.ONNX", "./a/../net.onnx"])
def test_a_path_within_the_cards_folder_is_written(file, tmp_path, address):
    card = placed(tmp_path, address, file)
    assert pull(card).read_bytes() == CONTENT
    assert len(files_in(tmp_path)) == 2


@pytest.mark.parametrize("file", ["../net.onnx", "a/../../net.onnx", "/{tmp}/net.onnx", "link/net.onnx", "link.onnx"])
def test_a_path_outside_the_cards_folder_is_refused(file, tmp_path, address):
    (tmp_path / "cards").mkdir()
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "cards" / "link").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "cards" / "link.onnx").symlink_to(tmp_path / "elsewhere" / "net.onnx")
    card = placed(tmp_path, address, file.replace("/{tmp}", str(tmp_path)))
    with pytest.raises(ModelError) as caught:
        pull(card)
    assert str(caught.value) == (
        f"{card.path}:3:7: file names {card.file}, and pull writes only files *.onnx in the card's folder "
        f"{tmp_path / 'cards'} or below; write a file name such as net.onnx or weights/net.onnx in the card, or "
        "download the file manually and remove url and sha256"
    )
    assert files_in(tmp_path) == ["cards/net.yaml"]


def test_a_link_created_after_loading_the_card_is_refused(tmp_path, address):
    card = placed(tmp_path, address, "a/net.onnx")
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "cards" / "a").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ModelError, match=f"file names {tmp_path}/elsewhere/net.onnx, and pull writes only"):
        pull(card)
    assert files_in(tmp_path) == ["cards/net.yaml"]


@pytest.mark.parametrize("file", ["authorized_keys", "net.onnx.py", ".onnx", "net.yaml"])
def test_another_kind_of_file_is_refused(file, tmp_path, address):
    card = placed(tmp_path, address, file)
    before = card.path.read_bytes()
    with pytest.raises(ModelError, match=r"weights/net\.onnx in the card$"):
        pull(card)
    assert files_in(tmp_path) == ["cards/net.yaml"]
    assert card.path.read_bytes() == before


def test_a_linked_folder_of_cards_is_accepted(tmp_path, address):
    placed(tmp_path, address, "net.onnx")
    (tmp_path / "mine").symlink_to(tmp_path / "cards")
    assert pull(load_card(tmp_path / "mine" / "net.yaml")) == tmp_path / "cards" / "net.onnx"


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
    assert list(card.file.parent.iterdir()) == []


@pytest.mark.parametrize("page", ["unknown", "odd", "less"])
def test_a_file_of_unknown_length_is_limited_while_downloading(page, card, address, monkeypatch):
    there = replace(card, url=f"{address}/{page}")
    monkeypatch.setattr("streamkit.models.pull._MAX_BYTES", len(CONTENT))
    assert pull(there).read_bytes() == CONTENT
    card.file.unlink()
    monkeypatch.setattr("streamkit.models.pull._MAX_BYTES", len(CONTENT) - 1)
    assert fails(there) == f"its url has more than {len(CONTENT) - 1:,} bytes, and {TOO_LARGE}"
    assert list(card.file.parent.iterdir()) == []


def test_a_redirect_to_http_is_followed(card, address):
    assert pull(replace(card, url=f"{address}/moved")).read_bytes() == CONTENT


@pytest.mark.parametrize("page", ["ftp", "file", "twice"])
def test_a_redirect_to_another_scheme_is_refused(page, card, address):
    text = fails(replace(card, url=f"{address}/{page}"))
    assert text.startswith(f"{address}/{page} answers 302 Found")
    assert ("file:///etc/hostname" if page == "file" else "ftp://127.0.0.1:9/net.onnx") in text
    assert files_in(card.file.parent) == []


PULL = """
import sys
import time
from pathlib import Path
from streamkit.models.card import load_card
from streamkit.models.pull import pull
pull(load_card(Path(sys.argv[1])))
"""


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


def test_a_partial_file_of_a_killed_pull_is_removed(card, endless_address):
    text = card.path.read_text()
    card.path.write_text(re.sub("url: .*", f"url: {endless_address}/net.onnx", text))
    with subprocess.Popen([sys.executable, "-c", PULL, str(card.path)]) as process:
        deadline_s = time.monotonic() + 20
        while not any(path.stat().st_size for path in card.file.parent.glob(".net.onnx*.part")):
            assert process.poll() is None
            assert time.monotonic() < deadline_s
            time.sleep(0.01)
        with pytest.raises(ModelError, match="another run is writing it"):
            pull(card)
        process.terminate()
    assert [path.suffix for path in card.file.parent.iterdir()] == [".part"]
    card.file.write_bytes(CONTENT)  # copied there by hand meanwhile: nothing is fetched
    assert pull(card) == card.file
    assert files_in(card.file.parent) == ["net.onnx"]


@pytest.mark.parametrize("url", ["http://[::1/net.onnx", "http://127.0.0.1:no/net.onnx", "http://h/a b\x7f"])
def test_an_invalid_address_is_reported(url, card):
    assert "cannot be fetched: " in fails(replace(card, url=url))
