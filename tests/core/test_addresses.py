"""Every address that a pipeline sends requests to, in a YAML, a card and the environment."""

import json
import socket

import pytest

from streamkit import Pipeline
from streamkit.batch.inputs import find
from streamkit.config.pipeline_config import read_text
from streamkit.core.addresses import check_characters
from streamkit.core.errors import ConfigError, ModelError, SourceError
from streamkit.core.stage import default_registry, options
from streamkit.emit.broker import brokers
from streamkit.io.outputs import fill_path
from streamkit.media.demux import Demuxer
from streamkit.models.card import load_card
from streamkit.runtime.observe.telemetry import open_telemetry

SINKS = {name: broker.scheme for name, broker in brokers(default_registry()).items() if broker.example}
SINKS |= {"stream": "rtsp"}


ANSWER_FIELDS = {"model": "m", "prompt": "p", "answer": {"yes": "bool"}, "when": "rule"}


def problems(tmp_path, **pipeline):
    config = read_text(json.dumps(pipeline), folder=tmp_path)
    return " ".join(problem.text for problem in config.problems)


@pytest.mark.parametrize("sign", ["\r\nSET pwned yes", " x", "\0"])
@pytest.mark.parametrize("place", ["@h{}/a", "@h/a{}"])
def test_no_stage_accepts_an_address_with_line_breaks(place, sign, tmp_path):
    with_url = {
        name
        for name in default_registry().names()
        if "url" in {option.name for option in options(default_registry()[name])}
    }
    assert with_url == SINKS.keys() | {"ask"}
    for name, scheme in SINKS.items():
        more = {"mail_from": "a@b.c", "to": "a@b.c"} if name == "email" else {}
        stage = {"url": f"{scheme}://ann:geheim{place.format(sign)}", **more}
        text = problems(tmp_path, sources={"a": "test://"}, stages={name: stage})
        assert "must have no" in text, name
        assert "geheim" not in text
    text = problems(tmp_path, sources={"a": "test://"}, stages={"ask": {"url": f"http://h/{sign}", **ANSWER_FIELDS}})
    assert "must have no" in text
    text = problems(tmp_path, sources={"a": f"rtsp://ann:geheim{place.format(sign)}"}, stages={"jsonl": {"path": "-"}})
    assert "must have no" in text
    assert "geheim" not in text


@pytest.mark.parametrize("name", sorted(SINKS.keys() - {"email"}))
def test_no_stage_accepts_a_login_with_escaped_line_breaks(name, tmp_path):
    stage = {"url": f"{SINKS[name]}://ann%0d%0aSET:b@h/a"}
    assert "must have no control characters in its user name and password, also not as %0d" in problems(
        tmp_path, sources={"a": "test://"}, stages={name: stage}
    )


def test_other_addresses_of_stages_are_checked(tmp_path):
    for stage, text in [
        ({"nats": {"url": "nats://h", "servers": ["a\x01b:4222"]}}, "servers must be a list"),
        ({"webhook": {"url": "http://h", "headers": {"x": "a\r\nb: c"}}}, "its value have no line ends"),
        ({"webhook": {"url": "http://h", "headers": {"x: y\r\nz": "a"}}}, "must be a header's name"),
    ]:
        assert text in problems(tmp_path, sources={"a": "test://"}, stages=stage)
    headers = {"authorization": "Bearer x", "x-note": "ä\tb"}
    assert not problems(tmp_path, sources={"a": "test://"}, stages={"webhook": {"url": "http://h", "headers": headers}})


def test_a_source_id_with_blanks_is_refused_in_a_pushed_address():
    assert fill_path("rtsp://h/{source}/live", "front door") == "rtsp://h/front%20door/live"
    assert fill_path("out/{source}.mp4", "front door") == "out/front door.mp4"


def test_the_url_of_a_card_is_checked(tmp_path):
    (tmp_path / "card.yaml").write_text("file: net.onnx\nurl: https://h/a b\n")
    with pytest.raises(ModelError, match="must have no blanks"):
        load_card(tmp_path / "card.yaml")


def test_the_endpoint_of_telemetry_is_checked(monkeypatch):
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://h:4318/a b")
    with pytest.raises(ConfigError, match="OTEL_EXPORTER_OTLP_ENDPOINT must have no blanks"):
        open_telemetry()


@pytest.mark.parametrize("uri", ["http://h/a b.mp4", "http://h/a\nb.mp4", "s3://bucket/a\nb.mp4"])
def test_the_addresses_of_batch_are_checked(uri):
    with pytest.raises(ConfigError, match="must have no"):
        find([uri])


def test_keys_of_object_stores_may_have_blanks():
    check_characters("s3://bucket/front door.mp4", blanks=True)


def test_a_refused_address_is_never_requested():
    """What `redis-server` would have executed: it reads commands line by line, and ignores the others."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.setblocking(False)
        uri = f"rtsp://127.0.0.1:{server.getsockname()[1]}/a\r\nSET pwned yes"
        with pytest.raises(ConfigError, match="must have no line ends"):
            Pipeline(uri, model="demo")
        with pytest.raises(SourceError, match="must have no line ends"):
            Demuxer(uri)
        with pytest.raises(BlockingIOError):  # no connection was made
            server.accept()
