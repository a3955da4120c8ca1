"""Files of a web server, whose listings tell names alone, and which may tell no size at all."""

import threading
import time
from dataclasses import replace
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import fsspec
import pytest
from support.dataset_runs import PLAIN, graph_of, settings

from streamkit.batch import dryrun, remote
from streamkit.batch.dryrun import dry_run
from streamkit.batch.identity import file_key
from streamkit.batch.inputs import find
from streamkit.batch.job import BatchJob, FrameSelection, Outcome
from streamkit.batch.pipeline import config_for
from streamkit.batch.probe import Probe, probe
from streamkit.batch.work import opened
from streamkit.batch.worker import BatchWorker
from streamkit.core.errors import ConfigError, SourceError

SAMPLE = (Path(__file__).resolve().parents[2] / "samples" / "street.mp4").read_bytes()


class Web(ThreadingHTTPServer):
    """A server with a page of links for each folder.

    Attributes:
        files: content by path.
        changed: when, as its header says it.
        tells: whether it tells sizes and when files have changed.
        refuses: paths that it knows nothing of though they are listed.
        requested: paths of which the headers were asked for.
        peak: how many were asked for at the same time.
    """

    daemon_threads = True
    request_queue_size = 64

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Answer)
        self.files: dict[str, bytes] = {}
        self.changed = "Sat, 01 Aug 2026 12:00:00 GMT"
        self.tells = True
        self.refuses = set[str]()
        self.requested = list[str]()
        self.slow_s = 0.0
        self.now = 0
        self.peak = 0
        self.lock = threading.Lock()
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def address(self):
        return f"http://127.0.0.1:{self.server_port}"

    def handle_error(self, request, client_address):
        """Who hangs up early has read enough."""


class Answer(BaseHTTPRequestHandler):
    """What the server says."""

    protocol_version = "HTTP/1.1"

    def log_message(self, *words):
        """Say nothing."""

    def do_HEAD(self):
        web = self.server
        with web.lock:
            web.requested.append(self.path)
            web.now += 1
            web.peak = max(web.peak, web.now)
        time.sleep(web.slow_s)
        self.do_GET(body=False)
        with web.lock:
            web.now -= 1

    def do_GET(self, body=True):
        web = self.server
        data = None if self.path in web.refuses else web.files.get(self.path)
        if data is None and self.path.endswith("/"):
            names = sorted({path.removeprefix(self.path) for path in web.files if path.startswith(self.path)})
            links = {name.partition("/")[0] + "/" * ("/" in name) for name in names}
            data = "".join(f'<a href="{link}">{link}</a>' for link in sorted(links)).encode()
            self.tell(200, {"Content-Type": "text/html", "Content-Length": len(data)}, data if body else b"")
        elif data is None and any(path.startswith(f"{self.path}/") for path in web.files):
            self.tell(301, {"Location": f"{self.path}/", "Content-Length": 0})
        elif data is None:
            self.tell(404, {"Content-Length": 0})
        elif web.tells:
            about = {"Content-Type": "video/mp4", "Last-Modified": web.changed, "Content-Length": len(data)}
            self.tell(200, about, data if body else b"")
        else:
            chunks = [data[at : at + 65536] for at in range(0, len(data), 65536)]
            sent = b"".join(b"%x\r\n%b\r\n" % (len(chunk), chunk) for chunk in [*chunks, b""])
            self.tell(200, {"Content-Type": "video/mp4", "Transfer-Encoding": "chunked"}, sent if body else b"")

    def tell(self, code, about, data=b""):
        self.send_response(code)
        for name, value in about.items():
            self.send_header(name, str(value))
        self.end_headers()
        self.wfile.write(data)


@pytest.fixture
def web():
    fsspec.get_filesystem_class("http").clear_instance_cache()
    server = Web()
    server.files = {"/v/d1/a.mp4": b"aaaa", "/v/d1/b.mp4": SAMPLE, "/v/d2/a.mp4": b"bb", "/v/notes.txt": b"no video"}
    yield server
    server.shutdown()
    server.server_close()


@pytest.fixture
def run(tmp_path):
    """Do what is left to do of the files at an address; how many had been done, and which were left."""
    batch_settings = settings(tmp_path / "set", PLAIN)
    graph = graph_of(batch_settings)

    def call(pattern):
        with opened(graph, batch_settings, find([pattern])) as work:
            for job in work.jobs:
                work.commit(Outcome(job, "done"))
            return work.done, [job.file.name for job in work.jobs]

    call.out = batch_settings.out
    return call


def test_a_remote_pattern_matches_files(web):
    files = find([f"{web.address}/v/**/*.mp4"])
    assert [(file.name, file.size) for file in files] == [("d1/a.mp4", 4), ("d1/b.mp4", len(SAMPLE)), ("d2/a.mp4", 2)]
    assert {file.version for file in files} == {web.changed}
    assert "/v/notes.txt" not in web.requested, "only what is wanted is asked for"


def test_a_remote_file_is_named_relative_to_its_folder(web):
    (file,) = find([f"{web.address}/v/d1/b.mp4"])
    assert (file.name, file.size, file.uri) == ("b.mp4", len(SAMPLE), f"{web.address}/v/d1/b.mp4")


def test_a_remote_pattern_without_matches_is_refused(web):
    with pytest.raises(ConfigError, match=r"^http://127\.0\.0\.1:\d+/v/\*\.mkv: the pattern matches no video$"):
        find([f"{web.address}/v/*.mkv"])


@pytest.mark.parametrize("tells", [True, False])
def test_files_are_copied_completely_with_and_without_content_length(web, tells, tmp_path):
    web.tells = tells
    for pattern in ("d1/b.mp4", "d1/b*.mp4"):
        (file,) = find([f"{web.address}/v/{pattern}"])
        assert file.size == (len(SAMPLE) if tells else None)
        with remote.local(file, tmp_path) as path:
            assert path.read_bytes() == SAMPLE


@pytest.mark.parametrize("tells", [True, False])
def test_files_of_a_server_without_ranges_are_copied(web, tells, tmp_path, monkeypatch):
    monkeypatch.setattr(remote, "open_ranges", partial(remote.open_ranges, block_bytes=1 << 16))
    web.tells = tells
    (file,) = find([f"{web.address}/v/d1/b*.mp4"])
    with remote.opened(file, tmp_path) as (path, opened_file):
        assert opened_file is None
        assert Path(path).read_bytes() == SAMPLE
    batch_settings = settings(
        tmp_path / "set", "stages:\n  jsonl: {path: a.jsonl}\n", "jsonl", look=FrameSelection(end_s=0.2)
    )
    worker = BatchWorker(batch_settings, "cpu")
    try:
        outcome = worker.process(BatchJob(file, "b-0"))
    finally:
        assert worker.close()
    assert (outcome.status, outcome.frames, outcome.facts["copied"]) == ("done", 5, True)


def test_a_changed_size_of_a_file_is_reported(web, tmp_path):
    (file,) = find([f"{web.address}/v/d1/b*.mp4"])
    web.files["/v/d1/b.mp4"] = b"shorter"
    with pytest.raises(SourceError, match="has 7 bytes, and had 459,039 when"), remote.local(file, tmp_path):
        pass


def test_headers_of_thousands_of_files_are_requested_in_parallel(web):
    web.files = {f"/v/{n}.mp4": b"x" * n for n in range(1, 201)}
    web.slow_s = 0.01
    assert [file.size for file in find([f"{web.address}/v/*.mp4"])] == list(range(1, 201))
    assert 1 < web.peak <= 16
    assert sorted(set(web.requested) - {"/v/"}) == sorted(web.files)
    assert len(web.requested) <= 201, "each of them once"


@pytest.mark.parametrize("tells", [True, False])
def test_finished_remote_files_are_not_processed_again(web, tells, run):
    web.tells = tells
    names = ["d1/a.mp4", "d1/b.mp4", "d2/a.mp4"]
    assert run(f"{web.address}/v/**/*.mp4") == (0, names)
    assert run(f"{web.address}/v/**/*.mp4") == (3, [])
    from pyarrow.dataset import dataset  # imports pandas, in each process that collects the tests

    sizes = dataset(run.out / "files").to_table().sort_by("source")["size"].to_pylist()
    assert sizes == ([4, len(SAMPLE), 2] if tells else [None] * 3)


def test_a_changed_remote_file_is_processed_again(web, run):
    pattern = f"{web.address}/v/d*/a.mp4"
    assert run(pattern) == (0, ["d1/a.mp4", "d2/a.mp4"])
    web.refuses = {"/v/d1/a.mp4"}
    assert run(pattern) == (2, [])
    web.refuses = set()
    web.changed = "Sun, 02 Aug 2026 12:00:00 GMT"
    assert run(pattern) == (0, ["d1/a.mp4", "d2/a.mp4"])


def test_a_listed_but_missing_file_fails_alone(web, tmp_path):
    web.refuses = {"/v/d1/a.mp4"}
    absent, there, _ = find([f"{web.address}/v/**/*.mp4"])
    assert (absent.size, there.size) == (None, len(SAMPLE))
    with pytest.raises(SourceError, match="there is no such bucket, folder or file"), remote.local(absent, tmp_path):
        pass


def test_an_unknown_size_is_not_zero(web):
    web.tells = False
    (file,) = find([f"{web.address}/v/d1/b.mp4"])
    assert file_key(file, "p") == file_key(find([f"{web.address}/v/d1/b*.mp4"])[0], "p")
    assert file_key(file, "p") != file_key(replace(file, size=0), "p")


def test_headers_are_read_only_from_servers_with_ranges(web):
    assert probe(f"{web.address}/v/d1/b.mp4").codec == "h264"
    web.tells = False
    assert probe(f"{web.address}/v/d1/b.mp4") == Probe()


def test_a_dry_run_lists_unknown_facts(web, tmp_path, monkeypatch):
    monkeypatch.setattr(dryrun, "_REMOTE", 2)
    web.tells = False
    shown = list[str]()
    batch_settings = settings(tmp_path / "set", PLAIN)
    assert (
        dry_run(config_for(batch_settings, "cpu"), batch_settings, find([f"{web.address}/v/**/*.mp4"]), shown.append)
        == 0
    )
    assert shown[1].endswith("2 of them have no known duration; 2 of them have no known size")
    assert shown[2] == "  unknown        2 files   their server cannot send a part of a file"
