import pytest

from benchmarks import python_loop


def test_every_form_runs_all_frames(root, capsys):
    street = str(root / "samples" / "street.mp4")
    python_loop.main([street, street, "--limit", "10", "--pairs", "1"])
    head, *rows = capsys.readouterr().out.splitlines()
    assert head == python_loop.HEAD
    assert [row[:24].strip() for row in rows] == ["jsonl", "loop in place of jsonl", "loop beside jsonl"]
    assert [int(row[24:33]) for row in rows] == [20, 20, 20]
    assert float(rows[0].split()[-2]) == 1
    assert all(float(row.split()[-1]) > 0 for row in rows)


@pytest.mark.soak
def test_a_loop_has_095_of_the_speed_of_jsonl(root):
    without, loop, beside = python_loop.measure([str(root / "samples" / "street.mp4")])
    print(without, loop, beside, sep="\n")
    assert loop.ratio >= 0.95
    assert beside.ratio >= 0.95
