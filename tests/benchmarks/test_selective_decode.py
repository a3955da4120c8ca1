import pytest

from benchmarks import selective_decode
from streamkit.core.data import Device


def test_every_selection_of_frames_is_measured(root):
    rows = {row.way: row for row in selective_decode.rows(str(root / "samples" / "street.mp4"), Device(), rounds=1)}
    whole = rows["all"]
    keyframes = rows["keyframes"]
    assert (whole.frames, whole.decoded, whole.times) == (400, 400, 1.0)
    assert keyframes.frames == keyframes.decoded < 40
    assert rows["every: 25"].frames == 16
    assert rows["every: 25"].frames <= rows["every: 25"].decoded < 400
    assert rows["a tenth"].frames == 40
    assert rows["fps: 1"].frames == 16
    assert all(row.seconds > 0 for row in rows.values())


def test_a_table_is_printed(root, capsys):
    selective_decode.main([str(root / "samples" / "street.mp4"), "--rounds", "1"])
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == selective_decode.HEAD
    assert [line[35:49].strip() for line in lines[1:4]] == ["all", "keyframes", "every: 2"]


@pytest.mark.soak
@pytest.mark.parametrize("name", ["bench_1080p_h264.mp4", "bench_1080p_hevc.mp4", "bench_1080p_hevc_opengop.mp4"])
def test_keyframes_are_eight_times_as_fast(test_data, name):
    for row in selective_decode.rows(str(test_data / "videos" / name), Device()):
        print(row)
        if row.way == "keyframes":
            assert row.times >= 8
            break
