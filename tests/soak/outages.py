"""Cameras whose peers go away and come back: 16 at once, and at random for as long as one likes."""

import random
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from peers import Cameras, serving
from rig import BACK_S, MIB, Held, Promises, Rig, Window, camera_clip, wait_until
from support.rtsp import Proxy

_RATE = 10.0
_TIMEOUT_S = 3.0


def _missed(window: Window, rate: float = _RATE) -> float:
    """The share of frames missed, or too many, beyond the one and a half at the edges of a window."""
    return max(0.0, abs(window.frames - rate * (window.ended_s - window.start_s)) - 1.5) / window.frames


def restarts(
    folder: Path, *, cameras: int = 16, outages: int = 10, away_s: float = 4.0, quiet_s: float = 30.0
) -> Promises:
    """Cameras of one RTSP server that is killed and started again; no stage that costs anything."""
    promises = Promises(f"{cameras} RTSP cameras, server killed {outages} times")
    clip = camera_clip(folder / "clip.mp4")
    names = [f"cam{n}" for n in range(4)]  # four clips each seen by a quarter of the cameras
    length_s = 240.0 + 3 * quiet_s
    before = Held.now()
    took: list[float] = []
    unseen: list[float] = []
    with serving(folder / "server", dict.fromkeys(names, clip), length_s) as server:
        ids = {f"c{n}": server.url(names[n % 4]) for n in range(cameras)}
        sources = {id_: {"uri": uri, "timeout": _TIMEOUT_S} for id_, uri in ids.items()}
        rig = Rig({"sources": sources, "stages": {"note": {}}})
        with rig.going():
            rig.wait_for(ids)
            for _ in range(3):  # the machine may have been busy
                quiet = rig.window(ids, quiet_s)
                if max(map(_missed, quiet.values())) <= 0.02:
                    break
            held: list[Held] = []
            for outage in range(outages):
                for track in rig.tracks.values():
                    track.turn()
                start_s = time.monotonic()
                server.stop()
                time.sleep(away_s)
                server.start()
                was_away_s = time.monotonic() - start_s
                for track in rig.tracks.values():
                    track.ask()
                wait_until(lambda: all(rig.tracks[id_].back for id_ in ids), f"all cameras after outage {outage}")
                took += [track.back_s - track.waits_since_s for track in rig.tracks.values()]
                unseen += [track.turn().gap_s - was_away_s for track in rig.tracks.values()]
                time.sleep(1.0)
                held.append(Held.now())
            first = held[0]
            last = held[-1]
            # how much decoders hold depends on how many frames a new connection brings at once
            grown = Held.median(held[-3:]).rss - Held.median(held[:3]).rss
            rates = [window.rate for window in quiet.values()]
            latency_s = max(window.latency_s for window in quiet.values())
    after = Held.now()
    promises.limit("slowest of all cameras to be back", max(took), BACK_S, "s")
    promises.limit("time lost beyond the time away, at most", max(unseen), BACK_S, "s")
    promises.limit("rate while quiet, off by at most", max(map(_missed, quiet.values())) * 100, 2, "%")
    promises.none("cameras whose indices or times did not rise", [i for i in ids if not rig.tracks[i].rising])
    # what a new connection brings at once, because it was looked at before, may be more than a queue takes
    dropped = {i: rig.running.states[i].dropped for i in ids}
    lost = {i: f"{rig.tracks[i].holes} missing, {n} dropped" for i, n in dropped.items() if rig.tracks[i].holes > n}
    promises.none("cameras that lost frames which were not counted", [f"{i}: {text}" for i, text in lost.items()])
    promises.none("cameras for which in = out + dropped does not hold", rig.unbalanced())
    promises.limit("memory from the first three outages to the last three", grown / MIB, 20, "MiB")
    promises.limit("open files more after the last outage than the first", last.files - first.files, 2)
    promises.limit("threads more after the last outage than the first", last.threads - first.threads, 0)
    promises.limit("threads left at the end", after.threads - before.threads, 0)
    promises.limit("open files left at the end", after.files - before.files, 2)
    promises.figures["frames a second"] = f"{min(rates):.2f} to {max(rates):.2f}"
    promises.figures["p95 latency of the slowest camera"] = f"{latency_s * 1e3:.0f} ms"
    promises.figures["back after"] = f"median {sorted(took)[len(took) // 2]:.2f} s, slowest {max(took):.2f} s"
    promises.figures["frames dropped after connecting"] = sum(dropped.values())
    promises.figures["counts"] = rig.running.counts()
    promises.figures["memory"] = f"{first.rss / MIB:.0f} to {last.rss / MIB:.0f} MiB"
    return promises


class _Site:
    """A server of two cameras behind a proxy, to which things happen."""

    def __init__(self, name: str, server: Cameras, clips: tuple[Path, Path]) -> None:
        self.server = server
        self._clips = clips
        self._swapped = False
        self.proxy = Proxy(server.port)
        self.ids = {f"{name}{n}": server.url(n, port=self.proxy.port) for n in "ab"}

    def killed(self, seconds: float) -> None:
        self.server.stop()
        time.sleep(seconds)
        self.server.start()

    def frozen(self, seconds: float) -> None:
        self.server.freeze()
        time.sleep(seconds)
        self.server.thaw()

    def swapped(self, seconds: float) -> None:
        self.server.stop()
        time.sleep(seconds / 2)
        self._swapped = not self._swapped
        self.server.swap("a", self._clips[self._swapped])

    def cut(self, seconds: float) -> None:
        self.proxy.cut(after_bytes=1000)
        wait_until(lambda: self.proxy._cut_after is None, "the cut")
        time.sleep(0.2)  # what was under way has come


def soak(
    folder: Path, *, minutes: float = 30.0, seed: int = 0, echo: Callable[[str], None] = lambda text: None
) -> Promises:
    """Seven cameras to which things happen at random, one site at a time, and a paced file with `fault:` options."""
    promises = Promises(f"soak of {minutes:g} minutes, 8 cameras, seed {seed}")
    chance = random.Random(seed)
    kinds = ("killed", "frozen", "swapped", "cut")
    clips = camera_clip(folder / "clip.mp4"), camera_clip(folder / "other.mp4", codec="libx265", size="640x480")
    before = Held.now()
    took: dict[str, list[float]] = {kind: [] for kind in kinds}
    missed: list[float] = []
    calm = Window()  # what cameras did while things happened to others
    worst_gap_s = 0.0
    held: list[Held] = []
    with ExitStack() as stack:
        sites = []
        for name in ("north", "east", "south"):
            server = stack.enter_context(serving(folder / name, {"a": clips[0], "b": clips[0]}, minutes * 60 + 120))
            sites.append(_Site(name, server, clips))
            stack.callback(sites[-1].proxy.close)
        still = stack.enter_context(serving(folder / "still", {"a": clips[0]}, minutes * 60 + 120))
        uris = {id_: uri for site in sites for id_, uri in site.ids.items()} | {"still": still.url("a")}
        sources = {id_: {"uri": uri, "timeout": _TIMEOUT_S} for id_, uri in uris.items()}
        fault = {
            "away": {"every": 12.0, "random": True, "for": 2.0},
            "corrupt": {"every": 7.0, "for": 1.0, "share": 0.02},
        }
        sources["faulty"] = {"uri": str(clips[0]), "loop": True, "pace": _RATE, "reconnect": True, "fault": fault}
        rig = Rig({"sources": sources, "stages": {"note": {}}})
        with rig.going():
            rig.wait_for(sources)
            end_s = time.monotonic() + minutes * 60
            turn = 0
            while time.monotonic() < end_s or turn < len(kinds):
                site = chance.choice(sites)
                kind = kinds[turn] if turn < len(kinds) else chance.choice(kinds)  # each at least once
                turn += 1
                others = [id_ for id_ in uris if id_ not in site.ids]
                for id_ in others:
                    rig.tracks[id_].turn()
                getattr(site, kind)(chance.uniform(1.0, 6.0))
                for id_ in site.ids:
                    rig.tracks[id_].ask()
                wait_until(lambda s=site: all(rig.tracks[i].back for i in s.ids), f"{list(site.ids)}, {kind}")
                took[kind] += [rig.tracks[id_].back_s - rig.tracks[id_].waits_since_s for id_ in site.ids]
                time.sleep(chance.uniform(1.0, 3.0))
                for id_ in others:
                    window = rig.tracks[id_].turn()
                    missed.append(_missed(window))
                    if missed[-1] > 0.02:
                        echo(f"     {id_}: rate off by {missed[-1]:.1%}, longest without a frame {window.gap_s:.2f} s")
                    calm.latency.counts += window.latency.counts
                    worst_gap_s = max(worst_gap_s, window.gap_s)
                held.append(Held.now())
                back = " ".join(f"{s:.2f}" for s in took[kind][-2:])
                echo(f"{turn:4d} {kind:8s} back after {back} s; {held[-1].rss / MIB:.0f} MiB, {held[-1].files} files")
    after = Held.now()
    tracks = rig.tracks
    states = rig.running.states
    quarter = len(held) // 4
    for kind in kinds:
        promises.limit(f"{kind}: slowest camera to be back", max(took[kind], default=0.0), BACK_S, "s")
    promises.limit("others: rate, off by at most", max(missed) * 100, 2, "%")
    promises.limit("others: longest time without a frame", worst_gap_s, 1.0, "s")
    promises.limit("others: p95 latency", calm.latency_s * 1e3, 100, "ms")
    promises.none("cameras whose indices or times did not rise", [i for i in sources if not tracks[i].rising])
    promises.none("cameras for which in = out + dropped does not hold", rig.unbalanced())
    promises.none("cameras that failed for good", [f"{i}: {s.error}" for i, s in states.items() if s.error])
    # where surfaces of two sizes and decoders of two codecs have been in use, they are kept: from then on it is flat
    promises.limit("memory grown, after a quarter of the time", (held[-1].rss - held[quarter].rss) / MIB, 32, "MiB")
    promises.limit("threads left at the end", after.threads - before.threads, 0)
    promises.limit("open files left at the end", after.files - before.files, 2)
    promises.figures["times things happened"] = {kind: len(took[kind]) // 2 for kind in kinds}
    promises.figures["reconnects"] = {id_: state.reconnects for id_, state in states.items()}
    promises.figures["faulty"] = f"{tracks['faulty'].frames} frames; {dict(states['faulty'].counters.values)}"
    promises.figures["memory"] = f"{held[0].rss / MIB:.0f} to {held[-1].rss / MIB:.0f} MiB"
    return promises
