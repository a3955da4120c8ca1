"""The shipped open-vocabulary network in the forms of other exports."""

from pathlib import Path

import numpy as np
import pytest

from streamkit.models.card import Card, load_card, shipped_models

TEXT = {"encoder": "demo-words-text.onnx", "tokenizer": "demo-words-tokenizer.json"}


def card(folder: Path, model=None, *, task="detect", text=None, **more) -> Card:
    """Write a card in `folder` for a network, by default the shipped one, with the shipped text encoder."""
    text_files = {name: f"{shipped_models()}/{file}" for name, file in TEXT.items()} if text is None else text
    file = shipped_models() / "demo-words.onnx"
    if model is not None:
        file = folder / "words.onnx"
        pytest.importorskip("onnx").save(model, file)
    lines = {"family": "yolov8", "file": str(file), "text": text_files, "score": 0.1, "iou": 0.7, **more}
    body = "".join(f"{key}: {value}\n" for key, value in lines.items() if value != {})
    spec = "{size: [640, 384], pad: 114, scale: 1/255}"
    (folder / "words.yaml").write_text(f"task: {task}\n{body}input: {spec}\n")
    return load_card(folder / "words.yaml")


def network():
    """The shipped network."""
    return pytest.importorskip("onnx").load(shipped_models() / "demo-words.onnx")


def with_dims(*dims):
    """The network with other dimensions of its input for texts: numbers, or names of open ones."""
    model = network()
    shape = model.graph.input[1].type.tensor_type.shape
    for place, size in zip(shape.dim, dims, strict=True):
        place.Clear()
        setattr(place, "dim_value" if isinstance(size, int) else "dim_param", size)
    del model.graph.output[0].type.tensor_type.shape.dim[:]
    for size in ("N", "classes", 20160):
        setattr(
            model.graph.output[0].type.tensor_type.shape.dim.add(), "dim_value" if size == 20160 else "dim_param", size
        )
    return model


def of_rank_2():
    """The network with texts as (P, 64)."""
    onnx = pytest.importorskip("onnx")
    model = network()
    text_input = model.graph.input[1]
    dims = text_input.type.tensor_type.shape.dim
    del dims[0]
    text_input.name = "rows"
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.array([0]), "first"))
    model.graph.node.insert(0, onnx.helper.make_node("Unsqueeze", ["rows", "first"], ["text_embeds"]))
    return model


def of_tokens():
    """The network with the text encoder in it: token ids and a mask of N x P texts."""
    onnx = pytest.importorskip("onnx")
    text = onnx.load(shipped_models() / TEXT["encoder"])
    model = network()
    text = onnx.compose.add_prefix(text, "text_")
    model = onnx.compose.add_prefix(model, "net_")
    make = onnx.helper.make_node
    graph = model.graph
    graph.initializer.extend(text.graph.initializer)
    graph.initializer.append(onnx.numpy_helper.from_array(np.array([-1]), "last"))
    graph.initializer.append(onnx.numpy_helper.from_array(np.array([64]), "wide"))
    nodes = [
        *text.graph.node,
        make("LpNormalization", ["text_text_embeds"], ["unit"], axis=-1, p=2),
        make("Shape", ["net_images"], ["images_n"], start=0, end=1),
        make("Concat", ["images_n", "last", "wide"], ["shape"], axis=0),
        make("Reshape", ["unit", "shape"], ["net_text_embeds"]),
    ]
    for place, node in enumerate(nodes):
        graph.node.insert(place, node)
    del graph.input[1]
    graph.input.extend(text.graph.input)
    return model


def closed(vectors):
    """The network with the embeddings of its texts in it, as exports for fixed classes have them."""
    onnx = pytest.importorskip("onnx")
    model = network()
    del model.graph.input[1]
    model.graph.initializer.append(onnx.numpy_helper.from_array(vectors[None], "text_embeds"))
    dims = model.graph.output[0].type.tensor_type.shape.dim
    dims[1].Clear()
    dims[1].dim_value = 4 + len(vectors)
    return model
