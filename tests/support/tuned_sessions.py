"""Sessions of a GPU on the CPU: they warm batch sizes, pad and split as on a GPU, and record their runs."""

from types import SimpleNamespace

from streamkit.core.data import Device
from streamkit.models.network_rate import NetworkRate
from streamkit.models.session import Session


class Bound:
    """An `IoBinding` of a CPU session; `rows` gets the number of images of each run."""

    def __init__(self, session, rows):
        self._session = session
        self.rows = rows
        self.stream = SimpleNamespace(synchronize=lambda: None)

    def run(self, feeds):
        self.rows.append(len(next(iter(feeds.values()))))
        names = [output.name for output in self._session.get_outputs()]
        return dict(zip(names, self._session.run(names, feeds), strict=True))

    warm = run


class CpuSession(Session):
    """The session of a GPU, on the CPU."""

    def __init__(self, file, device, *, quick, **options):
        super().__init__(file, Device())
        self.rows = []
        self._quick = quick
        self.warmed = []
        self._gpu = self._bind(self._session)

    def _bind(self, session):
        return Bound(session, self.rows)

    def measure(self, batch, size, runs=3):
        """Return a fixed rate, as there is no GPU to measure."""
        return NetworkRate(1000.0, batch)

    def warm(self, sizes, size, dropped=lambda: False):
        self.warmed.append(tuple(sizes))
        return super().warm(sizes, size, dropped)
