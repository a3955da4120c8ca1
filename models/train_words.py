"""Train the networks of words that ship: those of `demo-words.yaml` and `demo-words-crop.yaml`.

    python models/train_words.py --draw frames.pt       # draws scenes; two minutes on two cores
    python models/train_words.py --frames frames.pt     # trains on what was drawn; a quarter of an hour on two cores

Draws street scenes (`samples.draw_street`), whose plan says what each object looks like, so that each has texts that
are true of it: `car`, `red car`, `van`, `red van`, `person`, `person in red`, `bike`. The detector keeps the weights of
`demo.onnx` and learns an embedding for each of its places; the crop tower is trained from nothing. Neither is trained
on anything else: the networks know these words, and no others. Seeds as in `train_demo.py`: from 1000 on for training,
100 to 999 for the score printed at the end.

Needs PyTorch, onnx, tokenizers and Pillow; drawing needs OpenCV and PyAV. Weights are stored as int8 with a scale for
each output channel, and read as float32.
"""

from __future__ import annotations

import argparse
import io
import os
import sys
import tempfile
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torch.nn import functional

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE)]

from demo_net import STRIDES, ciou  # noqa: E402
from train_demo import HEIGHT, PAD, ROOM, TOP, WIDTH, detect  # noqa: E402
from words_net import SIZE, CropTower, TextTower, WordsNet  # noqa: E402

from samples.scene import COLORS, plan  # noqa: E402
from samples.score import ignored, mean_average_precision  # noqa: E402

NOUNS = ("car", "van", "person", "bike")
TEXTS = (
    *NOUNS,
    *(f"{color} {noun}" for noun in ("car", "van") for color in COLORS),
    *(f"person in {color}" for color in COLORS),
)
WORDS = ("[PAD]", "[UNK]", *NOUNS, "in", *COLORS)
LENGTH = 4
VAN = 2
FRAMES = 8  # of a scene


# ------------------------------------------------------------------------------------------------------------ drawing


def text_of(look) -> str:
    """The most exact text that is true of an object."""
    if look.kind == "bike":
        return "bike"
    names = list(COLORS)
    distances = [np.abs(np.subtract(look.colors[0], color)).sum() for color in COLORS.values()]
    color = names[int(np.argmin(distances))]
    return f"person in {color}" if look.kind == "person" else f"{color} {'van' if look.style == VAN else 'car'}"


def truths() -> np.ndarray:
    """(P, P): row p has 1 for each text that is true of an object whose most exact text is p."""
    true = np.eye(len(TEXTS), dtype=np.float32)
    for p, text in enumerate(TEXTS):
        words = text.split()
        if words[-1] in ("car", "van"):
            true[p, TEXTS.index("car")] = 1
        if words[-1] == "van":
            true[p, TEXTS.index("van")] = 1
            if len(words) == 2:
                true[p, TEXTS.index(f"{words[0]} car")] = 1
        if words[0] == "person":
            true[p, TEXTS.index("person")] = 1
    return true


def draw_scene(seed: int) -> tuple[list[bytes], list[dict]]:
    """Frames of a scene, coded and decoded, as JPEG, and their truth, with the most exact text as `class_id`."""
    import av
    import cv2

    from samples.draw_street import draw

    cv2.setNumThreads(1)
    scene = plan(seed, check=False)
    texts = {actor.id: TEXTS.index(text_of(actor.look)) for actor in scene.actors}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "scene.mp4"
        first = int(np.random.default_rng(seed).integers(0, 30))
        records = draw(scene, path, range(first, first + 46 * FRAMES, 46))
        with av.open(str(path)) as container:
            images = [frame.to_ndarray(format="bgr24") for frame in container.decode(video=0)]
    for item in (item for record in records for item in record["objects"]):
        item["class_id"] = texts[item["id"]]
    options = [cv2.IMWRITE_JPEG_QUALITY, 75]
    return [cv2.imencode(".jpg", image, options)[1].tobytes() for image in images], records


def targets(records: list[dict]) -> tuple[Tensor, Tensor]:
    """Boxes (n, ROOM, 4) in source pixels, and texts (n, ROOM): -1 for none, -2 for what is ignored."""
    boxes = np.zeros((len(records), ROOM, 4), np.float32)
    texts = np.full((len(records), ROOM), -1, np.int64)
    for n, record in enumerate(records):
        for m, item in enumerate(record["objects"][:ROOM]):
            boxes[n, m] = item["box"]
            texts[n, m] = -2 if ignored(item) else item["class_id"]
    return torch.from_numpy(boxes), torch.from_numpy(texts)


def images_of(jpegs: list[bytes]) -> Tensor:
    """(n, 360, 640, 3) uint8, RGB."""
    return torch.from_numpy(np.stack([np.asarray(Image.open(io.BytesIO(jpeg)).convert("RGB")) for jpeg in jpegs]))


# ----------------------------------------------------------------------------------------------------------- training


def tokens() -> tuple[Tensor, Tensor]:
    """`input_ids` and `attention_mask` of `TEXTS`, (P, LENGTH) int64."""
    rows = [[WORDS.index(word) for word in text.split()] for text in TEXTS]
    ids = torch.tensor([row + [0] * (LENGTH - len(row)) for row in rows])
    return ids, (ids != 0).long()


class Places(NamedTuple):
    """Places of training frames that lie in an object, by stride.

    Attributes:
        patches: (n, c, 3, 3) f16, what the network's `looks` see there.
        texts: (n,) the most exact text of the object.
        weights: (n,) f16, how well the place's box fits the object.
    """

    patches: Tensor
    texts: Tensor
    weights: Tensor


@torch.no_grad()
def places_of(net: WordsNet, images: Tensor, boxes: Tensor, labels: Tensor) -> list[Places]:
    """Return the ten places of each object whose boxes fit best, for each stride."""
    places_by_stride: list[list[tuple[Tensor, ...]]] = [[] for _ in STRIDES]
    for image, aims, kinds in zip(images, boxes, labels, strict=True):
        frame = torch.full((1, 3, HEIGHT, WIDTH), PAD)
        frame[:, :, TOP : TOP + 360] = image.permute(2, 0, 1).float() / 255
        levels = net.seen(frame)
        predicted, sure = net.detect(levels)
        seen = torch.nonzero(sure[0, 0] > 0.05)[:, 0]
        wanted = aims[kinds >= 0] + torch.tensor([0.0, TOP, 0.0, TOP])
        overlap = ciou(predicted[0].T[seen][:, None], wanted[None], complete=False)
        owner = torch.full(sure.shape[2:], -1)
        fit = torch.full(sure.shape[2:], 0.4)
        for m in range(len(wanted)):
            best = overlap[:, m].topk(min(10, len(seen)))
            places = seen[best.indices]
            well = best.values > fit[places]
            owner[places[well]] = m
            fit[places[well]] = best.values[well]
        texts = kinds[kinds >= 0]
        first = 0
        for level, x in enumerate(net.around(frame, levels)):
            count = x.shape[2] * x.shape[3]
            rows = torch.nonzero(owner[first : first + count] >= 0)[:, 0]
            y = rows // x.shape[3]
            across = rows % x.shape[3]
            near = torch.arange(3)
            wide = functional.pad(x[0], (1, 1, 1, 1))
            patches = wide[:, (y[:, None] + near)[:, :, None], (across[:, None] + near)[:, None]].transpose(0, 1)
            places_by_stride[level].append((patches.half(), texts[owner[first + rows]], fit[first + rows]))
            first += count
        if len(places_by_stride[0]) % 50 == 0:
            print(f"places of {len(places_by_stride[0])} of {len(images)} frames", flush=True)
    return [Places(*(torch.cat(part) for part in zip(*some, strict=True))) for some in places_by_stride]


def train_detector(net: WordsNet, text: TextTower, places: list[Places], steps: int) -> None:
    """Train the embeddings of places, and the text tower, for which texts are true of an object."""
    ids, mask = tokens()
    true = torch.from_numpy(truths())
    parameters = [*net.looks.parameters(), *net.match.parameters(), *text.parameters()]
    optimizer = torch.optim.AdamW(parameters, 3e-3, weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 3e-3, steps)
    for step in range(steps):
        texts = functional.normalize(text(ids, mask), dim=-1)
        loss = torch.zeros(())
        for look, some in zip(net.looks, places, strict=True):
            pick = torch.randint(len(some.texts), (768,))
            hidden = functional.linear(some.patches[pick].float().flatten(1), look[0].weight.flatten(1), look[0].bias)
            places_ = functional.linear(look[1](hidden), look[2].weight.flatten(1), look[2].bias)
            logits = net.match(places_[..., None], texts[None])[..., 0]
            each = functional.binary_cross_entropy_with_logits(logits, true[some.texts[pick]], reduction="none")
            loss = loss + (each.sum(1) * some.weights[pick]).mean()
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        schedule.step()
        if step % 200 == 0:
            print(f"detector: step {step} of {steps}, loss {loss.item() / 3:.3f}", flush=True)


def crops_of(images: Tensor, boxes: Tensor, moved: Tensor) -> Tensor:
    """(n, 3, 64, 64) f32 crops, 0..1, of (n,) images; boxes (n, 4) in source pixels, moved by shares of their size."""
    boxes = boxes + moved * (boxes[:, 2:] - boxes[:, :2]).repeat(1, 2)
    views = []
    for image, (x1, y1, x2, y2) in zip(images, boxes.round().int().tolist(), strict=True):
        part = image[max(0, y1) : max(1, y2), max(0, x1) : max(1, x2)].permute(2, 0, 1)[None].float() / 255
        views.append(functional.interpolate(part, (SIZE, SIZE), mode="bilinear", antialias=True))
    return torch.cat(views)


def train_crops(crops: CropTower, texts: Tensor, lessons: tuple[Tensor, ...], steps: int, batch: int = 128) -> None:
    """Train the crop tower against fixed embeddings of `TEXTS`, (P, 64) of length 1."""
    images, boxes, labels = lessons
    true = torch.from_numpy(truths())
    frame, number = torch.nonzero(labels >= 0, as_tuple=True)
    scale = torch.nn.Parameter(torch.tensor(10.0))
    bias = torch.nn.Parameter(torch.tensor(-5.0))
    optimizer = torch.optim.AdamW([*crops.parameters(), scale, bias], 3e-3, weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 3e-3, steps)
    crops.train()
    for step in range(steps):
        pick = torch.randint(len(frame), (batch,))
        which = frame[pick]
        picked_number = number[pick]
        views = crops_of(images[which], boxes[which, picked_number], torch.empty(batch, 4).uniform_(-0.08, 0.08))
        views = torch.where(torch.rand(batch, 1, 1, 1) < 0.5, views.flip(3), views)
        cosine = functional.normalize(crops(views), dim=-1) @ texts.T
        wanted = true[labels[which, picked_number]]
        loss = functional.binary_cross_entropy_with_logits(cosine * scale + bias, wanted) * len(TEXTS)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        schedule.step()
        if step % 100 == 0:
            print(f"crops: step {step} of {steps}, loss {loss.item():.3f}", flush=True)


# ------------------------------------------------------------------------------------------------------ score, export


@torch.no_grad()
def score(net: WordsNet, texts: Tensor, images: Tensor, records: list[dict]) -> tuple[float, list[float]]:
    """MAP at IoU 0.5 of the nouns and of all texts that occur, by the most exact text."""

    class Closed(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = net
            self.classes = len(TEXTS)

        def forward(self, frames: Tensor) -> Tensor:
            return self.net(frames, texts[None])

    detections = detect(Closed().eval(), images.numpy(), 0.65, 0.05)
    exact = mean_average_precision(records, detections, len(TEXTS))
    true = truths()
    nouns = []
    for n in range(len(NOUNS)):
        kinds = [
            {**record, "objects": [{**o, "class_id": 0 if true[o["class_id"], n] else 1} for o in record["objects"]]}
            for record in records
        ]
        rows = [np.where(np.arange(6) == 5, 0, rows[rows[:, 5] == n]) for rows in detections]
        nouns.append(mean_average_precision(kinds, rows, 2)[1][0])
    return exact[0], nouns


def export(net: WordsNet, text: TextTower, crops: CropTower, folder: Path) -> None:
    """Write the three networks and the tokenizer."""
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers

    net, text, crops = (network.eval().float().cpu() for network in (net, text, crops))
    ids, mask = tokens()
    write(
        net,
        (torch.zeros(1, 3, HEIGHT, WIDTH), torch.zeros(1, 2, SIZE)),
        folder / "demo-words.onnx",
        {"images": {0: "N"}, "text_embeds": {1: "P"}},
        {"output0": {0: "N", 1: "classes"}},
    )
    write(
        text,
        (ids[:2], mask[:2]),
        folder / "demo-words-text.onnx",
        {"input_ids": {0: "P", 1: "L"}, "attention_mask": {0: "P", 1: "L"}},
        {"text_embeds": {0: "P"}},
    )
    write(
        crops,
        (torch.zeros(1, 3, SIZE, SIZE),),
        folder / "demo-words-crop.onnx",
        {"images": {0: "N"}},
        {"image_embeds": {0: "N"}},
    )
    tokenizer = Tokenizer(models.WordLevel({word: n for n, word in enumerate(WORDS)}, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.Lowercase()
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.enable_padding(pad_id=0, pad_token="[PAD]")
    tokenizer.save(str(folder / "demo-words-tokenizer.json"))


def _small_grid(net: WordsNet, graph) -> list:
    """Store the grid and its strides, which PyTorch writes as constants, as uint8; return the nodes that read them."""
    from onnx import TensorProto, helper, numpy_helper

    stride = net.stride.numpy()
    grid = net.grid.numpy()
    nodes = []
    for node in [node for node in graph.node if node.op_type == "Constant"]:
        values = numpy_helper.to_array(node.attribute[0].t)
        for name, wanted in (("stride", stride), ("grid", grid)):
            if values.shape == wanted.shape and np.array_equal(values, wanted):
                graph.node.remove(node)
                nodes.append(helper.make_node("Identity", [name], [node.output[0]], f"{node.name}_{name}"))
    cells = (grid / stride - 0.5).astype(np.uint8)
    for name, values in (("stride_u8", stride.astype(np.uint8)), ("cells_u8", cells), ("half", np.float32(0.5))):
        graph.initializer.append(numpy_helper.from_array(np.asarray(values), name))
    return [
        helper.make_node("Cast", ["stride_u8"], ["stride"], "stride_cast", to=TensorProto.FLOAT),
        helper.make_node("Cast", ["cells_u8"], ["cells"], "cells_cast", to=TensorProto.FLOAT),
        helper.make_node("Add", ["cells", "half"], ["middles"], "grid_add"),
        helper.make_node("Mul", ["middles", "stride"], ["grid"], "grid_mul"),
        *nodes,
    ]


def write(net: torch.nn.Module, example: tuple[Tensor, ...], path: Path, inputs: dict, outputs: dict) -> None:
    """Write a network as ONNX opset 17; each large weight is int8 with scales, which the runtime folds to float32."""
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    torch.onnx.export(
        net,
        example,
        str(path),
        input_names=list(inputs),
        output_names=list(outputs),
        dynamic_axes={**inputs, **outputs},
        opset_version=17,
        dynamo=False,
    )
    model = onnx.load(str(path))
    scaled = _small_grid(net, model.graph) if isinstance(net, WordsNet) else []
    for weight in model.graph.initializer:
        values = numpy_helper.to_array(weight)
        if weight.data_type == TensorProto.FLOAT and values.ndim > 1 and values.size >= 256:
            name = weight.name
            scale = np.abs(values).max(axis=tuple(range(1, values.ndim)), keepdims=True) / 127
            weight.CopyFrom(numpy_helper.from_array(np.rint(values / scale).astype(np.int8), f"{name}_i8"))
            model.graph.initializer.append(numpy_helper.from_array(scale.astype(np.float32), f"{name}_scale"))
            scaled += [
                helper.make_node("Cast", [f"{name}_i8"], [f"{name}_f32"], f"{name}_cast", to=TensorProto.FLOAT),
                helper.make_node("Mul", [f"{name}_f32", f"{name}_scale"], [name], f"{name}_mul"),
            ]
    for node in reversed(scaled):
        model.graph.node.insert(0, node)
    onnx.checker.check_model(model)
    onnx.save(model, str(path))
    print(f"{path.name}: {path.stat().st_size:,} bytes", flush=True)


def main() -> None:
    """Read the command line, draw or train."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--draw", type=Path, metavar="FILE", help="draw scenes into this file, and end")
    parser.add_argument("--frames", type=Path, metavar="FILE", help="the file of --draw")
    parser.add_argument("--scenes", type=int, default=140, help="training scenes, of seeds from 1000 on")
    parser.add_argument("--exams", type=int, default=6, help="scenes for the score, of seeds from 100 on")
    parser.add_argument("--steps", type=int, default=3000, help="of the training of the detector and the text tower")
    parser.add_argument("--crop-steps", type=int, default=1500, help="of the training of the crop tower")
    parser.add_argument("--workers", type=int, default=os.cpu_count())
    parser.add_argument("--out", type=Path, default=HERE)
    options = parser.parse_args()
    if options.draw:
        seeds = [*range(1000, 1000 + options.scenes), *range(100, 100 + options.exams)]
        with ProcessPoolExecutor(options.workers) as pool:
            torch.save(list(pool.map(draw_scene, seeds)), options.draw)
        return
    scenes = torch.load(options.frames, weights_only=False)
    learn = scenes[: -options.exams]
    exams = scenes[-options.exams :]
    torch.manual_seed(0)
    boxes, labels = targets([record for _, records in learn for record in records])
    images = images_of([jpeg for jpegs, _ in learn for jpeg in jpegs])
    net = WordsNet()
    text = TextTower(len(WORDS))
    crops = CropTower()
    net.start_from(HERE / "demo.onnx")
    train_detector(net, text, places_of(net, images, boxes, labels), options.steps)
    with torch.no_grad():
        texts = functional.normalize(text(*tokens()), dim=-1)
    train_crops(crops, texts, (images, boxes, labels), options.crop_steps)
    export(net, text, crops, options.out)
    for seed, (jpegs, records) in enumerate(exams, 100):
        exact, nouns = score(net, texts, images_of(jpegs), records)
        shown = ", ".join(f"{noun} {ap:.3f}" for noun, ap in zip(NOUNS, nouns, strict=True))
        print(f"seed {seed}  AP@0.5 {shown}; mean of the exact texts {exact:.3f}", flush=True)


if __name__ == "__main__":
    main()
