import hashlib
import http.server
import threading
from dataclasses import replace

import pytest

from streamkit.errors import ModelError
from streamkit.models.card import Card, load_card
from streamkit.models.pull import pull

CONTENT = bytes(range(256)) * 3000


class _Files(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        if self.path.startswith("/gone"):
            self.send_error(404)
            return
        self.send_response(200)
        self.send_header("Content-Length", str(len(CONTENT)))
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


def test_fetches_and_checks(card):
    calls = []
    assert pull(card, lambda done, total: calls.append((done, total))) == card.file
    assert card.file.read_bytes() == CONTENT
    assert [path.name for path in card.file.parent.iterdir()] == ["net.onnx"]
    assert card.file.stat().st_mode & 0o777 == 0o644
    assert calls[-1] == (len(CONTENT), len(CONTENT))
    assert [done for done, _ in calls] == sorted(done for done, _ in calls)


def test_a_file_that_is_there_is_not_fetched_again(card):
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
def test_nothing_changes_where_fetching_fails(page, sum_, expected, old, card, address):
    if old is not None:
        card.file.parent.mkdir()
        card.file.write_bytes(old)
    assert expected in fails(replace(card, url=f"{address}/{page}", sha256=sum_ or card.sha256))
    left = [path.read_bytes() for path in card.file.parent.iterdir()]
    assert left == ([] if old is None else [old])


def test_no_server(card):
    assert "http://127.0.0.1:9/net.onnx cannot be fetched: " in fails(replace(card, url="http://127.0.0.1:9/net.onnx"))


@pytest.mark.parametrize("page", ["gone", "short", "net.onnx"])
def test_no_secret_of_the_url_is_shown(card, address, page):
    url = f"{address}/{page}?token=geheim&expires=3"
    text = fails(replace(card, url=url, sha256="0" * 64))
    assert "geheim" not in text
    assert f"{address}/{page}?token=***&expires=***" in text


def test_nor_its_password_where_no_server_answers(card):
    text = fails(replace(card, url="http://ann:geheim@127.0.0.1:9/net.onnx"))
    assert "geheim" not in text
    assert "http://ann:***@127.0.0.1:9/net.onnx cannot be fetched: " in text


def test_no_url(card):
    text = fails(replace(card, url="", note="Ask the authors."))
    assert text == f"the card has no url. Ask the authors. (its place: {card.file})"


def test_a_folder_that_cannot_be_made(card, tmp_path):
    (tmp_path / "files").write_text("a file")
    assert fails(card) == f"cannot write to {tmp_path / 'files'}: File exists"
