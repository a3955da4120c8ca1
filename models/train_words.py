"""Train the networks of words that ship: the detector and the crop tower of `demo-words.yaml` and `demo-words-crop.yaml`.

    python models/train_words.py --draw frames.pt       # draws scenes; two minutes on two cores
    python models/train_words.py --frames frames.pt     # trains on what was drawn; a quarter of an hour on two cores

Draws street scenes (`samples.draw_street`), whose plan says what each object looks like, so that each has texts that
are true of it: `car`, `red car`, `van`, `red van`, `person`, `person in red`, `bike`. The text tower and both image
towers are trained on nothing else: the networks know these words, and no others. Seeds as in `train_demo.py`: from 1000
on for training, 100 to 999 for the score printed at the end. The detector begins with the weights of `demo.onnx`.

Needs PyTorch, onnx, tokenizers and Pillow; drawing needs OpenCV and PyAV. Weights are stored as int8 with a scale for
each output, and read as float32.
"""

from __future__ import annotations

import argparse
import copy
import io
import math
import os
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torch.nn import functional

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE)]

from train_demo import HEIGHT, PAD, ROOM, TOP, WIDTH, augment  # noqa: E402
from words_net import SIZE, CropTower, TextLoss, TextTower, WordsNet  # noqa: E402

from samples.scene import plan  # noqa: E402
from samples.score import ignored, mean_average_precision  # noqa: E402

COLORS = {
    "red": (176, 36, 42), "white": (228, 228, 226), "black": (32, 34, 40), "gray": (126, 131, 132),
    "blue": (34, 72, 138), "yellow": (212, 182, 56), "green": (45, 112, 76), "orange": (196, 104, 46),
    "silver": (188, 200, 206), "purple": (110, 50, 98), "azure": (110, 160, 200),
}  # fmt: skip
NOUNS = ("car", "van", "person", "bike")
TEXTS = (*NOUNS, *(f"{color} {noun}" for noun in ("car", "van") for color in COLORS),
         *(f"person in {color}" for color in COLORS))  # fmt: skip
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
    color = names[int(np.argmin([np.abs(np.subtract(look.colours[0], one)).sum() for one in COLORS.values()]))]
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
    boxes, texts = np.zeros((len(records), ROOM, 4), np.float32), np.full((len(records), ROOM), -1, np.int64)
    for n, record in enumerate(records):
        for m, item in enumerate(record["objects"][:ROOM]):
            boxes[n, m], texts[n, m] = item["box"], -2 if ignored(item) else item["class_id"]
    return torch.from_numpy(boxes), torch.from_numpy(texts)


def images_of(jpegs: list[bytes]) -> Tensor:
    """(n, 360, 640, 3) uint8, RGB."""
    return torch.from_numpy(np.stack([np.asarray(Image.open(io.BytesIO(one)).convert("RGB")) for one in jpegs]))


# ----------------------------------------------------------------------------------------------------------- training


def tokens() -> tuple[Tensor, Tensor]:
    """`input_ids` and `attention_mask` of `TEXTS`, (P, LENGTH) int64."""
    rows = [[WORDS.index(word) for word in text.split()] for text in TEXTS]
    ids = torch.tensor([row + [0] * (LENGTH - len(row)) for row in rows])
    return ids, (ids != 0).long()


def train_detector(
    net: WordsNet, text: TextTower, lessons: tuple[Tensor, ...], minutes: float, batch: int, rate: float
) -> tuple[WordsNet, TextTower]:
    """Train both for `minutes`; return the running means of their weights."""
    images, boxes, labels = lessons
    device = boxes.device
    ids, mask = (one.to(device) for one in tokens())
    both = torch.nn.ModuleList([net, text])
    mean = copy.deepcopy(both).eval().requires_grad_(False)
    loss_of = TextLoss(net, torch.from_numpy(truths()).to(device))
    new = [net.scale, net.bias, *net.heads.parameters(), *text.parameters()]
    own = {id(one) for one in new}
    old = [one for one in net.parameters() if one.requires_grad and id(one) not in own]
    optimizer = torch.optim.AdamW([{"params": new, "by": 1.0}, {"params": old, "by": 0.3}], rate, weight_decay=0.01)
    start, step, shown = time.monotonic(), 0, torch.zeros((), device=device)
    while (done := (time.monotonic() - start) / (60 * minutes)) < 1:
        pick = torch.randint(len(images), (batch,))
        most = int((labels[pick] != -1).sum(1).max())
        seen = images[pick].to(device)
        frames, aims, kinds = augment(
            seen, boxes[pick][:, :most], labels[pick][:, :most], 1.0 if done < 0.85 else 0.0
        )
        for group in optimizer.param_groups:
            group["lr"] = group["by"] * rate * min(1, (step + 1) / 50) * (0.01 + 0.99 * (1 + math.cos(math.pi * done)) / 2)
        with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
            far, places = net.raw(frames.contiguous(memory_format=torch.channels_last))
        texts = functional.normalize(text(ids, mask), dim=-1)[None]
        loss = loss_of(far, net.logits(places.float(), texts), aims, kinds)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(both.parameters(), 10.0)
        optimizer.step()
        step += 1
        keep = 0.99 * (1 - math.exp(-step / 100))
        with torch.no_grad():
            torch._foreach_lerp_(list(mean.parameters()), list(both.parameters()), 1 - keep)
        shown = torch.lerp(shown, loss.detach(), 0.02)
        if step % 50 == 0:
            print(f"detector: step {step}  {done:4.0%}  loss {shown.item():.3f}", flush=True)
    return mean[0], mean[1]


def crops_of(images: Tensor, boxes: Tensor, rect: Tensor) -> Tensor:
    """(n, 3, 64, 64) f32 crops, 0..1, of (n,) images; boxes (n, 4) in source pixels, moved by `rect` of their size."""
    size = boxes[:, 2:] - boxes[:, :2]
    boxes = boxes + rect * size.repeat(1, 2)
    scale = torch.tensor([WIDTH, 360.0], device=boxes.device)
    middle, half = (boxes[:, :2] + boxes[:, 2:]) / scale - 1, (boxes[:, 2:] - boxes[:, :2]) / scale
    theta = torch.zeros(len(boxes), 2, 3, device=boxes.device)
    theta[:, 0, 0], theta[:, 1, 1], theta[:, :, 2] = half[:, 0], half[:, 1], middle
    grid = functional.affine_grid(theta, [len(boxes), 3, SIZE, SIZE], align_corners=False)
    return functional.grid_sample(images.permute(0, 3, 1, 2).float() / 255, grid, padding_mode="border", align_corners=False)


def train_crops(crops: CropTower, texts: Tensor, lessons: tuple[Tensor, ...], minutes: float, batch: int = 256) -> None:
    """Train the crop tower against fixed embeddings of `TEXTS`, (P, 64) of length 1."""
    images, boxes, labels = lessons
    device = boxes.device
    true = torch.from_numpy(truths()).to(device)
    frame, item = torch.nonzero(labels >= 0, as_tuple=True)
    scale = torch.nn.Parameter(torch.tensor(10.0, device=device))
    bias = torch.nn.Parameter(torch.tensor(-5.0, device=device))
    rate = 2e-3
    optimizer = torch.optim.AdamW([*crops.parameters(), scale, bias], rate, weight_decay=0.01)
    start, step = time.monotonic(), 0
    while (done := (time.monotonic() - start) / (60 * minutes)) < 1:
        pick = torch.randint(len(frame), (batch,), device=device)
        which, one = frame[pick], item[pick]
        jitter = torch.empty(batch, 4, device=device).uniform_(-0.08, 0.08)
        views = crops_of(images[which.cpu()].to(device), boxes[which, one], jitter)
        views = (views * torch.empty(batch, 1, 1, 1, device=device).uniform_(0.9, 1.1)).clamp(0, 1)
        views = torch.where(torch.rand(batch, 1, 1, 1, device=device) < 0.5, views.flip(3), views)
        cosine = functional.normalize(crops(views), dim=-1) @ texts.T
        loss = functional.binary_cross_entropy_with_logits(cosine * scale + bias, true[labels[which, one]]) * len(TEXTS)
        for group in optimizer.param_groups:
            group["lr"] = rate * (0.01 + 0.99 * (1 + math.cos(math.pi * done)) / 2)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        step += 1
        if step % 500 == 0:
            print(f"crops: step {step}  {done:4.0%}  loss {loss.item():.3f}", flush=True)


# ------------------------------------------------------------------------------------------------------ score, export


@torch.no_grad()
def score(net: WordsNet, texts: Tensor, images: Tensor, records: list[dict]) -> tuple[float, list[float]]:
    """MAP at IoU 0.5 of the nouns and of all texts that occur, by the most exact text."""
    from train_demo import detect

    class Closed(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net, self.classes = net, len(TEXTS)

        def forward(self, frames: Tensor) -> Tensor:
            return self.net(frames, texts[None])

    found = detect(Closed().eval(), images.numpy(), 0.65, 0.05)
    exact, true = mean_average_precision(records, found, len(TEXTS)), truths()
    nouns = []
    for n, noun in enumerate(NOUNS):
        kinds = [
            {**record, "objects": [{**o, "class_id": 0 if true[o["class_id"], n] else 1} for o in record["objects"]]}
            for record in records
        ]
        rows = [np.where(np.arange(6) == 5, 0, rows[rows[:, 5] == n]) for rows in found]
        nouns.append(mean_average_precision(kinds, rows, 2)[1][0])
    return exact[0], nouns


def export(net: WordsNet, text: TextTower, crops: CropTower, folder: Path) -> None:
    """Write the three networks and the tokenizer."""
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers

    net, text, crops = (one.eval().float().cpu() for one in (net, text, crops))
    ids, mask = tokens()
    write(net, (torch.zeros(1, 3, HEIGHT, WIDTH), torch.zeros(1, 2, SIZE)), folder / "demo-words.onnx",
          {"images": {0: "N"}, "text_embeds": {1: "P"}}, {"output0": {0: "N", 1: "classes"}})  # fmt: skip
    write(text, (ids[:2], mask[:2]), folder / "demo-words-text.onnx",
          {"input_ids": {0: "P", 1: "L"}, "attention_mask": {0: "P", 1: "L"}}, {"text_embeds": {0: "P"}})  # fmt: skip
    write(crops, (torch.zeros(1, 3, SIZE, SIZE),), folder / "demo-words-crop.onnx",
          {"images": {0: "N"}}, {"image_embeds": {0: "N"}})  # fmt: skip
    tokenizer = Tokenizer(models.WordLevel({word: n for n, word in enumerate(WORDS)}, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.Lowercase()
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.enable_padding(pad_id=0, pad_token="[PAD]")
    tokenizer.save(str(folder / "demo-words-tokenizer.json"))


def write(net: torch.nn.Module, example: tuple[Tensor, ...], path: Path, inputs: dict, outputs: dict) -> None:
    """Write a network as ONNX opset 17; each large weight is int8 with scales, which the runtime folds to float32."""
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    torch.onnx.export(
        net, example, str(path), input_names=list(inputs), output_names=list(outputs),
        dynamic_axes={**inputs, **outputs}, opset_version=17, dynamo=False,
    )  # fmt: skip
    model = onnx.load(str(path))
    scaled = []
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
    parser.add_argument("--minutes", type=float, default=12.0, help="time for training the detector")
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--rate", type=float, default=3e-3, help="peak learning rate")
    parser.add_argument("--workers", type=int, default=os.cpu_count())
    parser.add_argument("--out", type=Path, default=HERE)
    options = parser.parse_args()
    if options.draw:
        seeds = [*range(1000, 1000 + options.scenes), *range(100, 100 + options.exams)]
        with ProcessPoolExecutor(options.workers) as pool:
            torch.save(list(pool.map(draw_scene, seeds)), options.draw)
        return
    scenes = torch.load(options.frames, weights_only=False)
    learn, exams = scenes[: -options.exams], scenes[-options.exams :]
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.manual_seed(0)
    boxes, labels = targets([record for _, records in learn for record in records])
    images = images_of([jpeg for jpegs, _ in learn for jpeg in jpegs])
    lessons = (images, boxes.to(device), labels.to(device))
    net, text = WordsNet(), TextTower(len(WORDS)).to(device)
    net.start_from(HERE / "demo.onnx")
    net = net.train().to(device, memory_format=torch.channels_last)
    net, text = train_detector(net, text, lessons, options.minutes, options.batch, options.rate)
    ids, mask = (one.to(device) for one in tokens())
    with torch.no_grad():
        texts = functional.normalize(text(ids, mask), dim=-1)
    crops = CropTower().to(device)
    train_crops(crops, texts, lessons, options.minutes / 3)
    for seed, (jpegs, records) in enumerate(exams, 100):
        exact, nouns = score(net, texts, images_of(jpegs), records)
        shown = ", ".join(f"{noun} {ap:.3f}" for noun, ap in zip(NOUNS, nouns, strict=True))
        print(f"seed {seed}  AP@0.5 {shown}; mean of the exact texts {exact:.3f}", flush=True)
    export(net, text, crops, options.out)


if __name__ == "__main__":
    main()
