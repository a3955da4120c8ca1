"""The comparison with other programs: those that are here run, the others are named with the way to add them."""

import sys

from benchmarks import peers


def test_sides_run_in_turns_and_missing_ones_say_how_to_add_them(root, tmp_path, monkeypatch, capsys):
    network = root / "models" / "demo.yaml"
    line = ["peers.py", str(root / "samples" / "street.mp4"), "--model", str(network), "--limit", "5", "--runs", "1"]
    monkeypatch.setattr(sys, "argv", line)
    assert peers.main() == 0
    head, *rows = capsys.readouterr().out.splitlines()
    assert head.split() == ["side", "frames/s", "streamkit", "is"]
    by_side = {row.split()[0]: row for row in rows}
    assert list(by_side) == list(peers.PEERS)
    assert by_side["streamkit"].endswith("1.00 times as fast")
    assert by_side["opencv"].endswith("times as fast")
    for name in ("ultralytics", "inference"):
        if not peers.installed(sys.executable, name):
            assert f"--python {name}=PYTHON" in by_side[name]


def test_a_side_that_fails_shows_its_last_line(tmp_path):
    side = peers.Side("opencv", sys.executable, str(tmp_path / "missing.onnx"))
    side.run(tmp_path / "missing.mp4", "cpu", 5, tmp_path)
    assert side.fps == []
    assert "missing.onnx" in side.missing
    assert side.missing in peers.table([side])
