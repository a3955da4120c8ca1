"""When networks capture CUDA graphs, and what happens if that fails; on a GPU, see models/test_session.py."""

import logging

import pytest

from streamkit.core.data import Device
from streamkit.core.errors import DeviceError
from streamkit.core.stage import Context, RuntimeContext
from streamkit.models.card import find_card, load_card
from streamkit.models.network import check_model
from streamkit.models.session import Session
from streamkit.stages.inference import infer
from streamkit.stages.inference.infer import Infer


def opened(option, cuda_graphs):
    stage = Infer(model=check_model(load_card(find_card("demo"))), cuda_graph=option)
    stage.context = Context("detect", Device(), (1,), runtime=RuntimeContext(cuda_graphs=cuda_graphs))
    stage.open()
    return stage


@pytest.mark.parametrize(
    ("option", "cuda_graphs", "given"),
    [(None, True, None), (None, False, False), (False, True, False), (True, False, True)],
)
def test_graphs_are_used_where_the_run_allows_them_unless_the_option_says_otherwise(
    option, cuda_graphs, given, monkeypatch
):
    asked = []

    class Asked(Session):
        def __init__(self, *arguments, cuda_graph, **options):
            asked.append(cuda_graph)
            super().__init__(*arguments, cuda_graph=False, **options)

    monkeypatch.setattr(infer, "Session", Asked)
    opened(option, cuda_graphs).close()
    assert asked == [given]


def test_a_network_without_a_graph_runs_and_is_counted(monkeypatch, caplog):
    caplog.set_level(logging.INFO)
    monkeypatch.setattr(Session, "capture", lambda self: "CUDA failure 901")
    stage = opened(None, True)
    assert stage.context.counters["networks without a cuda graph"] == 1
    assert "demo.onnx runs without a CUDA graph: CUDA failure 901" in caplog.text
    stage.cuda_graph = True
    with pytest.raises(DeviceError, match=r"no CUDA graph can be captured \(CUDA failure 901\); remove cuda_graph: tr"):
        stage._capture()
    stage.close()


def test_a_session_on_the_cpu_has_no_graph(test_data):
    card = check_model(load_card(find_card("demo")))
    session = Session(card.file, Device(), cuda_graph=None)
    session.warm((1,), card.input.size)
    assert (session.cuda_graph, session.capture()) == (False, None)
    with pytest.raises(DeviceError, match="cuda_graph needs device: cuda"):
        Session(card.file, Device(), cuda_graph=True)
