"""Connection tests against real cameras, options for forms, hidden parts of addresses, and CSV."""

import base64
import csv
import http.server
import io
import socket
import threading
import time

import cv2
import httpx
import numpy as np
import pytest
from support.servers import served

from streamkit.serve.api_models import RequestRejected
from streamkit.serve.masked_urls import with_hidden_parts

SECRET = "geheim-0815"


@pytest.fixture
def camera(rtsp, test_data):
    return rtsp({"gate": test_data / "videos" / "vtest_480x360.mp4"}, user="ann", password=SECRET)


@pytest.fixture(autouse=True)
def tidy(server):
    yield
    for source in server.open.get("/api/v1/sources").json():
        if source["id"] not in ("street", "gate"):
            server.client.delete(f"/api/v1/sources/{source['id']}")


@pytest.fixture
def silent():
    """The port of a server that accepts connections and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener.getsockname()[1]


@pytest.fixture
def web():
    """The address of a web server whose every file is a text."""

    class Text(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.send_header("Content-Length", "10000")
            self.end_headers()
            self.wfile.write(b"this is not a video\n" * 500)

        def log_message(self, *args):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Text)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def check(server, uri, **more):
    answer = server.client.post("/api/v1/sources/test", json={"uri": uri, **more})
    assert answer.status_code == 200, answer.text
    assert SECRET not in answer.text
    return answer.json()


# -------------------------------------------------------------------------------------------------- connection tests


def test_a_tested_camera_shows_its_image_and_stream_facts(server, camera):
    tested = check(server, camera.url("gate"), options={"transport": "tcp"})
    assert (tested["ok"], tested["cause"], tested["error"]) == (True, None, "")
    assert (tested["codec"], tested["width"], tested["height"]) == ("h264", 480, 360)
    image = cv2.imdecode(np.frombuffer(base64.b64decode(tested["image"]), np.uint8), cv2.IMREAD_COLOR)
    assert image.shape == (360, 480, 3)
    assert image.std() > 10  # a picture, and not one color
    assert tested["took_s"] > 0
    assert [source["id"] for source in server.client.get("/api/v1/sources").json()] == ["street", "gate"]


@pytest.mark.parametrize(
    ("what", "cause"), [("password", "auth"), ("nobody", "auth"), ("path", "not_found"), ("port", "refused")]
)
def test_a_failed_test_names_the_cause_as_in_source_states(server, camera, what, cause):
    uri = {
        "password": camera.url("gate", password="wrong-one"),
        "nobody": f"rtsp://127.0.0.1:{camera.port}/gate",
        "path": camera.url("nothing"),
        "port": camera.url("gate", port=9),
    }[what]
    tested = check(server, uri, options={"timeout": "3s"})
    assert (tested["ok"], tested["cause"], tested["image"]) == (False, cause, None)
    assert tested["error"]
    assert "wrong-one" not in str(tested)
    assert not tested["error"].startswith("rtsp://")


def test_a_source_without_video_is_reported(server, web):
    tested = check(server, f"{web}/live", options={"timeout": "3s"})
    assert (tested["ok"], tested["cause"]) == (False, "codec")


def test_a_silent_peer_is_reported_within_the_timeout(server, silent):
    started_s = time.monotonic()
    tested = check(server, f"rtsp://127.0.0.1:{silent}/x", options={"timeout": "1s"})
    assert (tested["ok"], tested["cause"]) == (False, "timeout")
    assert time.monotonic() - started_s < 8


def test_a_test_caps_the_timeout_of_a_source(server, silent, monkeypatch):
    from streamkit.runtime.ingest import connection_test
    from streamkit.serve.routes import source_forms

    monkeypatch.setattr(
        source_forms, "ConnectionTest", lambda config: connection_test.ConnectionTest(config, limit_s=1.0)
    )
    tested = check(server, f"rtsp://127.0.0.1:{silent}/x", options={"timeout": "1h"})
    assert (tested["ok"], tested["cause"]) == (False, "timeout")


def test_at_most_two_tests_run_at_once(server, silent):
    uri = f"rtsp://127.0.0.1:{silent}/x"
    answers = []

    def ask():
        with httpx.Client(base_url=server.url, timeout=20, headers=server.client.headers) as client:
            body = {"uri": uri, "options": {"timeout": "2s"}}
            answers.append(client.post("/api/v1/sources/test", json=body).status_code)

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(answers) == [200, 200, 429, 429]
    assert check(server, "test://")["ok"]  # and then there is room again


def test_a_disconnected_client_ends_its_test(server, silent):
    body = {"uri": f"rtsp://127.0.0.1:{silent}/x", "options": {"timeout": "14s"}}
    for _ in range(2):
        with (
            pytest.raises(httpx.ReadTimeout),
            httpx.Client(base_url=server.url, timeout=0.5, headers=server.client.headers) as client,
        ):
            client.post("/api/v1/sources/test", json=body)

    def there_is_room():
        return server.client.post("/api/v1/sources/test", json={"uri": "test://"}).status_code == 200

    server.until(there_is_room, 8)


@pytest.mark.parametrize(
    ("body", "status", "words"),
    [
        ({"uri": "/etc/passwd"}, 403, "--allow-files"),
        ({"uri": "file:///etc/passwd"}, 403, "--allow-files"),
        ({"uri": "concat:rtsp://h/x|/etc/passwd"}, 403, "--allow-files"),
        ({"uri": "rstp://h/x"}, 403, "rstp"),
        ({"uri": "test://", "options": {"pase": 3}}, 422, "did you mean"),
        ({"uri": "test://", "options": {"uri": "/etc/passwd"}}, 422, "uri"),
        ({"uri": "test://", "options": {"fault": {"fail": 1}}}, 422, "fault"),
        ({}, 422, "uri"),
        ({"id": "nobody"}, 422, "uri"),
        ({"uri": "rtsp://u:***@h/x"}, 422, "write the password"),
        ({"uri": "rtsp://h:6379/a\r\nSET pwned yes"}, 422, "the address must have no line ends"),
    ],
)
def test_forbidden_sources_cannot_be_tested(server, body, status, words):
    answer = server.client.post("/api/v1/sources/test", json=body)
    assert answer.status_code == status
    assert words in answer.json()["error"]


def test_addresses_with_line_breaks_are_refused_everywhere(server):
    """A server such as Redis would read the second line as a command."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setblocking(False)
        uri = f"rtsp://ann:{SECRET} x@127.0.0.1:{listener.getsockname()[1]}/a\r\nSET pwned yes"
        csv = f'id,uri\nnew,"{uri}"\n'
        answers = [
            server.client.post("/api/v1/sources/test", json={"uri": uri}),
            server.client.post("/api/v1/sources", json={"id": "new", "uri": uri}),
            server.client.put("/api/v1/sources/gate", json={"uri": uri}),
            server.client.post("/api/v1/sources.csv", json={"csv": csv, "mode": "valid"}),
        ]
        assert [answer.status_code for answer in answers] == [422, 422, 422, 200]
        assert all("the address must have no line ends" in answer.text for answer in answers)
        assert not any(SECRET in answer.text for answer in answers)
        assert answers[-1].json()["added"] == []
        with pytest.raises(BlockingIOError):  # no connection was made
            listener.accept()
    audit = server.client.get("/api/v1/audit").text
    assert "SET%20pwned%20yes" in audit
    assert SECRET not in audit


def test_an_existing_source_is_tested_with_its_stored_password(server, camera):
    server.client.post("/api/v1/sources", json={"id": "cam", "uri": camera.url("gate"), "options": {"timeout": "3s"}})
    shown = server.source("cam")["address"]
    assert "***" in shown
    for body in ({}, {"uri": shown}, {"options": {"transport": "tcp"}}):
        assert server.client.post("/api/v1/sources/test", json={"id": "cam", **body}).json()["ok"], body
    body = {"id": "cam", "uri": shown.replace("gate", "nothing")}
    assert server.client.post("/api/v1/sources/test", json=body).json()["cause"] == "not_found"


def test_a_stored_password_is_sent_to_its_host_only(server):
    server.client.post("/api/v1/sources", json={"id": "cam", "uri": f"rtsp://ann:{SECRET}@127.0.0.1:9/x"})
    for uri in (
        "rtsp://ann:***@127.0.0.2:9/x",
        "rtsp://ann:***@127.0.0.1:10/x",
        "http://ann:***@127.0.0.1:9/x",
        "rtsp://ben:***@127.0.0.1:9/x",
    ):
        for answer in (
            server.client.post("/api/v1/sources/test", json={"id": "cam", "uri": uri}),
            server.client.put("/api/v1/sources/cam", json={"uri": uri}),
        ):
            assert answer.status_code == 422
            assert "write the password" in answer.json()["error"]
    assert server.client.put("/api/v1/sources/cam", json={"uri": "rtsp://ann:***@127.0.0.1:9/y"}).status_code == 200
    (config,) = [source for source in server.engine.graph.sources if source.id == "cam"]
    assert config.options["uri"] == f"rtsp://ann:{SECRET}@127.0.0.1:9/y"


@pytest.mark.parametrize(
    ("stored", "edited", "expected"),
    [
        ("rtsp://TOKEN@h/a", "rtsp://***@h/b", "rtsp://TOKEN@h/b"),
        ("rtsp://TOKEN@h/a", "rtsp://***@other/b", None),
        ("rtsp://ann:pw@h/a", "rtsp://***@h/a", None),
        ("rtsps://h/aBcDeFgH12345678?enableSrtp", "rtsps://h/***?TCP", "rtsps://h/aBcDeFgH12345678?TCP"),
        ("rtsps://h/aBcDeFgH12345678?enableSrtp", "rtsps://h/sub/***?***", "rtsps://h/sub/aBcDeFgH12345678?enableSrtp"),
        ("rtmp://h/live/KEY", "rtmp://h/app/***", "rtmp://h/app/KEY"),
        ("rtmp://h/a/ONE/TWO", "rtmp://h/b/***/***", "rtmp://h/b/ONE/TWO"),
        ("rtmp://h/a/ONE", "rtmp://h/b/***/***", None),
        ("rtsp://h/s#KEY", "rtsp://h/t#***", "rtsp://h/t#KEY"),
        ("rtsp://h/s?a=1&b=2", "rtsp://h/s?b=***&a=***", "rtsp://h/s?b=2&a=1"),
        ("rtsp://h/s?a=1", "rtsp://h/s?b=***", None),
    ],
)
def test_masked_parts_are_restored_from_the_stored_address(stored, edited, expected):
    if expected is not None:
        assert with_hidden_parts(edited, stored) == expected
        return
    with pytest.raises(RequestRejected, match="write the password"):
        with_hidden_parts(edited, stored)


PLUGIN = """
from typing import Annotated
from streamkit.core.stage import stage
from streamkit.stages.sources.test_pattern import TestPattern

@stage("behind_proxy")
class BehindProxy(TestPattern):
    proxy: Annotated[str, "the address of a proxy"] = ""
"""


def test_masked_parts_of_options_are_restored(root, monkeypatch, tmp_path):
    monkeypatch.chdir(root)
    (tmp_path / "behind_proxy.py").write_text(PLUGIN)
    proxy = f"http://ann:{SECRET}@127.0.0.1:9"
    text = (
        f"plugins: [{tmp_path}/behind_proxy.py]\n"
        f"sources: {{cam: {{stage: behind_proxy, uri: 'test://', pace: 10, proxy: '{proxy}'}}}}\n"
        "stages: {jsonl: {path: /dev/null}}"
    )
    with served(text, root) as instance:
        shown = instance.source("cam")["options"]
        assert shown == {"pace": 10, "proxy": "http://ann:***@127.0.0.1:9"}
        assert "behind_proxy" in instance.client.get("/api/v1/source-options").json()
        assert instance.client.put("/api/v1/sources/cam", json={"options": {**shown, "pace": 20}}).status_code == 200
        (config,) = instance.engine.graph.sources
        assert (config.options["pace"], config.options["proxy"]) == (20, proxy)


def test_a_pipeline_with_hidden_regions_returns_no_test_image(root, monkeypatch):
    monkeypatch.chdir(root)
    text = (
        "sources: {cam: {uri: 'test://', pace: 10}}\n"
        "stages: {detect: {model: demo}, draw: {blur: [person]}, jsonl: {path: /dev/null}}"
    )
    with served(text, root) as instance:
        tested = instance.client.post("/api/v1/sources/test", json={"uri": "test://"}).json()
        assert (tested["ok"], tested["image"], tested["width"]) == (True, None, 640)


def test_source_forms_work_with_several_processes(root, monkeypatch):
    monkeypatch.chdir(root)
    text = (
        "device: {use: cpu, processes: 2}\n"
        "sources: {cam: {uri: 'test://', pace: 10}}\nstages: {jsonl: {path: /dev/null}}"
    )
    with served(text, root) as instance:
        instance.running("cam")
        assert check(instance, "test://")["ok"]
        assert check(instance, "test://", id="cam")["ok"]
        assert send(instance, "id,uri,pace\none,test://,5\ntwo,test://,5\n", "all")["added"] == ["one", "two"]
        assert instance.running("two")["options"] == {"pace": 5}
        assert "two,test://,,,,,,5" in instance.client.get("/api/v1/sources.csv").text
        assert instance.client.get("/api/v1/source-options").status_code == 200
        assert instance.client.get("/api/v1/audit?action=sources.add").json()[0]["target"] == "one, two"


# ------------------------------------------------------------------------------------------------------------ options


def test_each_kind_of_source_lists_its_options(server):
    kinds = server.client.get("/api/v1/source-options").json()
    assert next(iter(kinds)) == "source"
    assert {"source", "images", "test_pattern"} <= set(kinds)
    names = [option["name"] for option in kinds["source"]]
    assert names[:7] == ["name", "group", "transport", "timeout", "fps", "low_latency", "reconnect"]
    assert "uri" not in names
    option_by_name = {option["name"]: option for option in kinds["source"]}
    assert option_by_name["transport"]["schema"]["enum"] == ["auto", "tcp", "udp"]
    assert (option_by_name["timeout"]["type"], option_by_name["timeout"]["default"]) == ("duration, such as 10s", 15.0)
    assert [name for name in names if option_by_name[name]["common"]] == names[:7]
    assert all(option["help"] and option["type"] for option in kinds["source"])
    reconnect = next(
        variant for variant in option_by_name["reconnect"]["schema"]["anyOf"] if variant.get("type") == "object"
    )
    assert set(reconnect["properties"]) == {"max_backoff", "attempts", "give_up"}


# ---------------------------------------------------------------------------------------------------------------- CSV


def send(server, text, mode="check"):
    answer = server.client.post("/api/v1/sources.csv", json={"csv": text, "mode": mode})
    assert answer.status_code == 200, answer.text
    return answer.json()


BAD = f"""id,uri,timeout,reconnect
one,rtsp://u:{SECRET}@127.0.0.1:9/a,3s,false
a b,test://,,
two,/etc/passwd,,
three,rtsp://127.0.0.1:9/c,soon,

one,test://,,
street,test://,,
four,rtsp://127.0.0.1:9/d,5s,{{max_backoff: 2s}}
five,rtsp://u:***@127.0.0.1:9/e,,
six,test://,,,more
seven,test://,,
"""


def test_each_line_of_a_csv_reports_its_problem(server):
    upload = send(server, BAD)
    assert upload["added"] == []
    assert SECRET not in str(upload)
    problems = {(csv_line["line"], csv_line["id"]): csv_line["problem"] for csv_line in upload["lines"]}
    assert [key for key, problem in problems.items() if not problem] == [(2, "one"), (9, "four"), (12, "seven")]
    for key, words in {
        (3, "a b"): "an id consists of",
        (4, "two"): "--allow-files",
        (5, "three"): "timeout",
        (7, "one"): "in line 2 already",
        (8, "street"): "exists already",
        (10, "five"): "write the password",
        (11, "six"): "values for 4 columns",
    }.items():
        assert words in problems[key], problems[key]
    assert upload["lines"][0]["address"] == "rtsp://u:***@127.0.0.1:9/a"
    assert len(server.client.get("/api/v1/sources").json()) == 2


def test_a_csv_is_imported_completely_or_not_at_all(server):
    assert send(server, BAD, "all")["added"] == []
    assert len(server.client.get("/api/v1/sources").json()) == 2
    good = "id;uri;pace;every\nalpha;test://;5;2\n\nbeta;test://;;\n"
    assert send(server, good, "all")["added"] == ["alpha", "beta"]
    assert server.source("alpha")["options"] == {"pace": 5, "every": 2}
    assert server.source("beta")["options"] == {}


def test_valid_lines_are_added_with_their_options(server):
    assert send(server, BAD, "valid")["added"] == ["one", "four", "seven"]
    assert server.source("one")["options"] == {"timeout": "3s", "reconnect": False}
    assert server.source("four")["options"] == {"timeout": "5s", "reconnect": {"max_backoff": "2s"}}
    assert server.source("seven")["options"] == {}
    (config,) = [source for source in server.engine.graph.sources if source.id == "one"]
    assert config.options["uri"] == f"rtsp://u:{SECRET}@127.0.0.1:9/a"
    entry = server.client.get("/api/v1/audit?action=sources.add").json()[0]
    assert (entry["target"], entry["detail"]["mode"]) == ("one, four, seven", "valid")


def test_a_failed_addition_reverts_the_whole_import(server, monkeypatch):
    before = server.engine.running.add

    def add(config):
        from streamkit.core.errors import StreamkitError

        if config.id == "beta":
            raise StreamkitError("the pipeline stops")
        before(config)

    monkeypatch.setattr(server.engine.running, "add", add)
    text = "id,uri\nalpha,test://\nbeta,test://\ngamma,test://\n"
    upload = send(server, text, "all")
    assert upload["added"] == []
    assert [csv_line["problem"] for csv_line in upload["lines"]] == ["", "the pipeline stops", ""]
    assert len(server.client.get("/api/v1/sources").json()) == 2
    assert send(server, text, "valid")["added"] == ["alpha", "gamma"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("uri\ntest://", "no column 'id'"),
        ("id,name\na,b", "no column 'uri'"),
        ("id,uri,id\n", "there twice"),
        ('id,uri\na,"test://', "line"),
        ("id,uri\n" + "".join(f"c{n},test://\n" for n in range(1001)), "at most 1000"),
    ],
)
def test_a_malformed_csv_is_reported(server, text, words):
    answer = server.client.post("/api/v1/sources.csv", json={"csv": text})
    assert answer.status_code == 422
    assert words in answer.json()["error"]


def test_the_export_has_no_passwords_and_can_be_imported(server):
    new = {"id": "cam", "uri": f"rtsp://ann:{SECRET}@127.0.0.1:9/x", "options": {"timeout": "3s"}}
    server.client.post("/api/v1/sources", json=new)
    server.client.post("/api/v1/sources", json={"id": "bars", "uri": "test://", "options": {"pace": 5, "every": 2}})
    answer = server.client.get("/api/v1/sources.csv")
    assert answer.headers["content-type"].startswith("text/csv")
    assert "sources.csv" in answer.headers["content-disposition"]
    assert SECRET not in answer.text
    rows = {row["id"]: row for row in csv.DictReader(io.StringIO(answer.text))}
    assert rows["cam"]["uri"] == "rtsp://ann:***@127.0.0.1:9/x"
    assert rows["cam"]["timeout"] == "3s"
    assert (rows["bars"]["pace"], rows["bars"]["every"], rows["bars"]["timeout"]) == ("5", "2", "")
    for id_ in ("cam", "bars"):
        server.client.delete(f"/api/v1/sources/{id_}")
    problem_by_id = {csv_line["id"]: csv_line["problem"] for csv_line in send(server, answer.text, "valid")["lines"]}
    assert "write the password" in problem_by_id["cam"]
    assert problem_by_id["bars"] == ""
    assert server.source("bars")["options"] == {"pace": 5, "every": 2}


def test_yaml_aliases_in_csv_cells_are_refused(server):
    """Each of ten thousand cells could stand for thousands of values."""
    text = 'id,uri,reconnect\nnew,test://,"[&a [x], *a]"\n'
    (line,) = server.client.post("/api/v1/sources.csv", json={"csv": text, "mode": "check"}).json()["lines"]
    assert "the aliases of this file may stand for at most 0 values" in line["problem"]
