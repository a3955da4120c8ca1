"""One camera frozen, one that refuses, one that sends garbage: the others must not notice."""

import time
from pathlib import Path

from peers import Garbler, serving
from rig import Promises, Rig, camera_clip, wait_until
from support.rtsp import free_port


def neighbors(folder: Path, *, cameras: int = 13, seconds: float = 30.0, rounds: int = 1) -> Promises:
    """Measure the cameras alone, then beside three bad ones, which are added while they run.

    Args:
        folder: for what is written.
        cameras: how many good ones.
        seconds: of each measurement.
        rounds: measure again where a promise does not hold, so often in all: the machine may have been busy.
    """
    promises = Promises(f"{cameras} cameras beside one frozen, one refusing, one garbling")
    clip = camera_clip(folder / "clip.mp4")
    names = [f"cam{n}" for n in range(4)]
    length_s = rounds * (2 * seconds + 60) + 60
    with (
        serving(folder / "good", dict.fromkeys(names, clip), length_s) as good,
        serving(folder / "freezes", {"a": clip}, length_s) as freezes,
    ):
        garbler = Garbler(good.port)
        ids = {f"c{n}": good.url(names[n % 4]) for n in range(cameras)}
        bad = {
            "frozen": freezes.url("a"),
            "refusing": f"rtsp://127.0.0.1:{free_port()}/a",
            "garbling": good.url("cam0", port=garbler.port),
        }
        rig = Rig({"sources": {id_: {"uri": uri} for id_, uri in ids.items()}, "stages": {"note": {}}})
        try:
            with rig.going():
                rig.wait_for(ids)
                for turn in range(1, rounds + 1):
                    alone = rig.window(ids, seconds)
                    for id_, uri in bad.items():
                        rig.add(id_, {"uri": uri, "timeout": 3.0})
                    rig.wait_for(["frozen"], 5 * turn)
                    freezes.freeze()
                    frozen_s = time.monotonic()
                    beside = rig.window(ids, seconds)
                    states = {id_: rig.running.states[id_] for id_ in bad}
                    wait_until(lambda s=states: all(state.state != "running" for state in s.values()), "what is wrong")
                    seen_s = time.monotonic() - frozen_s
                    states_text = {id_: f"{state.state} ({state.cause})" for id_, state in states.items()}
                    freezes.thaw()
                    for id_ in bad:
                        rig.running.remove(id_)
                    rate = max(abs(beside[i].rate - alone[i].rate) / alone[i].rate for i in ids)
                    slower_s = max(beside[i].latency_s - _allowed_s(alone[i].latency_s) for i in ids)
                    later_s = max(beside[i].lag_s - _allowed_s(alone[i].lag_s) for i in ids)
                    if rate <= 0.02 and slower_s <= 0 and later_s <= 0:
                        break
        finally:
            garbler.close()
    promises.limit("rate, changed by at most", rate * 100, 2, "%")
    promises.limit("p95 latency, beyond 20 % or 15 ms more than alone", slower_s * 1e3, 0, "ms")
    promises.limit("p95 lag (counts delays before decoding), likewise", later_s * 1e3, 0, "ms")
    promises.limit("bad cameras are seen as such after", seen_s, max(seconds, 3.0) + 3, "s")
    promises.none("cameras for which in = out + dropped does not hold", rig.unbalanced())
    promises.figures["bad cameras"] = states_text
    for name, windows in (("alone", alone), ("beside", beside)):
        rates = [window.rate for window in windows.values()]
        latency_s, lag_s = (max(getattr(w, key) for w in windows.values()) for key in ("latency_s", "lag_s"))
        promises.figures[name] = (
            f"{min(rates):.2f} to {max(rates):.2f} frames a second, slowest camera's "
            f"p95 latency {latency_s * 1e3:.0f} ms, p95 lag {lag_s * 1e3:.0f} ms"
        )
    promises.figures["rounds"] = turn
    promises.figures["bytes of garbage"] = garbler.garbled
    return promises


def _allowed_s(alone_s: float) -> float:
    return max(alone_s * 1.2, alone_s + 0.015)
