"""A clip asked for over HTTP, of a real pipeline that records."""

import av
from support.servers import served

PIPELINE = """
sources:
  bars: {{uri: "test://", pace: 5}}
  street: {{uri: samples/street.mp4, every: 5, pace: realtime, loop: true, pace_seed: 1}}
stages:
  clip: {{stage: record, before: 1s, after: 1s, path: "{folder}/{{source}}-{{time}}.mp4"}}
"""


def test_a_clip_is_recorded_on_request(root, tmp_path):
    with served(PIPELINE.format(folder=tmp_path), root) as server:
        server.running("street")
        status = server.open.get("/api/v1/status").json()
        assert (status["records"], status["events"], status["last_event"]) == (["clip"], {}, 0)
        assert server.open.post("/api/v1/sources/street/record").status_code == 401
        assert server.client.post("/api/v1/sources/nobody/record").status_code == 404
        recorded = server.client.post("/api/v1/sources/street/record")
        assert recorded.status_code == 200, recorded.text
        assert recorded.json()["id"] == "street"
        (path,) = server.until(lambda: list(tmp_path.glob("street-*.mp4")))
        refused = server.client.post("/api/v1/sources/bars/record")
        assert (refused.status_code, refused.json()["error"].partition(";")[0]) == (
            409,
            "bars is a test_pattern, which has no packets to record",
        )
        server.client.post("/api/v1/sources/street/pause")
        server.until(lambda: server.source("street")["state"] == "paused")
        refused = server.client.post("/api/v1/sources/street/record")
        assert refused.status_code == 409
        assert "it is paused" in refused.json()["error"]
    with av.open(str(path)) as clip:
        pictures = list(clip.decode(video=0))
    assert pictures[0].key_frame
    assert len(pictures) > 20
