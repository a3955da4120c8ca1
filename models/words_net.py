"""The networks of words: an image tower that finds what a text names, one for crops, and the text tower of both.

A text is `input_ids` (P, L) int64 of words and `attention_mask` (P, L): the text tower gives `text_embeds` (P, 64).
The detector takes `images` (N, 3, 384, 640) f32, RGB, 0..1, and `text_embeds` (1, P, 64) of length 1. Its output
`output0` (N, 4 + P, A) f32 is that of `demo_net`: a box in input pixels, then a score from 0 to 1 for each text. The
crop tower takes `images` (N, 3, 64, 64) f32 and gives `image_embeds` (N, 64).
"""

from __future__ import annotations

from pathlib import Path

import onnx
import torch
from demo_net import HEIGHT, STRIDES, WIDTH, DemoNet, Residual, conv
from onnx import numpy_helper
from torch import Tensor, nn
from torch.nn import functional

SIZE = 64
"""Values of an embedding, and also the side of a crop in pixels."""


class TextTower(nn.Module):
    """The mean of the words' vectors, through two layers: the order of the words does not count."""

    def __init__(self, words: int) -> None:
        super().__init__()
        self.words = nn.Embedding(words, SIZE)
        self.layers = nn.Sequential(nn.Linear(SIZE, 2 * SIZE), nn.ReLU(), nn.Linear(2 * SIZE, SIZE))

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        """Return (P, 64) of any length."""
        mask = attention_mask[..., None].float()
        return self.layers((self.words(input_ids) * mask).sum(1) / mask.sum(1).clamp(min=1.0))


class Match(nn.Module):
    """The logit of each text at each place, from the cosine of their embeddings."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.tensor(10.0))
        self.bias = nn.Parameter(torch.tensor(-5.0))

    def forward(self, places: Tensor, texts: Tensor) -> Tensor:
        """Return (N, P, A) from embeddings of places (N, 64, A) and of texts (1, P, 64), which have the length 1."""
        unit = places / places.norm(dim=1, keepdim=True).clamp(min=1e-6)
        return torch.matmul(texts, unit) * self.scale + self.bias


class WordsNet(DemoNet):
    """The demo detector, which says where an object is, and an embedding for each of its places.

    A place's embedding comes from what the detector's heads see around it, and the mean colors there.
    """

    def __init__(self) -> None:
        super().__init__(classes=3)
        wide = (self.side4[0].out_channels, self.side8[0].out_channels, self.down16[0].out_channels)
        self.looks = nn.ModuleList(
            nn.Sequential(nn.Conv2d(n + 3, SIZE, 3, padding=1), nn.ReLU(), nn.Conv2d(SIZE, SIZE, 1)) for n in wide
        )
        self.match = Match()

    def seen(self, images: Tensor) -> list[Tensor]:
        """Return for each stride (N, c, h, w), what its head sees."""
        x4 = self.stage4(images)
        x8 = self.stage8(x4)
        x16 = self.down16(self.stage16(x8))
        x8 = self.mix8(self.side8(x8) + functional.interpolate(x16, scale_factor=2.0))
        return [self.side4(x4) + functional.interpolate(self.down8(x8), scale_factor=2.0), x8, x16]

    def detect(self, levels: list[Tensor]) -> tuple[Tensor, Tensor]:
        """Return the boxes (N, 4, A) as x1, y1, x2, y2, and how sure it is of an object (N, 1, A)."""
        parts = [head(trunk(x)).flatten(2) for x, trunk, head in zip(levels, self.trunks, self.heads, strict=True)]
        out = torch.cat(parts, 2)
        far = functional.softplus(out[:, :4] + 1.0) * self.stride
        return torch.cat([self.grid - far[:, :2], self.grid + far[:, 2:]], 1), out[:, 4:].sigmoid().amax(1, True)

    def around(self, images: Tensor, levels: list[Tensor]) -> list[Tensor]:
        """Return for each stride the features of which places are embedded."""
        return [torch.cat([x, functional.avg_pool2d(images, s)], 1) for x, s in zip(levels, STRIDES, strict=True)]

    def forward(self, images: Tensor, text_embeds: Tensor) -> Tensor:
        """The decoded output, (N, 4 + P, A)."""
        levels = self.seen(images)
        boxes, sure = self.detect(levels)
        around = self.around(images, levels)
        places = torch.cat([look(x).flatten(2) for x, look in zip(around, self.looks, strict=True)], 2)
        low = boxes[:, :2]
        high = boxes[:, 2:]
        return torch.cat([(low + high) / 2, high - low, self.match(places, text_embeds).sigmoid() * sure], 1)

    def start_from(self, path: Path) -> None:
        """Take the weights of `demo.onnx`, whose normalizations are folded into its convolutions."""
        graph = onnx.load(path).graph
        values = {tensor.name: torch.from_numpy(numpy_helper.to_array(tensor).copy()) for tensor in graph.initializer}
        weights = [(values[node.input[1]], values[node.input[2]]) for node in graph.node if node.op_type == "Conv"]
        order: list[nn.Conv2d] = []
        convs = [module for module in self.modules() if isinstance(module, nn.Conv2d)]
        hooks = [module.register_forward_hook(lambda module, *_: order.append(module)) for module in convs]
        blocks = [module for module in self.modules() if isinstance(module, nn.Sequential)]
        norms = {module[0]: module[1] for module in blocks if isinstance(module[1], nn.BatchNorm2d)}
        with torch.no_grad():
            self.eval().detect(self.seen(torch.zeros(1, 3, HEIGHT, WIDTH)))
            for layer, (weight, bias) in zip(order, weights, strict=True):
                layer.weight.copy_(weight)
                if layer.bias is not None:
                    layer.bias.copy_(bias)
                else:
                    norms[layer].bias.copy_(bias)
                    norms[layer].eps = 0.0
        for hook in hooks:
            hook.remove()


class CropTower(nn.Module):
    """The embedding of a crop of one object."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(conv(3, 16, 3, 2), conv(16, 32, 3, 2), Residual(32), conv(32, 64, 3, 2))
        self.out = nn.Linear(64 * 4, SIZE)

    def forward(self, images: Tensor) -> Tensor:
        """Return (N, 64) of any length; the crop's four quarters are seen apart."""
        return self.out(functional.avg_pool2d(self.body(images), 4).flatten(1))
