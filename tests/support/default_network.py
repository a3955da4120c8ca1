"""Stand-ins for the network that `model: auto` names: the shipped one, or a file on a server of this machine."""

import contextlib
import hashlib
import http.server
import re
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
CARD = "models/yolox-nano.yaml"


def shipped_as_default(folder: Path) -> None:
    """Let `model: auto` of pipelines in a folder be the network `demo`, which knows drawn streets."""
    text = (ROOT / "models" / "demo.yaml").read_text(encoding="utf-8")
    card = folder / CARD
    card.parent.mkdir(parents=True, exist_ok=True)
    card.write_text(text.replace("file: demo.onnx", f"file: {ROOT / 'models' / 'demo.onnx'}"), encoding="utf-8")


def downloadable_as_default(folder: Path, network: bytes, url: str) -> None:
    """Let `model: auto` of pipelines in a folder be downloaded from an address, as the shipped card says otherwise."""
    text = (ROOT / CARD).read_text(encoding="utf-8")
    text = re.sub("^url: .*", f"url: {url}", text, flags=re.MULTILINE)
    text = re.sub("^sha256: .*", f'sha256: "{hashlib.sha256(network).hexdigest()}"', text, flags=re.MULTILINE)
    card = folder / CARD
    card.parent.mkdir(parents=True, exist_ok=True)
    card.write_text(text, encoding="utf-8")


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *args: Any) -> None:
        pass


@contextlib.contextmanager
def file_server(folder: Path) -> Iterator[str]:
    """Serve a folder's files on loopback; yield the address."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), partial(_Quiet, directory=str(folder)))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def one_image_at_a_time(network: Path) -> bytes:
    """The real YOLOX-nano as its authors exported it, from the file whose batch was made dynamic later."""
    import onnx

    model = onnx.load(network)
    for node in model.graph.node:
        for number, name in enumerate(node.input):
            node.input[number] = name.removesuffix("_dynN")
    for tensor in (*model.graph.input, *model.graph.output):
        first = tensor.type.tensor_type.shape.dim[0]
        first.Clear()
        first.dim_value = 1
    del model.graph.value_info[:]
    return bytes(model.SerializeToString())
