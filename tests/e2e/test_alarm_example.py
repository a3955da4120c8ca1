"""The example of an alarm by e-mail, with a real camera that dies and a real mail server."""

import threading
from pathlib import Path

from support.messages import collect
from support.rtsp import wait_until
from support.smtp import PASSWORD, USER, text_of

from streamkit.config.graph import build
from streamkit.config.pipeline_config import read
from streamkit.core.data import Device
from streamkit.runtime.pipeline import PipelineRun

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "alarm_mail.yaml"
VIDEO = EXAMPLE.parents[1] / "samples" / "street.mp4"


def test_mails_are_sent_when_a_camera_fails_and_recovers(
    rtsp,
    mail_server,
    mail_tls,
    tmp_path,
    monkeypatch,
):
    camera = rtsp({"gate": VIDEO}, user="ann", password="hunter2")
    context, ca = mail_tls
    server = mail_server(context, auth=True)
    monkeypatch.setenv("CAMERA", camera.url("gate"))
    monkeypatch.setenv(
        "MAIL", f"smtp://{USER.replace('@', '%40')}:{PASSWORD.replace('/', '%2F')}@127.0.0.1:{server.port}"
    )
    monkeypatch.chdir(tmp_path)
    quick = {
        "stages.mail.tls": f"{{ca: {ca}}}",
        "stages.mail.batch_window": "0s",
        "alarms.camera_down.when": "down_s > 1",
        "alarms.camera_down.clear": "0s",
    }
    logged = collect()
    running = PipelineRun(build(read(EXAMPLE, set_=quick)), Device("cpu"))
    thread = threading.Thread(target=running.run, daemon=True)
    thread.start()
    try:
        wait_until(lambda: running.ready and running.states["gate"].out > 5, what="the camera")
        assert server.received == []
        camera.stop()
        wait_until(lambda: server.received, what="the first mail")
        assert [alarm.source for alarm in running.alarms.raised] == ["gate"]
        camera.start()
        wait_until(lambda: len(server.received) > 1, what="the second mail")
        assert running.alarms.raised == []
    finally:
        running.stop()
        thread.join(60)
    assert not thread.is_alive()
    dead, back = server.received
    assert dead["Subject"].startswith('camera "gate" has been down for ')
    assert dead["Subject"].endswith((" s (lost)", " s (refused)", " s (timeout)"))
    assert back["Subject"].startswith('camera "gate" is back after ')
    assert dead["Subject"] in text_of(dead)
    assert "hunter2" not in str(dead) + str(back) + "".join(logged)
    assert PASSWORD not in "".join(logged)
    assert running.report(0)["counts"]["mails sent"] == 2
