import pytest

from streamkit.config.plan import Node, RunOptions
from streamkit.core.data import Device
from streamkit.core.stage import BatchStage, FrameStage, Sink, StreamStage
from streamkit.runtime.execution import sizes

CPU = Device("cpu")
GPU = Device("cuda")


@pytest.mark.parametrize(
    ("largest", "device", "wanted"),
    [
        (None, CPU, (1, 2, 3)),
        (1, CPU, (1,)),
        (5, CPU, (1, 2, 3, 4, 5)),
        (None, GPU, (16, 64)),
        (64, GPU, (16, 64)),
        (16, GPU, (4, 16)),
        (15, GPU, (15,)),
        (1, GPU, (1,)),
    ],
)
def test_batch_sizes_follow_options_and_sources(largest, device, wanted):
    batch_sizes = sizes.batch_sizes(largest, device)
    assert batch_sizes == wanted
    assert batch_sizes[-1] == (largest or batch_sizes[-1])


def node(kind, instances=None):
    return Node("n", kind, {}, [], RunOptions(instances=instances), None)


@pytest.mark.parametrize(
    ("kinds", "device", "wanted"),
    [
        ([(BatchStage, None)], CPU, 5),
        ([(BatchStage, None)], GPU, 1),
        ([(BatchStage, 2), (BatchStage, None)], CPU, 2),
        ([(BatchStage, 2), (BatchStage, 3)], GPU, 3),
        ([(StreamStage, None)], CPU, 1),
        ([(FrameStage, None)], CPU, 1),
        ([(Sink, None)], GPU, 1),
        ([(BatchStage, 3), (FrameStage, 4)], CPU, 4),  # the first stage tells what kind of lane it is
        ([(FrameStage, 4), (BatchStage, 3)], CPU, 1),
        ([(FrameStage, 4)], CPU, 1),  # a frame stage sees each source in order: one thread, whatever is asked
    ],
)
def test_the_number_of_instances_follows_options_and_cores(kinds, device, wanted, monkeypatch):
    monkeypatch.setattr(sizes, "cores", lambda: 5)
    assert sizes.instances([node(*kind) for kind in kinds], device) == wanted


class Across(BatchStage, scope="pipeline"):
    """Compares sources."""


def test_a_stage_across_sources_has_a_single_instance():
    assert sizes.instances([node(Across)], CPU, 2) == 1
    assert sizes.instances([node(BatchStage, 3), node(Across, 3)], GPU) == 1


def test_sizes_use_the_assigned_share_of_cores(monkeypatch):
    monkeypatch.setattr(sizes, "cores", lambda: 8)
    assert sizes.instances([node(BatchStage)], CPU, 2) == 2
    assert sizes.instances([node(BatchStage, 3)], CPU, 2) == 3
    assert sizes.instances([node(BatchStage)], GPU, 2) == 1


def test_files_read_at_once_and_batches_ahead_are_bounded(monkeypatch):
    monkeypatch.setattr(sizes, "cores", lambda: 5)
    assert sizes.files_at_once(CPU) == 10
    assert sizes.files_at_once(GPU) == 32
    monkeypatch.setattr(sizes, "cores", lambda: 1)
    assert sizes.files_at_once(CPU) == 4
    assert (sizes.batches_ahead(CPU), sizes.batches_ahead(GPU)) == (4, 2)


@pytest.mark.parametrize(
    ("largest", "expected", "size"),
    [(64, 55.2, 56), (64, 48, 48), (64, 48.1, 56), (64, 61, 64), (64, 300, 64), (64, 0.5, 8), (50, 49, 50), (4, 3, 4)],
)
def test_a_batch_of_live_sources_is_padded_by_seven_rows_at_most(largest: int, expected: float, size: int) -> None:
    assert sizes.live_batch_size(largest, expected) == size
