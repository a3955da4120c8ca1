"""Train the reader of drawn number plates, from nothing, and export it.

    python models/train_plates.py --out models/plates.onnx

Draws plates (`samples/plates.py`) of 10 to 48 pixels height with blur and noise, cut by their corners or by their box;
trains a small convolutional network with a CTC loss; prints how many plates of other seeds it reads; writes
ONNX. Needs PyTorch, onnx and OpenCV. With the defaults 5 minutes on two cores.
"""

from __future__ import annotations

import argparse
import math
import os
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import cv2
import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

sys.path[:0] = [str(Path(__file__).resolve().parents[1])]

from samples.plates import DIGITS, LETTERS, PlateTrack, random_text  # noqa: E402

WIDTH = 128
HEIGHT = 32
ALPHABET = DIGITS + LETTERS
PATTERNS = ("A-AA 9999", "AA-AA 999", "AAA-A 99", "AA99 AAA", "AA-999-AA", "AAA-9999", "9AAA999", "A 999 AA")
LONGEST = 10


class PlateNet(nn.Module):
    """Images (N, 3, 32, 128), RGB 0..1, to the probabilities of the blank and each character, (N, 32, 37)."""

    def __init__(self) -> None:
        super().__init__()

        def block(
            in_channels: int, out_channels: int, size: int | tuple[int, int], stride: int | tuple[int, int]
        ) -> list[nn.Module]:
            half = size // 2 if isinstance(size, int) else 0
            layer = nn.Conv2d(in_channels, out_channels, size, stride, half, bias=False)
            return [layer, nn.BatchNorm2d(out_channels), nn.ReLU()]

        self.columns = nn.Sequential(
            *block(1, 16, 5, 2),
            *block(16, 32, 3, 2),
            *block(32, 48, 3, (2, 1)),
            *block(48, 64, 3, (2, 1)),
            *block(64, 64, (2, 1), 1),
        )
        self.context = nn.Sequential(nn.Conv1d(64, 64, 5, padding=2, bias=False), nn.BatchNorm1d(64), nn.ReLU())
        self.classes = nn.Conv1d(64, len(ALPHABET) + 1, 1)

    def logits(self, images: Tensor) -> Tensor:
        """(N, 37, 32) before the softmax."""
        columns = self.columns(images.mean(1, keepdim=True) * 2 - 1)[:, :, 0]
        return self.classes(columns + self.context(columns))

    def forward(self, images: Tensor) -> Tensor:
        """The probabilities."""
        return self.logits(images).softmax(1).transpose(1, 2)


def cut_out(picture: np.ndarray, corners: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """A plate as a detector's box or corners cut it, (32, 128) uint8; both are a little off."""
    height = float(np.linalg.norm(corners[3] - corners[0]))
    if rng.random() < 0.4:
        left, top = corners.min(0)
        right, bottom = corners.max(0)
        corners = np.array([[left, top], [right, top], [right, bottom], [left, bottom]])
        corners = corners + np.repeat(rng.normal(0, 0.05 * height, (2, 2)), 2, 0)[[0, 2, 3, 1]] * [[1, 1]]
    else:
        corners = corners + rng.normal(0, 0.035 * height, (4, 2))
    to = np.array([[0, 0], [WIDTH, 0], [WIDTH, HEIGHT], [0, HEIGHT]], np.float32) - 0.5
    matrix = cv2.getPerspectiveTransform((corners - 0.5).astype(np.float32), to)
    return np.asarray(cv2.warpPerspective(picture, matrix, (WIDTH, HEIGHT), borderMode=cv2.BORDER_REPLICATE), np.uint8)


def draw(seed: int, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Plates (count, 32, 128) uint8 and their characters (count, LONGEST), 0 behind the last."""
    cv2.setNumThreads(1)
    rng = np.random.default_rng(seed)
    images = np.zeros((count, HEIGHT, WIDTH), np.uint8)
    texts = np.zeros((count, LONGEST), np.int64)
    for n in range(count):
        if n % 2 == 0:  # two views of each plate
            pattern = str(rng.choice(PATTERNS))
            if rng.random() < 0.3:
                pattern = "".join(rng.choice(list("A9"), rng.integers(4, 9)))
            height = float(np.exp(rng.uniform(math.log(10), math.log(48))))
            track = PlateTrack(
                random_text(rng, pattern), height, rng, (int(7 * height) // 2 * 2, int(2.6 * height) // 2 * 2)
            )
        images[n] = cut_out(track.frame(float(rng.random())), track.corners, rng)
        letters = [ALPHABET.index(c) + 1 for c in track.text if c in ALPHABET]
        texts[n, : len(letters)] = letters
    return images, texts


def read(net: PlateNet, images: Tensor) -> list[list[int]]:
    """The characters of images (N, 32, 128) uint8, by greedy decoding."""
    with torch.inference_mode():
        best = net(images[:, None].expand(-1, 3, -1, -1).float() / 255).argmax(2)
    return [[int(c) for c, last in zip(row, [0, *row[:-1]], strict=True) if c and c != last] for row in best.tolist()]


def train(net: PlateNet, images: Tensor, texts: Tensor, steps: int, batch: int, rate: float) -> None:
    """Train: the learning rate rises over the first tenth of the steps and falls to 0 at the end."""
    optimizer = torch.optim.AdamW(net.parameters(), rate, weight_decay=0.01)
    mean = 0.0
    net.train()
    for step in range(steps):
        share = step / steps
        chosen = torch.randint(len(images), (batch,))
        seen = images[chosen][:, None].expand(-1, 3, -1, -1).float() / 255
        seen = (seen * torch.empty(batch, 1, 1, 1).uniform_(0.7, 1.2) + torch.randn_like(seen) * 0.01).clamp(0, 1)
        with torch.autocast("cpu", torch.bfloat16):
            logits = net.logits(seen)
        scores = functional.log_softmax(logits.float(), 1).permute(2, 0, 1)
        lengths = (texts[chosen] > 0).sum(1)
        loss = functional.ctc_loss(
            scores, texts[chosen], torch.full((batch,), len(scores)), lengths, zero_infinity=True
        )
        for group in optimizer.param_groups:
            group["lr"] = rate * min(share / 0.1, 0.5 + 0.5 * math.cos(math.pi * share))
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), 5.0)
        optimizer.step()
        mean = 0.98 * mean + 0.02 * loss.item()
        if step % 200 == 199:
            print(f"step {step + 1}  loss {mean:.4f}", flush=True)


def export(net: PlateNet, path: Path) -> None:
    """Write the network as ONNX opset 17 with a dynamic batch."""
    names = {"images": {0: "N"}, "probabilities": {0: "N"}}
    torch.onnx.export(
        net.eval(),
        (torch.zeros(1, 3, HEIGHT, WIDTH),),
        str(path),
        input_names=["images"],
        output_names=["probabilities"],
        dynamic_axes=names,
        opset_version=17,
        dynamo=False,
    )


def main() -> None:
    """Draw, train, score, export."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path(__file__).with_name("plates.onnx"))
    parser.add_argument("--plates", type=int, default=40_000, help="training images, of seeds from 1000 on")
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--rate", type=float, default=3e-3, help="peak learning rate")
    parser.add_argument("--workers", type=int, default=os.cpu_count())
    options = parser.parse_args()

    start_s = time.monotonic()
    each = 500
    with ProcessPoolExecutor(options.workers) as pool:
        seeds = range(1000, 1000 + options.plates // each)
        drawn = list(pool.map(draw, seeds, [each] * len(seeds)))
    images, texts = (torch.from_numpy(np.concatenate(part)) for part in zip(*drawn, strict=True))
    print(f"{len(images)} plates drawn in {time.monotonic() - start_s:.0f} s", flush=True)
    torch.manual_seed(0)
    net = PlateNet()
    train(net, images, texts, options.steps, options.batch, options.rate)
    export(net, options.out)
    for seed in (100, 101):
        images, texts = map(torch.from_numpy, draw(seed, 500))
        truth = ([c for c in text if c] for text in texts.tolist())
        right = [reading == text for reading, text in zip(read(net, images), truth, strict=True)]
        print(f"seed {seed}: {np.mean(right):.3f} of single views read exactly", flush=True)


if __name__ == "__main__":
    main()
