"""The YAML behind the API: reading, checking, saving and following it, over a real server."""

import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from support.clips import resized
from support.servers import SECRET, served

from streamkit.config.yaml_edit import digest

TEXT = f"""\
# the shop
sources:
  street: {{uri: samples/street.mp4, every: 3, pace: 10, loop: true}}   # a file
  gate: {{uri: "rtsp://operator:{SECRET}@127.0.0.1:9/stream1"}}
stages:
  detect: {{model: demo}}   # the model
  track: {{}}
  till:            # who waits
    stage: zone
    units:   share
    polygon:
      # at the till
      far: [[0, 0], [0.01, 0], [0.01, 0.01]]   # nothing is here
    debounce: 0s
"""
ALL = [[0, 0], [1, 0], [1, 1], [0, 1]]


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return tmp_path_factory.mktemp("config") / "shop.yaml"


@pytest.fixture(scope="module")
def server(root, path):
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(root)
        with served(TEXT, root, path=path) as shop_server:
            shop_server.running("street")
            yield shop_server


@pytest.fixture(autouse=True)
def as_before(server, path):
    """Each test begins with the same text, which is applied."""
    restore(server, path)
    yield
    restore(server, path)


def restore(server, path):
    path.chmod(0o644)
    if path.read_text() != TEXT:
        path.write_text(TEXT)
    server.until(lambda: config(server)["applied"] and server.engine.ready)
    assert server.client.post("/api/v1/config/differences/restore").json()["differences"] == []


def config(server):
    return server.client.get("/api/v1/config").json()


def save(server, text, hash_=None):
    return server.client.put("/api/v1/config", json={"text": text, "hash": hash_ or config(server)["hash"]})


def shapes(server, stage="till", option="polygon"):
    view = server.client.get("/api/v1/shapes").json()
    return view, next(
        shape_option
        for shape_option in view["options"]
        if (shape_option["stage"], shape_option["option"]) == (stage, option)
    )


def draw(server, shapes_, *, stage="till", option="polygon", dry_run=False, **more):
    edit = {"option": option, "shapes": shapes_, "dry_run": dry_run, "hash": config(server)["hash"], **more}
    return server.client.post(f"/api/v1/stages/{stage}/shapes", json=edit)


# -------------------------------------------------------------------------------------------------------------- reading


def test_only_signed_in_clients_read_the_yaml(server, path):
    view = config(server)
    assert view == {
        "name": "shop.yaml",
        "text": TEXT,
        "hash": digest(TEXT),
        "applied": True,
        "rejected": "",
        "read_only": "",
    }
    for verb, call in (
        ("get", "config"),
        ("get", "config/schema"),
        ("get", "shapes"),
        ("put", "config"),
        ("post", "config/check"),
        ("post", "stages/till/shapes"),
    ):
        answer = getattr(server.open, verb)(f"/api/v1/{call}")
        assert answer.status_code == 401
        assert SECRET not in answer.text
    for call in ("status", "stages", "sources"):
        assert SECRET not in server.open.get(f"/api/v1/{call}").text


def test_the_schema_equals_that_of_editors(server):
    json_schema = server.client.get("/api/v1/config/schema").json()
    assert json_schema["properties"]["stages"]["properties"]["zone"]
    assert "stage.zone" in json_schema["$defs"]


def test_shapes_refer_to_the_first_frame_of_a_source_that_changes_its_size(tmp_path):
    clip = resized(tmp_path, ".h264")
    text = f"sources: {{gate: {{uri: '{clip}', loop: true, pace: realtime}}}}\nstages: {{draw: {{}}}}\n"
    with served(text, tmp_path, path=tmp_path / "gate.yaml") as server:
        server.until(lambda: server.engine.running.states["gate"].size == (96, 80))
        assert server.client.get("/api/v1/shapes").json()["sizes"] == {"gate": [64, 48]}


def test_shapes_have_their_units_and_the_size_of_the_pictures(server):
    view, till = shapes(server)
    assert view["sizes"]["street"] == [640, 360]
    assert view["hash"] == digest(TEXT)
    assert (till["type"], till["kind"], till["units"], till["single"], till["named"]) == (
        "zone",
        "area",
        "share",
        True,
        True,
    )
    assert till["shapes"] == {"far": [[0, 0], [0.01, 0], [0.01, 0.01]]}


# ------------------------------------------------------------------------------------------------------------- checking


def test_a_check_reports_each_problem_with_its_position_and_saves_nothing(server, path):
    text = TEXT.replace("debounce: 0s", "debonce: 0s").replace("model: demo", "model: demu")
    checked = server.client.post("/api/v1/config/check", json={"text": text}).json()
    assert [(problem["line"], problem["column"], problem["warning"]) for problem in checked["problems"]] == [
        (6, 19, False),
        (14, 5, False),
    ]
    assert "did you mean 'debounce'?" in checked["problems"][1]["text"]
    assert "\n-    debounce: 0s\n+    debonce: 0s\n" in checked["diff"]
    assert not checked["saved"]
    assert path.read_text() == TEXT


@pytest.mark.parametrize(
    "text", ["", "a: [", "- 1", "\t", "a: &a [*a]", "sources: {a: b}\nsources: {}", "\x00", "\ud800"]
)
def test_text_that_is_not_a_pipeline_is_refused_with_a_reason(server, path, text):
    import json

    body = json.dumps({"text": text}).encode()
    answer = server.client.post("/api/v1/config/check", content=body, headers={"content-type": "application/json"})
    assert answer.status_code in (200, 422)
    assert answer.json().get("problems") or answer.json().get("error")
    assert path.read_text() == TEXT


def test_a_check_does_not_run_a_new_plugin(server, path):
    mark = path.parent / "ran"
    (path.parent / "evil.py").write_text(f"import pathlib\npathlib.Path({str(mark)!r}).touch()\n")
    text = f"plugins: [evil.py]\n{TEXT}"
    checked = server.client.post("/api/v1/config/check", json={"text": text}).json()
    assert checked["problems"][0]["line"] == 1
    assert "--allow-files" in checked["problems"][0]["text"]
    assert save(server, text).status_code == 422
    path.write_text("stages: [")  # a file that cannot be read allows no more
    checked = server.client.post("/api/v1/config/check", json={"text": text}).json()
    assert "--allow-files" in checked["problems"][0]["text"]
    assert not mark.exists()


# --------------------------------------------------------------------------------------------------------------- saving


def test_a_saved_edit_is_applied_without_restarting_sources(server, path):
    server.client.post("/api/v1/sources", json={"id": "extra", "uri": "test://"})
    server.client.post("/api/v1/sources/gate/pause")
    server.until(lambda: server.source("extra").get("frames"))
    answer = save(server, TEXT.replace("debounce: 0s", "debounce: 10ms"))
    assert answer.status_code == 200, answer.text
    assert answer.json()["saved"]
    assert answer.json()["hash"] == digest(path.read_text())
    assert "+    debounce: 10ms" in answer.json()["diff"]
    server.until(lambda: config(server)["applied"] and server.engine.ready)
    assert server.engine.graph.nodes["till"].options["debounce"] == 0.01
    server.running("street")
    server.running("extra")  # added by a call, and not in the YAML
    assert server.source("gate")["state"] == "paused"
    server.until(lambda: server.client.get("/api/v1/sources/street/snapshot.jpg").status_code == 200)
    server.client.delete("/api/v1/sources/extra")
    server.client.post("/api/v1/sources/gate/resume")
    assert server.engine.running.report(0)["restarts"] >= 1


def test_an_invalid_edit_is_refused_with_its_line_and_not_saved(server, path):
    before = path.stat()
    answer = save(server, TEXT.replace("debounce: 0s", "debonce: 0s"))
    assert answer.status_code == 422
    assert answer.json()["error"].startswith("line 14, column 5: zone has no option 'debonce'")
    assert (path.read_text(), path.stat().st_ino, path.stat().st_mtime_ns) == (TEXT, before.st_ino, before.st_mtime_ns)


def test_a_file_changed_on_disk_is_not_overwritten(server, path):
    hash_before = config(server)["hash"]
    path.write_text(other := TEXT.replace("# the shop", "# by another editor"))
    answer = save(server, TEXT.replace("# the shop", "# mine"), hash_before)
    assert answer.status_code == 409
    assert "has changed since it was read" in answer.json()["error"]
    assert path.read_text() == other
    edit = {"option": "polygon", "shapes": {"far": ALL}, "dry_run": True, "hash": hash_before}
    assert server.client.post("/api/v1/stages/till/shapes", json=edit).status_code == 409


def test_saving_keeps_permissions_and_symbolic_links(server, path):
    path.chmod(0o640)
    target = path.rename(path.with_name("target.yaml"))
    path.symlink_to(target.name)
    try:
        assert save(server, TEXT + "# more\n").status_code == 200
        assert path.is_symlink()
        assert target.read_text() == TEXT + "# more\n"
        assert target.stat().st_mode & 0o777 == 0o640
        assert [entry.name for entry in path.parent.iterdir() if entry.name.endswith(".part")] == []
    finally:
        path.unlink()
        target.rename(path)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everything")
def test_a_read_only_file_is_reported(server, path):
    path.chmod(0o444)
    assert "read-only" in config(server)["read_only"]
    assert "read-only" in save(server, TEXT + "#\n").json()["error"]


def test_an_unwritable_file_is_reported(server, path, monkeypatch):
    monkeypatch.setattr(os, "access", lambda place, mode: Path(place).name != path.name)
    assert "is read-only for this server" in config(server)["read_only"]
    answer = save(server, TEXT + "#\n")
    assert answer.status_code == 409
    assert path.read_text() == TEXT


KILLED = """
import os, signal, sys
from pathlib import Path
from streamkit.serve.pipeline_file import PipelineFile
from streamkit.config.yaml_edit import digest
path = Path(sys.argv[1])
made = PipelineFile(path, lambda text: ([], [], None))
os.replace = lambda *given: os.kill(os.getpid(), signal.SIGKILL)
made.write(made.checked("new"), digest(path.read_text()))
"""


def test_a_kill_while_saving_leaves_a_complete_file(tmp_path, root):
    path = tmp_path / "p.yaml"
    path.write_text("old")
    completed = subprocess.run(
        [sys.executable, "-c", KILLED, str(path)], cwd=root, env={**os.environ, "PYTHONPATH": str(root)}
    )
    assert completed.returncode == -signal.SIGKILL
    assert path.read_text() == "old"
    from streamkit.serve.pipeline_file import PipelineFile

    pipeline_file = PipelineFile(path, lambda text: ([], [], None))  # what the kill has left is no obstacle
    pipeline_file.write(pipeline_file.checked("new"), digest("old"))
    assert [(entry.name, entry.read_text()) for entry in tmp_path.iterdir()] == [("p.yaml", "new")]


def test_saving_keeps_line_endings(tmp_path):
    from streamkit.serve.pipeline_file import PipelineFile

    path = tmp_path / "p.yaml"
    path.write_bytes(b"a: 1\r\nb: 2\r\n")
    pipeline_file = PipelineFile(path, lambda text: ([], [], None))
    pipeline_file.write(pipeline_file.checked("a: 1\nb: 3\n"), digest("a: 1\r\nb: 2\r\n"))
    assert path.read_bytes() == b"a: 1\r\nb: 3\r\n"


# -------------------------------------------------------------------------------------------------- edits on the disk


def test_an_edit_on_disk_is_applied_and_an_invalid_one_is_shown(server, path):
    path.write_text(TEXT.replace("debounce: 0s", "debonce: 0s"))
    server.until(lambda: config(server)["rejected"])
    view = config(server)
    assert "debonce" in view["rejected"]
    assert not view["applied"]
    assert server.open.get("/api/v1/status").json()["edit_rejected"]
    assert "debonce" not in server.open.get("/api/v1/status").text
    frames = server.source("street")["frames"]
    server.until(lambda: server.source("street")["frames"] > frames)  # all goes on
    path.write_text(TEXT.replace("  gate", "  second: {uri: 'test://', pace: realtime}\n  gate"))
    server.until(lambda: config(server)["applied"])
    server.running("second")
    assert not server.open.get("/api/v1/status").json()["edit_rejected"]


def test_stages_that_cannot_be_opened_leave_the_previous_pipeline(server, path):
    path.write_text(TEXT + "  jsonl: {path: /proc/nothing/x.jsonl}\n")
    server.until(lambda: config(server)["rejected"], 60)
    assert "/proc/nothing" in config(server)["rejected"]
    server.until(lambda: server.engine.ready)
    server.running("street")
    assert server.client.get("/api/v1/sources/street/snapshot.jpg").status_code == 200
    assert [name for name in server.engine.graph.nodes if name.startswith("preview")] == ["preview"]


# --------------------------------------------------------------------------------------------------------------- shapes


def test_a_previewed_zone_is_saved_and_emits_events(server, path):
    shown = draw(server, {"far": [[0, 0], [0.01, 0], [0.01, 0.01]], "all": ALL}, dry_run=True).json()
    assert shown["problems"] == []
    assert [line for line in shown["diff"].splitlines()[2:] if line[:1] in "+-"] == [
        "+      all: [[0, 0], [1, 0], [1, 1], [0, 1]]"
    ]
    assert path.read_text() == TEXT
    assert not [event for event in server.engine.gallery.events(500) if event.event.data.get("zone") == "all"]
    saved = draw(server, {"far": [[0, 0], [0.01, 0], [0.01, 0.01]], "all": ALL})
    assert saved.status_code == 200, saved.text
    assert path.read_text() == TEXT.replace("is here\n", "is here\n      all: [[0, 0], [1, 0], [1, 1], [0, 1]]\n")
    server.until(
        lambda: [
            event
            for event in server.client.get("/api/v1/events?limit=500").json()
            if event["kind"] == "entered" and event["data"].get("zone") == "all"
        ]
    )


def test_sources_of_shapes_are_added_kept_and_removed(server, path):
    def saved(shapes_, **more):
        answer = draw(server, shapes_, **more).json()
        assert answer["saved"], answer
        return answer, shapes(server)[1]["sources"]

    far = {"far": [[0, 0], [0.01, 0], [0.01, 0.01]]}
    assert saved(far, sources={"far": ["street"]})[1] == {"far": ["street"]}
    assert path.read_text() == f"{TEXT}    sources:\n      far: [street]\n"
    assert saved({**far, "all": ALL})[1] == {"far": ["street"]}
    answer, sources = saved({**far, "all": ALL}, sources={"all": ["street", "nobody"]})
    assert sources == {"all": ["street", "nobody"]}
    (warning,) = answer["problems"]
    assert (warning["warning"], warning["text"]) == (
        True,
        "till.sources.all: there is no source 'nobody'; known: street, gate",
    )
    assert saved({**far, "all": ALL}, sources={})[1] == {}
    assert "sources:\n      all" not in path.read_text()


@pytest.mark.parametrize(
    ("change", "status", "text"),
    [
        ({"shapes": {"far": [[0, 0], [1, 1]]}}, 422, "line 13, column 12: till.polygon.far must have three corners"),
        ({"shapes": {"far": [[0, 0], [1, 0], [0.2, 1], [0.2, -0.5]]}}, 422, "must not cross or touch itself"),
        ({"shapes": {"far": [[0, 0], [500, 0], [0.2, 1]]}}, 422, "with units: share"),
        ({"shapes": {"": ALL, "far": ALL}}, 422, "give each shape a name"),
        ({"shapes": {}}, 422, "till.polygon is required"),
        ({"shapes": {"far": ALL}, "sources": {"far": []}}, 422, "sources.far"),
        ({"shapes": {"far": ALL}, "sources": {"far": [""]}}, 422, "sources.far.0"),
        ({"stage": "detect", "option": "roi", "shapes": {"": ALL}, "sources": {"": ["a"]}}, 422, "for all sources"),
        ({"option": "line"}, 404, "these have: detect.roi, till.polygon"),
        ({"stage": "nothing"}, 404, "nothing has no option"),
        ({"shapes": {"far": [[0, "x"], [1, 0], [1, 1]]}}, 422, "shapes.far.0.1"),
    ],
)
def test_an_impossible_shape_is_refused(server, path, change, status, text):
    more = {name: value for name, value in change.items() if name != "shapes"}
    answer = draw(server, change.get("shapes", {"far": ALL}), **more)
    assert answer.status_code == status, answer.text
    assert text in answer.json()["error"]
    assert path.read_text() == TEXT


def test_a_mask_is_added_and_removed(server, path):
    path.write_text(with_draw := TEXT + "  draw:\n")
    server.until(lambda: config(server)["applied"])
    drawn = draw(server, {"plate": ALL}, stage="draw", option="blur.zone", units="share")
    assert drawn.status_code == 200, drawn.text
    assert path.read_text() == with_draw + textwrap.indent(
        "blur:\n  zone:\n    plate: [[0, 0], [1, 0], [1, 1], [0, 1]]\n  units: share\n", "    "
    )
    _, option = shapes(server, "draw", "blur.zone")
    assert (option["hides"], option["units"]) == (True, "share")
    assert draw(server, {}, stage="draw", option="blur.zone").status_code == 200
    assert path.read_text() == TEXT + "  draw: {}\n"


def test_a_blur_of_objects_is_not_listed_as_a_mask(server, path):
    path.write_text(TEXT + "  draw: {blur: [person]}\n")
    _, option = shapes(server, "draw", "blur.zone")
    assert "hides objects" in option["fixed"]
    assert draw(server, {"a": ALL}, stage="draw", option="blur.zone").status_code == 409
    assert shapes(server, "draw", "pixelate.zone")[1]["fixed"] == ""


def test_a_shape_that_an_anchor_shares_is_not_changed(server, path):
    text = TEXT.replace("      far: ", "      far: &far ").replace("debounce", "labels: [car]\n    debounce")
    text += "  other: {stage: zone, units: share, polygon: {far: *far}}\n"
    path.write_text(text)
    answer = draw(server, {"far": ALL})
    assert answer.status_code == 409
    assert "&far, which line" in answer.json()["error"]
    assert path.read_text() == text


# ------------------------------------------------------------------------------------------------------------- attacks


def test_bodies_that_are_too_large_are_refused(server, path):
    assert server.client.put("/api/v1/config", json={"text": "#" * 1_100_000, "hash": "0" * 64}).status_code == 413
    assert server.client.put("/api/v1/config", json={"text": "#" * 400_000, "hash": "0" * 64}).status_code == 422
    many = {f"z{n}": ALL for n in range(300)}
    assert draw(server, many).status_code == 422
    assert path.read_text() == TEXT


def test_no_request_path_reaches_another_file(server, path):
    for stage in ("../../etc/passwd", "%2e%2e%2fetc", "..%2f..%2fshop", "a/b"):
        edit = {"option": "polygon", "shapes": {"a": ALL}, "hash": config(server)["hash"]}
        assert server.client.post(f"/api/v1/stages/{stage}/shapes", json=edit).status_code in (404, 405)
    for more in ({"path": "/tmp/x"}, {"name": "../x"}):
        answer = server.client.put("/api/v1/config", json={"text": TEXT, "hash": config(server)["hash"], **more})
        assert answer.status_code == 422


def test_another_origin_cannot_edit(server, path):
    import httpx

    from streamkit.serve.token import COOKIE

    cookie = server.open.post("/api/v1/session", json={"token": "the token of the tests"}).cookies[COOKIE]
    server.open.cookies.clear()
    body = {"text": TEXT + "#\n", "hash": config(server)["hash"]}
    for origin in ("http://evil.example", "null"):
        answer = httpx.put(
            server.url + "api/v1/config", json=body, cookies={COOKIE: cookie}, headers={"origin": origin}
        )
        assert answer.status_code == 401
    assert path.read_text() == TEXT


# -------------------------------------------------------------------------------------------------- changes by calls


def differences(server):
    return [difference["text"] for difference in server.client.get("/api/v1/config/differences").json()["differences"]]


def write_differences(server, **more):
    hash_ = server.client.get("/api/v1/config/differences").json()["hash"]
    return server.client.post("/api/v1/config/differences/write", json={"hash": hash_, **more})


def change_by_calls(server):
    yard = {"id": "yard", "uri": f"rtsp://operator:{SECRET}@127.0.0.1:9/yard"}
    assert server.client.post("/api/v1/sources", json=yard).status_code == 201
    assert server.client.delete("/api/v1/sources/gate").status_code == 204
    change = {"options": {"every": 3, "pace": 5, "loop": True}}
    assert server.client.put("/api/v1/sources/street", json=change).status_code == 200
    assert server.client.patch("/api/v1/stages/detect", json={"min_score": 0.6}).status_code == 200
    moved = {"polygon": {"far": [[0, 0], [0.5, 0], [0.5, 0.5]]}}
    assert server.client.patch("/api/v1/stages/till", json=moved).status_code == 200


CHANGED = [
    "source gate of the YAML is removed",
    "source yard is not in the YAML",
    "source street has another pace",
    "detect.postprocess.min_score is 0.6, and not set in the YAML",
    "till.polygon has another value",
]


def test_changes_through_the_api_are_listed_and_reverted(server):
    assert differences(server) == []
    change_by_calls(server)
    view = server.client.get("/api/v1/config/differences")
    assert differences(server) == CHANGED
    assert (view.json()["kept"], view.json()["hash"]) == (False, digest(TEXT))
    assert SECRET not in view.text
    server.until(lambda: server.open.get("/api/v1/status").json()["differs"] == 5)
    restored = server.client.post("/api/v1/config/differences/restore")
    assert (restored.status_code, restored.json()["differences"]) == (200, [])
    assert [source["id"] for source in server.client.get("/api/v1/sources").json()] == ["street", "gate"]
    server.until(lambda: server.open.get("/api/v1/status").json()["differs"] == 0)
    assert config(server)["text"] == TEXT


def test_changes_through_the_api_are_saved_to_the_yaml_without_a_restart(server, path):
    change_by_calls(server)
    server.running("street")
    run = server.engine.running.current
    states = dict(server.engine.running.states)
    planned = write_differences(server, dry_run=True)
    assert planned.status_code == 200
    assert (planned.json()["problems"], planned.json()["saved"], planned.json()["rebuilds"]) == ([], False, [])
    assert path.read_text() == TEXT
    saved = write_differences(server).json()
    assert (saved["diff"], saved["saved"]) == (planned.json()["diff"], True)
    server.until(lambda: config(server)["applied"])
    assert differences(server) == []
    assert server.engine.running.current is run
    assert {id_: state is states[id_] for id_, state in server.engine.running.states.items()} == {
        "street": True,
        "yard": True,
    }
    text = path.read_text()
    assert "  street: {uri: samples/street.mp4, every: 3, pace: 5, loop: true}   # a file\n" in text
    assert "gate" not in text
    assert "      far: [[0, 0], [0.5, 0], [0.5, 0.5]]   # nothing is here\n" in text
    assert server.logged[-1] == f"{path}: no change that affects the pipeline"


def test_paused_sources_and_files_of_folders_remain_differences(root, tmp_path, monkeypatch):
    monkeypatch.chdir(root)
    (tmp_path / "clips").mkdir()
    for name in ("one", "two"):
        (tmp_path / "clips" / f"{name}.mp4").symlink_to(root / "samples/street.mp4")
    sources = f"{{clips: {tmp_path}/clips, cam: 'test://?width=64&height=48'}}"
    text = f"sources: {sources}\nstages: {{jsonl: {{path: /dev/null}}}}\n"
    with served(text, root, path=tmp_path / "p.yaml", allow_files=True) as instance:
        instance.running("cam")
        assert instance.client.post("/api/v1/sources/cam/pause").status_code == 200
        assert instance.client.delete("/api/v1/sources/clips/two").status_code == 204
        assert differences(instance) == ["source clips/two of the YAML is removed", "source cam is paused"]
        planned = write_differences(instance, dry_run=True).json()
        assert planned["diff"] == ""
        assert [problem["text"] for problem in planned["problems"]] == [
            f"{text}: this cannot be written to the YAML" for text in differences(instance)
        ]
        assert instance.client.post("/api/v1/config/differences/restore").json()["differences"] == []
        assert sorted(instance.engine.running.states) == ["cam", "clips/one", "clips/two"]
        assert instance.source("cam")["state"] != "paused"


def test_saving_changes_keeps_variables_and_short_sources(root, tmp_path, monkeypatch):
    monkeypatch.chdir(root)
    monkeypatch.setenv("CAM_PASSWORD", SECRET)
    path = tmp_path / "p.yaml"
    text = "sources:\n  cam: 'rtsp://u:${CAM_PASSWORD}@127.0.0.1:9/a'\nstages: {jsonl: {path: /dev/null}}\n"
    with served(text, root, path=path, data=tmp_path / "data") as instance:
        assert instance.client.put("/api/v1/sources/cam", json={"options": {"timeout": "3s"}}).status_code == 200
        assert instance.client.post("/api/v1/sources", json={"id": "more", "uri": "test://"}).status_code == 201
        assert write_differences(instance).status_code == 200
        assert "${CAM_PASSWORD}" in path.read_text()
        assert SECRET not in path.read_text()
        assert '  more: "test://"\n' in path.read_text()
        instance.until(lambda: config(instance)["applied"])
        assert differences(instance) == []


def test_differences_to_a_rejected_yaml_are_not_saved(server, path):
    change_by_calls(server)
    stale = server.client.post("/api/v1/config/differences/write", json={"hash": "0" * 64})
    assert (stale.status_code, path.read_text()) == (409, TEXT)
    path.write_text(TEXT.replace("model: demo", "model: nothing"))
    server.until(lambda: server.open.get("/api/v1/status").json()["edit_rejected"])
    refused = write_differences(server)
    assert refused.status_code == 409
    assert "does not run with shop.yaml as it is now" in refused.json()["error"]
    path.write_text(TEXT)
    server.until(lambda: config(server)["applied"])
    assert server.client.post("/api/v1/config/differences/restore").status_code == 200


@pytest.mark.parametrize(
    ("edit", "reasons"),
    [
        (("pace: 10", "pace: 9"), []),
        (("0.01, 0.01]]", "0.02, 0.02]]"), []),
        (("debounce: 0s", "debounce: 1s"), ["till: debounce"]),
        (("  track: {}\n", "  track: {}\n  out: {stage: jsonl, path: /dev/null}\n"), ["out is new", "till: from"]),
        (("# the shop", "batch: 3"), ["batch"]),
        (("detect: {model: demo}", "detect: {model: nothing}"), []),
    ],
)
def test_a_check_lists_the_changes_that_rebuild_the_pipeline(server, edit, reasons):
    checked = server.client.post("/api/v1/config/check", json={"text": TEXT.replace(*edit)}).json()
    assert checked["rebuilds"] == reasons
    assert checked["saved"] is False


def test_a_drawn_zone_is_applied_live_with_a_rule_below(root, tmp_path, monkeypatch):
    monkeypatch.chdir(root)
    rule = "  crowd: {stage: rule, when: 'occupancy(till.far) > 5'}\n"
    with served(f"{TEXT}{rule}", root, path=tmp_path / "p.yaml") as instance:
        instance.running("street")
        run = instance.engine.running.current
        planned = draw(instance, {"far": [[0, 0], [0.5, 0], [0.5, 0.5]]}, dry_run=True)
        assert planned.json()["rebuilds"] == []
        assert draw(instance, {"far": [[0, 0], [0.5, 0], [0.5, 0.5]]}).json()["saved"]
        instance.until(lambda: config(instance)["applied"])
        assert instance.engine.running.current is run
