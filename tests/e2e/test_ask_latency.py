"""Other streams do not notice that questions of one are asked: their latency, with a slow endpoint that fails."""

import statistics

import pytest

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
ROUNDS, FRAMES = 5, 250


@pytest.mark.long
@pytest.mark.alone
def test_the_latency_of_other_streams_is_unchanged(run_pipeline, vlm, tmp_path, monkeypatch, root):
    (tmp_path / "samples").symlink_to(root / "samples")
    for id_ in ("asked", "other"):
        (tmp_path / f"{id_}.truth.jsonl").symlink_to("samples/street.truth.jsonl")
    monkeypatch.chdir(tmp_path)
    vlm.delay_s = 2.0
    vlm.answers = lambda call, number: 503 if number % 5 == 0 else {"injured": False, "why": "walks"}
    found: dict[bool, list[float]] = {False: [], True: []}
    for asks in [False, True] * ROUNDS:
        ask = ASK.format(url=vlm.url) if asks else "crowd: {stage: rule, when: count(person) > 99}"
        outcome = run_pipeline(PIPELINE.format(ask=ask), limit=FRAMES)
        latency = outcome.report["sources"]["other"]["latency"]
        found[asks].append(latency["p95_ms"])
        if asks:
            assert outcome.report["counts"]["questions asked"] > 10
    without, with_ = (statistics.median(found[asks]) for asks in (False, True))
    print(f"p95 of the other stream: {without:.1f} ms without questions, {with_:.1f} ms with them; {found}")
    assert with_ < 1.05 * without
    assert len(vlm.calls) > 5 * ROUNDS
