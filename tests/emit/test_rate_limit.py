"""How many mails an hour may go out."""

import json
from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import example, given
from hypothesis import strategies as st

from streamkit.emit.email import HOUR_S, OTHERS, RateLimit


def free_s(limit, now_s):
    """When the next mail may be sent."""
    return now_s if limit.remaining(now_s) > 0 else limit._sent[0] + HOUR_S


# two mails, a restart within their hour, a third that has to wait, a restart, and the moment at which the first is over
@example(steps=[0.0, 10.0, 10.0, HOUR_S - 21.0, 1.0, 9.0, 1.0], limit=2, restarts={2, 3, 4})
@example(steps=[0.0] * 9, limit=7, restarts=set(range(9)))
@given(st.lists(st.floats(0, 2 * HOUR_S), max_size=80), st.integers(1, 7), st.sets(st.integers(0, 79)))
def test_the_hourly_limit_holds_across_restarts(steps, limit, restarts):
    now = 1e9
    sent = []
    with TemporaryDirectory() as folder:
        quota = RateLimit(limit, Path(folder) / "mails")
        for n, step in enumerate(steps):
            now += step
            if n in restarts:
                quota = RateLimit(limit, Path(folder) / "mails")
            if quota.remaining(now) > 0:
                quota.sent(now)
                sent.append(now)
            assert sum(now - HOUR_S < sent_s for sent_s in sent) <= limit
            assert quota.remaining(now) == limit - sum(now - HOUR_S < sent_s for sent_s in sent)


def test_mails_of_an_earlier_run_count_for_an_hour(tmp_path):
    def again():
        return RateLimit(3, tmp_path / "mails")

    for at_s in (1000.0, 1500.0, 2000.0):
        quota = again()
        assert quota.remaining(at_s) == 3 - round((at_s - 1000) / 500)
        assert free_s(quota, at_s) == at_s
        quota.sent(at_s)
    assert json.loads((tmp_path / "mails").read_text())["sent"] == [1000.0, 1500.0, 2000.0]
    for at_s, left in ((2000.0, 0), (4599.9, 0), (4600.0, 1), (5099.9, 1), (5100.0, 2), (5599.9, 2), (5600.0, 3)):
        assert again().remaining(at_s) == left, at_s
    assert free_s(again(), 2000.0) == 1000.0 + HOUR_S
    assert free_s(again(), 4600.0) == 4600.0
    quota = again()
    quota.sent(4600.0)
    assert again().remaining(4600.0) == 0, "one is over, and another has taken its place"
    assert free_s(again(), 4600.0) == 1500.0 + HOUR_S
    assert free_s(RateLimit(1, tmp_path / "mails"), 4600.0) == 4600.0 + HOUR_S, "of a lower limit the newest count"
    assert (tmp_path / "mails").stat().st_mode & 0o077 == 0


def test_omitted_events_are_stored_until_they_are_reported(tmp_path):
    quota = RateLimit(1, tmp_path / "mails")
    quota.sent(1000.0)
    quota.omit(["a", "b", "a"])
    again = RateLimit(1, tmp_path / "mails")
    assert again.omitted == {"a": 2, "b": 1}
    again.omit(f"title {n}" for n in range(200))
    assert len(again.omitted) <= 101
    assert again.omitted[OTHERS] == 102
    again.sent(6000.0)
    assert RateLimit(1, tmp_path / "mails").omitted == {}
    assert json.loads((tmp_path / "mails").read_text())["sent"][-1] == 6000.0


def test_an_unreadable_file_or_a_clock_set_back_stops_no_mail(tmp_path):
    (tmp_path / "mails").write_text('{"sent": 3')
    quota = RateLimit(2, tmp_path / "mails")
    quota.sent(5000.0)
    quota.sent(5001.0)
    assert quota.remaining(5002.0) == 0
    assert quota.remaining(1000.0) == 2
    RateLimit(2, tmp_path / "no" / "folder").sent(1.0)
