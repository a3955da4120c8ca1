"""How long cameras take to come back, and what is left behind: kills a real RTSP server again and again.

usage: python tests/soak/reconnect.py CLIP [--cameras 4] [--outages 10] [--away 5]

CLIP should have a keyframe every second or two, as cameras do: who joins in between has to wait for the next one.
Prints a line an outage: seconds from the server's return to each camera's first new frame, and what the process holds.
Exits 1 where a camera took longer than 5 s, or memory or open files grew.
"""

import argparse
import sys
import tempfile
import threading
import time
from pathlib import Path

import psutil

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from support.rtsp import RtspServer, missing, wait_until

from streamkit.core.stage import Context, RuntimeContext
from streamkit.runtime.ingest.reconnect import reconnecting
from streamkit.stages.sources.source import VideoSource

_BAR_S = 5.0
_GROWTH_BYTES = 64 << 20


class Camera:
    """One source on a thread; knows when its last frame came."""

    def __init__(self, uri: str, name: str) -> None:
        self.frames = 0
        self.last_s = 0.0
        self.rising = True
        self.server_back_s = self.back_s = 0.0  # when the server was back, and the first frame that came after it
        self.tries: list[str] = []
        self.source = reconnecting(VideoSource(uri=uri, timeout=3.0))
        self.source.context = Context(name, runtime=RuntimeContext(report_status=self._note))
        self.thread = threading.Thread(target=self._run)
        self.thread.start()

    def _note(self, state: str, cause: str | None, message: str) -> None:
        if self.server_back_s:
            self.tries.append(f"{time.monotonic() - self.server_back_s:.1f} s {cause or state} {message}".rstrip())

    def _run(self) -> None:
        last = -1, -1.0
        for frame in self.source.frames():
            now = frame.index, frame.pts_s
            self.rising &= now[0] > last[0] and now[1] > last[1]
            last = now
            frame.surface = None
            self.last_s = time.monotonic()
            if self.back_s < self.server_back_s:
                self.back_s = self.last_s
            self.frames += 1


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("clip", type=Path)
    parser.add_argument("--cameras", type=int, default=4)
    parser.add_argument("--outages", type=int, default=10)
    parser.add_argument("--away", type=float, default=5.0, help="seconds of each outage")
    args = parser.parse_args()
    if (reason := missing()) is not None:
        sys.exit(reason)
    process = psutil.Process()
    slowest_s = 0.0
    held = []
    with tempfile.TemporaryDirectory() as folder:
        server = RtspServer({"a": args.clip}, Path(folder), seconds=600)
        server.start()
        cameras = [Camera(server.url("a"), f"cam{n}") for n in range(args.cameras)]
        try:
            for outage in range(args.outages):
                wait_until(lambda: all(c.frames and time.monotonic() - c.last_s < 1 for c in cameras), 120)
                server.stop()
                time.sleep(args.away)
                server.start()
                for camera in cameras:
                    camera.tries.clear()
                    camera.server_back_s = time.monotonic()
                wait_until(lambda: all(c.back_s >= c.server_back_s for c in cameras), 120)
                took_s = sorted(camera.back_s - camera.server_back_s for camera in cameras)
                slowest_s = max(slowest_s, took_s[-1])
                held.append((process.memory_info().rss, process.num_fds()))
                print(
                    f"outage {outage}: back after {' '.join(f'{s:.2f}' for s in took_s)} s; "
                    f"{held[-1][0] >> 20} MiB, {held[-1][1]} files open",
                    flush=True,
                )
                for camera in cameras:
                    if camera.back_s - camera.server_back_s > _BAR_S:
                        print(f"  the slowest one tried: {', '.join(camera.tries)}", flush=True)
        finally:
            for camera in cameras:
                camera.source.stop()
            for camera in cameras:
                camera.thread.join()
            server.stop()
    rising = all(camera.rising for camera in cameras)
    grown = held[-1][0] - held[0][0] > _GROWTH_BYTES or held[-1][1] > held[0][1] + 2
    print(f"slowest {slowest_s:.2f} s (bar {_BAR_S:g} s); indices and times rise: {rising}; grown: {grown}")
    return int(slowest_s > _BAR_S or grown or not rising)


if __name__ == "__main__":
    sys.exit(main())
