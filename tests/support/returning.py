"""A reconnecting source that is read on a thread."""

import itertools
import threading
import time

from streamkit.core.counters import Counters
from streamkit.core.data import Device
from streamkit.core.errors import SourceError
from streamkit.core.fault_schedule import Fault
from streamkit.core.stage import Context, RuntimeContext
from streamkit.runtime.ingest.fault_injector import FaultInjector, FaultySource
from streamkit.runtime.ingest.reconnect import reconnecting
from streamkit.stages.sources.source import VideoSource
from support.messages import collect
from support.rtsp import wait_until


class Camera:
    """A source that is read on a thread, with its frames, states and error."""

    def __init__(self, uri, *, fault=None, **options):
        self.frames = []
        self.states = []
        self.logged = collect()
        self.error = None
        self.counters = Counters()
        video_source = VideoSource(uri=str(uri), **options)
        if fault is not None:
            video_source = FaultySource(video_source, FaultInjector(Fault(**fault), "cam"))
        self.source = reconnecting(video_source)
        self.source.context = Context(
            "cam",
            Device(),
            counters=self.counters,
            runtime=RuntimeContext(report_status=lambda state, cause, message: self.states.append((state, cause))),
        )
        self.thread = threading.Thread(target=self._run)

    def _run(self):
        try:
            self.source.open()
            frames = self.source.frames()
            for frame in frames:
                frame.surface = None
                self.frames.append((frame, time.monotonic()))
            frames.close()
            self.source.close()
        except SourceError as error:
            self.error = error

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *error):
        self.source.stop()
        self.thread.join(20)
        assert not self.thread.is_alive()

    def join(self):
        self.thread.join(60)
        assert not self.thread.is_alive()

    @property
    def state(self):
        return self.states[-1] if self.states else None

    def wait_for_frames(self, more=5, timeout_s=60.0):
        count = len(self.frames) + more
        wait_until(lambda: len(self.frames) >= count or self.error, timeout_s, f"{more} more frames")
        assert self.error is None

    def wait_for_state(self, state, cause=None):
        wait_until(lambda: self.state == (state, cause), what=f"{state}, {cause} (it is {self.state})")

    def check_order(self):
        """Check that indices and times increase, and that times follow the clock."""
        indices = [frame.index for frame, _ in self.frames]
        times = [frame.pts_s for frame, _ in self.frames]
        assert all(b > a for a, b in itertools.pairwise(indices))
        assert all(b > a for a, b in itertools.pairwise(times))
