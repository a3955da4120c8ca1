"""Sources without a network: many that come and go, a detector that is too slow, a hundred on one GPU."""

import time
from collections import deque
from pathlib import Path
from typing import Any

from rig import MIB, Held, Promises, Rig, videos, wait_until

_ALIVE = 8
_MOMENTS = 40
"""How often what the process holds is noted: between two moments memory differs by up to 24 MiB without any trend."""


def churn(folder: Path, *, times: int = 2000, device: str = "cpu") -> Promises:
    """Add and remove sources of several kinds while two others run."""
    promises = Promises(f"{times} additions and removals on {device}")
    clip = str(videos() / "vtest_480x360.mp4")
    kinds: list[dict[str, Any]] = [
        {"uri": "test://?width=64&height=48&fps=25&frames=0", "pace": "realtime"},
        {"uri": "test://?width=64&height=48&frames=5"},
        {"uri": clip, "loop": True, "pace": 30},
        {"uri": clip, "end": 0.5},
    ]
    steady = {f"steady{n}": {"uri": clip, "loop": True, "pace": 20} for n in range(2)}
    rig = Rig({"sources": steady, "stages": {"note": {}}}, device)
    alive: deque[str] = deque()
    slowest_s = 0.0
    warm = times  # the heaps grow until some 1,600 have come and gone, and then stay as large
    held: list[Held] = []
    with rig.going():
        rig.wait_for(steady)
        for id_ in steady:
            rig.tracks[id_].turn()

        def remove() -> None:
            nonlocal slowest_s
            id_ = alive.popleft()
            wait_until(lambda: id_ in rig.tracks and rig.tracks[id_].frames, f"the first frame of {id_}")
            start_s = time.monotonic()
            rig.running.remove(id_)
            slowest_s = max(slowest_s, time.monotonic() - start_s)

        for n in range(warm + times):
            if n == warm:
                promises._start_s = time.monotonic()
            id_ = f"s{n}"
            rig.add(id_, kinds[n % len(kinds)])
            alive.append(id_)
            if len(alive) == _ALIVE:
                remove()
            if len(rig.tracks) > 64:  # keep none of our own
                for old in [name for name in rig.tracks if name[0] == "s" and name[1:].isdigit() and name not in alive]:
                    del rig.tracks[old]
            if n >= warm and (n - warm) % max(1, times // _MOMENTS) == 0:
                held.append(Held.now(device))
        while alive:
            remove()
        wait_until(lambda: rig.running.sources.removed.sources == warm + times, "the last removed source's end")
        windows = {id_: rig.tracks[id_].turn() for id_ in steady}
        until_s = time.monotonic() + 2.0  # the last one leaves the batcher with the batch after its last frame
        while set(rig.running._batcher.inlets) - set(steady) and time.monotonic() < until_s:
            time.sleep(0.02)
        left = [name for name in rig.running._batcher.inlets if name not in steady]
        threads = [thread.name for thread in rig.running.sources.threads]
    # on a GPU the decoders that are kept for the next source hold a few open files each; how many are kept at a moment
    # depends on who has just gone
    quarter = len(held) // 4
    before = Held.median(held[:quarter])
    after = Held.median(held[-quarter:])
    promises.grown(before, after, files=8 if device.startswith("cuda") else 2, device=device)
    promises.none("sources left in the batcher", left)
    promises.limit("threads of sources left", len(threads), len(steady))
    promises.limit("longest time that a removal took", slowest_s, 1.0, "s")
    promises.limit(
        "the steady ones: rate, off by at most", max(abs(w.rate / 20 - 1) for w in windows.values()) * 100, 2, "%"
    )
    promises.none("sources for which in = out + dropped does not hold", rig.unbalanced())
    seconds = time.monotonic() - promises._start_s
    promises.figures["additions a second"] = round(times / seconds, 1)
    promises.figures["steady p95 latency"] = f"{max(w.latency_s for w in windows.values()) * 1e3:.0f} ms"
    lowest = min(sample.rss for sample in held)
    highest = max(sample.rss for sample in held)
    promises.figures["memory"] = (
        f"{before.rss / MIB:.0f} MiB in the first quarter, {after.rss / MIB:.0f} MiB in the last; "
        f"{lowest / MIB:.0f} to {highest / MIB:.0f} MiB"
    )
    return promises


def overload(folder: Path, *, seconds: float = 600.0) -> Promises:
    """Four cameras of 25 frames a second before a stage that does a tenth of that."""
    promises = Promises(f"a detector ten times too slow, {seconds:g} s")
    latency_s = 1.0
    rate = 25
    cameras = 4
    uri = "test://?width=320&height=240&fps=25&frames=0"
    rig = Rig(
        {
            "batch": {"max_latency": latency_s},
            "sources": {f"c{n}": {"uri": uri, "pace": rate} for n in range(cameras)},
            "stages": {"slow": {"s_per_frame": 10 / (rate * cameras), "run": {"instances": 1}}, "note": {}},
        }
    )
    ids = [f"c{n}" for n in range(cameras)]
    with rig.going():
        rig.wait_for(ids)
        time.sleep(min(10.0, seconds / 4))
        before = Held.now()
        rig.entered.counts[:] = 0
        windows = rig.window(ids, seconds)
        age_s = rig.entered.quantile(0.99)
        ended = Held.now()
        waiting = sum(rig.running.queues().values())
    states = rig.running.states
    came = sum(state.frames for state in states.values())
    dropped = sum(state.dropped for state in states.values())
    promises.limit("p99 age of a frame when the detector takes it", age_s, latency_s, "s")
    promises.limit("p99 latency to the record", max(w.latency.quantile(0.99) for w in windows.values()), latency_s, "s")
    promises.limit("memory grown", (ended.rss - before.rss) / MIB, 5, "MiB")
    promises.none("cameras for which in = out + dropped does not hold", rig.unbalanced())
    served = [window.frames for window in windows.values()]
    promises.limit("the camera served best over the one served worst", max(served) / min(served), 1.3)
    promises.limit(
        "cameras' rate, off by at most", abs(came / sum(rig.tracks[i].last + 1 for i in ids) - 1) * 100, 5, "%"
    )
    promises.figures["frames"] = f"{came} in, {came - dropped} out, {dropped} dropped"
    promises.figures["waiting at the end"] = waiting
    return promises


def fleet(
    folder: Path,
    *,
    cameras: int = 100,
    seconds: float = 60.0,
    device: str = "cuda",
    clip: Path | None = None,
    detect: str | None = None,
) -> Promises:
    """Cameras by `pace: 30`, every tenth of which fails and comes back at random."""
    promises = Promises(f"{cameras} cameras at 30 frames a second on {device}, one in ten failing")
    uri = str(clip or videos() / "vtest_480x360.mp4")
    camera: dict[str, Any] = {"uri": uri, "loop": True, "pace": 30}
    sources = {f"c{n}": dict(camera) for n in range(cameras)}
    failing = [f"c{n}" for n in range(0, cameras, 10)]
    for id_ in failing:
        fault = {"away": {"every": 10.0, "random": True, "for": 2.0}}
        sources[id_] |= {"reconnect": {"max_backoff": 1.0}, "fault": fault}
    others = [id_ for id_ in sources if id_ not in failing]
    stages: dict[str, Any] = {**({"detect": {"model": detect}} if detect else {}), "note": {}}
    rig = Rig({"sources": sources, "stages": stages}, device)
    with rig.going():
        rig.wait_for(others, 30)
        states = rig.running.states
        # while a hundred decoders start at once frames grow too old; that is counted apart
        starting = {id_: states[id_].dropped for id_ in others}
        windows = rig.window(list(rig.tracks), seconds)
        dropped = sum(states[id_].dropped - starting[id_] for id_ in others)
        back = sum(states[id_].reconnects for id_ in failing)
    quiet = [windows[id_] for id_ in others]
    promises.limit("others: p95 latency of the slowest", max(w.latency_s for w in quiet) * 1e3, 100, "ms")
    promises.limit("others: rate, off by at most", max(abs(w.rate / 30 - 1) for w in quiet) * 100, 2, "%")
    promises.limit("others: frames dropped in the measured time", dropped, 0)
    if seconds >= 30:  # in less some may not have failed yet
        promises.limit("returns that lack to one for each failing one", max(0, len(failing) - back), 0)
    promises.none("failing ones that stayed away", [i for i in failing if states[i].error])
    gap_s = max(windows[id_].gap_s for id_ in failing if id_ in windows)
    promises.limit("failing ones: longest time away", gap_s, seconds, "s")
    promises.none("cameras whose indices or times did not rise", [i for i in rig.tracks if not rig.tracks[i].rising])
    promises.none("cameras for which in = out + dropped does not hold", rig.unbalanced())
    promises.figures["reconnects"] = back
    promises.figures["others: frames dropped while all started"] = sum(starting.values())
    promises.figures["frames a second in all"] = round(sum(w.rate for w in windows.values()), 1)
    promises.figures["counts"] = {k: v for k, v in rig.running.counts().items() if "reconnect" in k or "drop" in k}
    return promises
