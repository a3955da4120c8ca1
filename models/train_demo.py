"""Train the demo detector on synthetic street scenes, from nothing, and export it.

    python models/train_demo.py --out models/demo.onnx

Draws scenes (`samples/`), codes them with x264 and decodes them again, so that the network sees what a pipeline sees;
trains `demo_net.DemoNet` by the clock; scores it on scenes of seeds it never saw; writes ONNX. Seeds from 1000 on are
for training, 100 to 999 for the score printed at the end; the sample that ships and the tests use seeds under 100.

Needs PyTorch, onnx, OpenCV and PyAV. With the defaults: about 3 minutes of drawing on 16 cores, then `--minutes` on
one GPU with 20 GB free. The file that ships was made on an NVIDIA H200. On a CPU it runs for a try (`--scenes 4
--minutes 1`).
"""

from __future__ import annotations

import argparse
import copy
import math
import os
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import av
import cv2
import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

sys.path[:0] = [str(Path(__file__).resolve().parents[1]), str(Path(__file__).resolve().parent)]

from demo_net import HEIGHT, WIDTH, DemoNet, Loss, export  # noqa: E402

from samples.draw_street import draw, plan  # noqa: E402
from samples.score import MIN_SIDE, box_iou, ignored, mean_average_precision  # noqa: E402

PAD = 114 / 255
TOP = (HEIGHT - 360) // 2  # rows of padding above a 640 x 360 picture
ROOM = 32  # objects a frame at most


def film(seed: int, first: int, count: int, check: bool) -> tuple[np.ndarray, list[dict]]:
    """Frames first..first + count of a scene, coded and decoded, (count, 360, 640, 3) uint8 RGB, and their truth."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "scene.mp4"
        records = draw(plan(seed, check=check), path, range(first, first + count))
        with av.open(str(path)) as container:
            pictures = [frame.to_ndarray(format="rgb24") for frame in container.decode(video=0)]
    return np.stack(pictures), records


def lesson(seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """15 frames of a training scene, boxes (15, ROOM, 4) in source pixels, labels (15, ROOM): -1 none, -2 ignored."""
    cv2.setNumThreads(1)
    pictures, records = film(seed, int(np.random.default_rng(seed).integers(0, 340)), 60, check=False)
    step = 4
    boxes = np.zeros((60 // step, ROOM, 4), np.float32)
    labels = np.full((60 // step, ROOM), -1, np.int64)
    for n, record in enumerate(records[::step]):
        for m, item in enumerate(record["objects"][:ROOM]):
            boxes[n, m] = item["box"]
            labels[n, m] = -2 if ignored(item) else item["class_id"]
    return pictures[::step], boxes, labels


def exam(seed: int) -> tuple[np.ndarray, list[dict]]:
    """The first 8 seconds of a scene for the score."""
    cv2.setNumThreads(1)
    return film(seed, 0, 200, check=True)


def augment(pictures: Tensor, boxes: Tensor, labels: Tensor, strength: float) -> tuple[Tensor, Tensor, Tensor]:
    """Network input (N, 3, 384, 640) and targets from frames (N, 360, 640, 3) uint8: mirrored, zoomed, recolored.

    `strength` 0 only mirrors and recolors. Half of the frames are not zoomed, to keep the codec's traces as they are.
    """
    n = len(pictures)
    device = pictures.device
    u = lambda low, high, *shape: torch.empty(n, *shape, device=device).uniform_(low, high)  # noqa: E731
    zoomed = (u(0, 1) < 0.5 * strength).float()
    zoom = torch.exp(zoomed * u(-0.3, 0.3))
    flip = torch.where(u(0, 1) < 0.5, -1.0, 1.0)
    move = torch.stack([u(-80, 80), u(-60, 60)], 1).round() * (u(0, 1) < strength).float()[:, None]
    # A source point p, from the source's middle, goes to q = zoom * flip * p + move, from the canvas' middle.
    turn = torch.stack([1 / (zoom * flip), 1 / zoom], 1)
    theta = torch.zeros(n, 2, 3, device=device)
    theta[:, 0, 0] = turn[:, 0]
    theta[:, 1, 1] = turn[:, 1] * HEIGHT / 360
    theta[:, :, 2] = -move * turn / torch.tensor([WIDTH / 2, 360 / 2], device=device)
    images = pictures.permute(0, 3, 1, 2).float() / 255
    gain = u(0.75, 1.25, 1, 1, 1) * u(0.93, 1.07, 3, 1, 1)
    mean = images.mean((1, 2, 3), keepdim=True)
    images = ((images - mean) * u(0.8, 1.2, 1, 1, 1) + mean) * gain
    images = images.clamp(0, 1) - PAD
    grid = functional.affine_grid(theta, [n, 3, HEIGHT, WIDTH], align_corners=False)
    images = functional.grid_sample(images, grid, "bilinear", "zeros", align_corners=False) + PAD

    middle = torch.tensor([WIDTH / 2, 180.0], device=device)
    scale = torch.stack([zoom * flip, zoom], 1)[:, None]
    a = (boxes[..., :2] - middle) * scale + move[:, None]
    b = (boxes[..., 2:] - middle) * scale + move[:, None]
    limit = torch.tensor([WIDTH, HEIGHT] * 2, device=device)
    whole = torch.cat([torch.minimum(a, b), torch.maximum(a, b)], -1) + limit / 2
    cut = torch.minimum(whole.clamp(min=0), limit)
    size = cut[..., 2:] - cut[..., :2]
    full = whole[..., 2:] - whole[..., :2]
    left = size.prod(-1) / full.prod(-1).clamp(min=1e-6)
    poor = (size.amax(-1) < MIN_SIDE) | (left < 0.5)
    return images, cut, torch.where((labels >= 0) & poor, -2, labels)


def train(net: DemoNet, lessons: tuple[Tensor, Tensor, Tensor], minutes: float, batch: int, rate: float) -> DemoNet:
    """Train for `minutes` and return the running mean of the network's weights."""
    pictures, boxes, labels = lessons
    device = pictures.device
    mean = copy.deepcopy(net).eval().requires_grad_(False)
    loss_of = Loss(net)
    decay = [p for p in net.parameters() if p.ndim > 1]
    other = [p for p in net.parameters() if p.ndim <= 1]
    groups = [{"params": decay, "weight_decay": 0.02}, {"params": other, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, rate)
    start = time.monotonic()
    step = 0
    shown = torch.zeros((), device=device)
    while (done := (time.monotonic() - start) / (60 * minutes)) < 1:
        pick = torch.randint(len(pictures), (batch,), device=device)
        max_objects = int((labels[pick] != -1).sum(1).max())
        images, targets, kinds = augment(
            pictures[pick], boxes[pick][:, :max_objects], labels[pick][:, :max_objects], 1.0 if done < 0.8 else 0.0
        )
        for group in optimizer.param_groups:
            group["lr"] = rate * min(1, (step + 1) / 300) * (0.01 + 0.99 * (1 + math.cos(math.pi * done)) / 2)
        with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
            far, logits = net.raw(images.contiguous(memory_format=torch.channels_last))
        loss = loss_of(far, logits, targets, kinds)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(net.parameters(), 10.0)
        optimizer.step()
        step += 1
        keep = 0.9995 * (1 - math.exp(-step / 400))
        with torch.no_grad():
            torch._foreach_lerp_(list(mean.parameters()), list(net.parameters()), 1 - keep)
            for a, b in zip(mean.buffers(), net.buffers(), strict=True):
                a.copy_(torch.lerp(a, b, 1 - keep) if a.is_floating_point() else b)
        shown = torch.lerp(shown, loss.detach(), 0.02)
        if step % 250 == 0:
            print(f"step {step}  {done:4.0%}  loss {shown.item():.3f}", flush=True)
    return mean


@torch.no_grad()
def detect(net: DemoNet, pictures: np.ndarray, iou: float, score: float = 0.01) -> list[np.ndarray]:
    """Detections of every frame, (n, 6) x1 y1 x2 y2 in source pixels, score, class, after NMS within each class."""
    device = next(net.parameters()).device
    detections = []
    for chunk in np.array_split(pictures, max(len(pictures) // 25, 1)):
        images = torch.full((len(chunk), 3, HEIGHT, WIDTH), PAD, device=device)
        images[:, :, TOP : TOP + 360] = torch.from_numpy(chunk).to(device).permute(0, 3, 1, 2).float() / 255
        for out in net(images).cpu().numpy():
            rows = []
            for c in range(net.classes):
                best = np.argsort(-out[4 + c])[:300]
                cx, cy, w, h, s = out[[0, 1, 2, 3, 4 + c]][:, best[out[4 + c][best] >= score]]
                boxes = np.stack([cx - w / 2, cy - h / 2 - TOP, cx + w / 2, cy + h / 2 - TOP], 1)
                over = np.triu(box_iou(boxes, boxes) > iou, 1)
                keep = np.ones(len(s), bool)
                for n in range(len(s)):
                    if keep[n]:
                        keep &= ~over[n]
                boxes = np.clip(boxes[keep], 0, [WIDTH, 360, WIDTH, 360])
                rows.append(np.column_stack([boxes, s[keep], np.full(keep.sum(), c)]))
            detections.append(np.concatenate(rows))
    return detections


def main() -> None:
    """Read the command line, draw, train, score, export."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path(__file__).with_name("demo.onnx"))
    parser.add_argument("--scenes", type=int, default=640, help="training scenes, of seeds from 1000 on")
    parser.add_argument("--exams", type=int, default=4, help="scenes for the score, of seeds from 100 on")
    parser.add_argument("--minutes", type=float, default=5.0, help="time for training alone")
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--rate", type=float, default=3e-3, help="peak learning rate")
    parser.add_argument("--width", default="16,32,64", help="channels at strides 4, 8 and 16")
    parser.add_argument("--cache", type=Path, help="a file that keeps the drawn scenes for the next run")
    parser.add_argument("--workers", type=int, default=os.cpu_count())
    options = parser.parse_args()

    start = time.monotonic()
    if options.cache and options.cache.exists():
        lessons, exams = torch.load(options.cache, weights_only=False)
    else:
        with ProcessPoolExecutor(options.workers) as pool:
            drawn = list(pool.map(lesson, range(1000, 1000 + options.scenes)))
            exams = list(pool.map(exam, range(100, 100 + options.exams)))
        lessons = tuple(torch.from_numpy(np.concatenate(part)) for part in zip(*drawn, strict=True))
        if options.cache:
            torch.save((lessons, exams), options.cache)
    print(f"{len(lessons[0])} frames drawn in {time.monotonic() - start:.0f} s", flush=True)

    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.manual_seed(0)
    net = DemoNet(width=tuple(int(n) for n in options.width.split(",")))
    net = net.to(device, memory_format=torch.channels_last)
    if options.minutes:
        net = train(net, tuple(part.to(device) for part in lessons), options.minutes, options.batch, options.rate)
        export(net, str(options.out))
        net = net.to(device)
        for iou in (0.6, 0.65, 0.7):
            for seed, (pictures, truth) in enumerate(exams, 100):
                score, classes = mean_average_precision(truth, detect(net, pictures, iou))
                print(f"seed {seed}  nms {iou}  mAP@0.5 {score:.4f}  each class {np.round(classes, 4)}", flush=True)


if __name__ == "__main__":
    main()
