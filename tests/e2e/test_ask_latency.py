"""Other streams do not notice that questions of one are asked: their latency, with a slow endpoint that fails."""

import statistics

import pytest
from support.vlm_endpoint import apart

PIPELINE = """
sources:
  asked: {{uri: samples/street.mp4, pace: realtime}}
  other: {{uri: samples/street.mp4, pace: realtime}}
stages:
  detections: {{path: "{{source}}.truth.jsonl", keep_ids: true}}
  rule: {{when: 'source == "asked" and (person or car) and age_s > 0.2'}}
  {ask}
  collect: {{}}
"""
ASK = 'ask: {{url: "{url}", model: eye, when: rule, prompt: "?", answer: {{injured: bool, why: str}}, after: 1s}}'
ROUNDS, FRAMES = 6, 200


@pytest.mark.long
@pytest.mark.alone
def test_the_latency_of_other_streams_is_unchanged(run_pipeline, tmp_path, monkeypatch, root):
    (tmp_path / "samples").symlink_to(root / "samples")
    for id_ in ("asked", "other"):
        (tmp_path / f"{id_}.truth.jsonl").symlink_to("samples/street.truth.jsonl")
    monkeypatch.chdir(tmp_path)
    found: dict[bool, list[float]] = {False: [], True: []}
    with apart(2.0, 5) as url:
        for asks in [False, True] * ROUNDS:
            ask = ASK.format(url=url) if asks else "crowd: {stage: rule, when: count(person) > 99}"
            outcome = run_pipeline(PIPELINE.format(ask=ask), limit=FRAMES)
            found[asks].append(outcome.report["sources"]["other"]["latency"]["p95_ms"])
            if asks:
                assert outcome.report["counts"]["questions asked"] > 10
                assert outcome.report["counts"]["ask calls failed: HTTP 503"] > 0
    without, with_ = (statistics.median(found[asks]) for asks in (False, True))
    print(f"p95 of the other stream: {without:.1f} ms without questions, {with_:.1f} ms with them; {found}")
    assert with_ < 1.05 * without
