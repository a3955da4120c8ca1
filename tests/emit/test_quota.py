"""How many mails an hour may go out."""

import json
from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import given
from hypothesis import strategies as st

from streamkit.emit.quota import HOUR_S, OTHERS, Quota


@given(st.lists(st.floats(0, 2 * HOUR_S), max_size=80), st.integers(1, 7), st.sets(st.integers(0, 79)))
def test_there_are_never_more_in_any_hour_and_every_restart_knows_it(steps, limit, restarts):
    now, sent = 1e9, []
    with TemporaryDirectory() as folder:
        quota = Quota(limit, Path(folder) / "mails")
        for n, step in enumerate(steps):
            now += step
            if n in restarts:
                quota = Quota(limit, Path(folder) / "mails")
            if quota.left(now) > 0:
                quota.sent(now)
                sent.append(now)
            assert sum(now - HOUR_S < one for one in sent) <= limit
            assert quota.left(now) == limit - sum(now - HOUR_S < one for one in sent)


def test_what_was_left_out_is_known_until_it_is_told(tmp_path):
    quota = Quota(1, tmp_path / "mails")
    quota.sent(1000.0)
    quota.leave_out(["a", "b", "a"])
    again = Quota(1, tmp_path / "mails")
    assert again.left_out == {"a": 2, "b": 1}
    again.leave_out(f"title {n}" for n in range(200))
    assert len(again.left_out) <= 101
    assert again.left_out[OTHERS] == 102
    again.sent(6000.0)
    assert Quota(1, tmp_path / "mails").left_out == {}
    assert json.loads((tmp_path / "mails").read_text())["sent"][-1] == 6000.0


def test_a_file_that_cannot_be_read_or_a_clock_that_is_set_back_stops_no_mail(tmp_path):
    (tmp_path / "mails").write_text('{"sent": 3')
    quota = Quota(2, tmp_path / "mails")
    quota.sent(5000.0)
    quota.sent(5001.0)
    assert quota.left(5002.0) == 0
    assert quota.left(1000.0) == 2
    Quota(2, tmp_path / "no" / "folder").sent(1.0)
