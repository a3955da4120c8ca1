"""The networks of words: an image tower that finds what a text names, one for crops, and the text tower of both.

A text is `input_ids` (P, L) int64 of words and `attention_mask` (P, L): the text tower gives `text_embeds` (P, 64).
The detector takes `images` (N, 3, 384, 640) f32, RGB, 0..1, and `text_embeds` (1, P, 64) of length 1. Its output
`output0` (N, 4 + P, A) f32 is that of `demo_net`: box in input pixels, then a score from 0 to 1 for each text. The crop
tower takes `images` (N, 3, 64, 64) f32 and gives `image_embeds` (N, 64).
"""

from __future__ import annotations

from pathlib import Path

import onnx
import torch
from demo_net import HEIGHT, WIDTH, DemoNet, Loss, Residual, ciou, conv
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


class WordsNet(DemoNet):
    """`DemoNet` with an embedding for each place in place of class scores."""

    def __init__(self) -> None:
        super().__init__(classes=SIZE)
        for head in self.heads:
            nn.init.normal_(head.weight[4:], std=0.05)
            nn.init.zeros_(head.bias[4:])
        self.scale, self.bias = nn.Parameter(torch.tensor(10.0)), nn.Parameter(torch.tensor(-7.0))

    def start_from(self, path: Path) -> None:
        """Take the weights of `demo.onnx`, whose normalizations are folded into its convolutions, except the classes'.

        The first stage keeps them, and normalizations keep their statistics.
        """
        nodes = onnx.load(path).graph
        values = {one.name: torch.from_numpy(numpy_helper.to_array(one).copy()) for one in nodes.initializer}
        given = [(values[node.input[1]], values[node.input[2]]) for node in nodes.node if node.op_type == "Conv"]
        order: list[nn.Conv2d] = []
        convs = [one for one in self.modules() if isinstance(one, nn.Conv2d)]
        hooks = [one.register_forward_hook(lambda module, *_: order.append(module)) for one in convs]
        with torch.no_grad():
            self.eval().raw(torch.zeros(1, 3, HEIGHT, WIDTH))
            for hook in hooks:
                hook.remove()
            norms = {pair[0]: pair[1] for pair in self.modules() if isinstance(pair, nn.Sequential) and len(pair) == 3
                     and isinstance(pair[1], nn.BatchNorm2d)}  # fmt: skip
            for conv_, (weight, bias) in zip(order, given, strict=True):
                if conv_.bias is None:
                    conv_.weight.copy_(weight)
                    norms[conv_].bias.copy_(bias)
                    norms[conv_].eps = 0.0
                else:
                    conv_.weight[:4] = weight[:4]
                    conv_.bias[:4] = bias[:4]
        self.stage4.requires_grad_(False)

    def train(self, mode: bool = True) -> WordsNet:
        """Normalizations always use their statistics."""
        super().train(mode)
        for one in self.modules():
            if isinstance(one, nn.BatchNorm2d):
                one.eval()
        return self

    def logits(self, places: Tensor, texts: Tensor) -> Tensor:
        """Return the logit of each text (N, P, A) from embeddings of places (N, 64, A) and of texts (1, P, 64)."""
        unit = places / places.norm(dim=1, keepdim=True).clamp(min=1e-6)
        return torch.matmul(texts, unit) * self.scale + self.bias

    def forward(self, images: Tensor, text_embeds: Tensor) -> Tensor:
        """The decoded output, (N, 4 + P, A)."""
        far, places = self.raw(images)
        low, high = self.grid - far[:, :2], self.grid + far[:, 2:]
        return torch.cat([(low + high) / 2, high - low, self.logits(places, text_embeds).sigmoid()], 1)


class CropTower(nn.Module):
    """The embedding of a crop of one object."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(conv(3, 16, 3, 2), conv(16, 32, 3, 2), Residual(32), conv(32, 64, 3, 2), Residual(64))
        self.out = nn.Linear(64 * 4, SIZE)

    def forward(self, images: Tensor) -> Tensor:
        """Return (N, 64) of any length; the crop's four quarters are seen apart."""
        return self.out(functional.avg_pool2d(self.body(images), 4).flatten(1))


class TextLoss(Loss):
    """The loss of `demo_net`, where several texts may be true of one object.

    Args:
        net: the network.
        true: (P, P) f32; row p has 1 for each text that is true of an object whose most exact text is p.
    """

    def __init__(self, net: WordsNet, true: Tensor) -> None:
        super().__init__(net)
        self.true = true

    def __call__(self, far: Tensor, logits: Tensor, boxes: Tensor, labels: Tensor) -> Tensor:
        """The loss of a batch; `labels` are the most exact texts."""
        far, logits = far.transpose(1, 2), logits.transpose(1, 2)
        guess = torch.cat([self.grid - far[..., :2], self.grid + far[..., 2:]], -1)
        owner, quality, spare = self._assign(guess.detach(), logits.detach().sigmoid(), boxes, labels)
        taken, index = owner >= 0, owner.clamp(min=0)
        target = self.true[labels.gather(1, index).clamp(min=0)] * (quality * taken)[..., None]
        weight = (taken | ~spare)[..., None].float()
        score = functional.binary_cross_entropy_with_logits(logits, target, weight, reduction="sum")
        aim = boxes.gather(1, index[..., None].expand(-1, -1, 4))
        box = ((1 - ciou(guess[taken], aim[taken])) * quality[taken]).sum() / quality[taken].sum().clamp(min=1.0)
        return score / target.sum().clamp(min=1.0) + 3.0 * box
