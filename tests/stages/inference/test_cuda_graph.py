"""A network whose CUDA graphs cannot be captured; how they are captured on a GPU is in models/test_session.py."""

from streamkit.core.data import Device
from streamkit.core.stage import Context
from streamkit.models.card import find_card, load_card
from streamkit.models.network import check_model
from streamkit.models.session import Session
from streamkit.stages.inference.infer import Infer


def test_a_network_without_graphs_runs_and_is_counted(monkeypatch, caplog):
    monkeypatch.setattr(Session, "capture", lambda self: "CUDA failure 901")
    stage = Infer(model=check_model(load_card(find_card("demo"))))
    stage.context = Context("detect", Device(), (1,))
    stage.open()
    stage.close()
    assert stage.context.counters["networks without cuda graphs"] == 1
    assert ".onnx runs without CUDA graphs: none can be captured (CUDA failure 901); while" in caplog.text


def test_a_session_on_the_cpu_has_nothing_to_capture():
    card = check_model(load_card(find_card("demo")))
    session = Session(card.file, Device())
    session.warm((1,), card.input.size)
    assert session.capture() is None
