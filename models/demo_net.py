"""The demo detector: a small anchor-free convolutional network, and the loss it is trained with.

Input `images` (N, 3, 384, 640) f32, RGB, 0..1. Output (N, 4 + classes, A) f32: center x, center y, width and height
in input pixels, then a score from 0 to 1 a class. A = 20160 places, on grids of stride 4, 8 and 16: the fine one is
for objects of a dozen pixels. A backbone of residual blocks, one top-down path (feature pyramid), one small head a
grid.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

WIDTH = 640
HEIGHT = 384
STRIDES = (4, 8, 16)


def conv(c_in: int, c_out: int, k: int = 3, stride: int = 1) -> nn.Sequential:
    """Convolution, batch norm, ReLU."""
    layer = nn.Conv2d(c_in, c_out, k, stride, k // 2, bias=False)
    return nn.Sequential(layer, nn.BatchNorm2d(c_out), nn.ReLU(inplace=True))


class Residual(nn.Module):
    """x + two convolutions through half the channels."""

    def __init__(self, c: int) -> None:
        super().__init__()
        self.body = nn.Sequential(conv(c, c // 2), conv(c // 2, c))

    def forward(self, x: Tensor) -> Tensor:
        """Same shape in and out."""
        return x + self.body(x)


class Context(nn.Module):
    """Lets a place see far around it: three max pools of 5 x 5 in a row, joined (SPPF)."""

    def __init__(self, c: int) -> None:
        super().__init__()
        self.into = conv(c, c // 2, 1)
        self.out = conv(c * 2, c, 1)

    def forward(self, x: Tensor) -> Tensor:
        """Same shape in and out."""
        seen = [self.into(x)]
        for _ in range(3):
            seen.append(functional.max_pool2d(seen[-1], 5, 1, 2))
        return self.out(torch.cat(seen, 1))


class DemoNet(nn.Module):
    """The network; `forward` gives the decoded output, `raw` the logits and distances that the loss needs."""

    grid: Tensor
    stride: Tensor

    def __init__(self, classes: int = 3, width: tuple[int, ...] = (16, 32, 64)) -> None:
        super().__init__()
        a, b, c = width
        self.classes = classes
        self.stage4 = nn.Sequential(conv(3, 16, 3, 2), conv(16, a, 3, 2), Residual(a))
        self.stage8 = nn.Sequential(conv(a, b, 3, 2), Residual(b), Residual(b))
        self.stage16 = nn.Sequential(conv(b, c, 3, 2), Residual(c), Residual(c), Residual(c), Context(c))
        self.down16 = conv(c, b, 1)
        self.down8 = conv(b, a, 1)
        self.side8 = conv(b, b, 1)
        self.side4 = conv(a, a, 1)
        self.mix8 = conv(b, b)
        self.trunks = nn.ModuleList([conv(a, 32), conv(b, b), conv(b, 64)])
        self.heads = nn.ModuleList([nn.Conv2d(n, 4 + classes, 1) for n in (32, b, 64)])
        for head in self.heads:
            nn.init.zeros_(head.bias)
            nn.init.constant_(head.bias[4:], -6.0)  # almost every place is empty
        rows = [torch.meshgrid(torch.arange(HEIGHT // s), torch.arange(WIDTH // s), indexing="ij") for s in STRIDES]
        grid = [(torch.stack([x, y], -1).view(-1, 2) + 0.5) * s for (y, x), s in zip(rows, STRIDES, strict=True)]
        self.register_buffer("grid", torch.cat(grid).T.contiguous().float(), persistent=False)
        stride = torch.cat([torch.full((len(g),), float(s)) for g, s in zip(grid, STRIDES, strict=True)])
        self.register_buffer("stride", stride, persistent=False)

    def raw(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """Pixels from each place to its box's left, top, right and bottom (N, 4, A), and class logits (N, C, A)."""
        x4 = self.stage4(images)
        x8 = self.stage8(x4)
        x16 = self.down16(self.stage16(x8))
        x8 = self.mix8(self.side8(x8) + functional.interpolate(x16, scale_factor=2.0))
        x4 = self.side4(x4) + functional.interpolate(self.down8(x8), scale_factor=2.0)
        levels = zip((x4, x8, x16), self.trunks, self.heads, strict=True)
        out = torch.cat([head(trunk(x)).flatten(2) for x, trunk, head in levels], 2)
        return functional.softplus(out[:, :4].float() + 1.0) * self.stride, out[:, 4:].float()

    def forward(self, images: Tensor) -> Tensor:
        """The decoded output, (N, 4 + classes, A)."""
        far, logits = self.raw(images)
        low = self.grid - far[:, :2]
        high = self.grid + far[:, 2:]
        return torch.cat([(low + high) / 2, high - low, logits.sigmoid()], 1)


def ciou(a: Tensor, b: Tensor, complete: bool = True) -> Tensor:
    """IoU of boxes (..., 4) x1 y1 x2 y2; `complete` also counts center distance and aspect (Zheng et al., 2020)."""
    side = (torch.minimum(a[..., 2:], b[..., 2:]) - torch.maximum(a[..., :2], b[..., :2])).clamp(min=0)
    inter = side.prod(-1)
    wh_a = (a[..., 2:] - a[..., :2]).clamp(min=1e-3)
    wh_b = (b[..., 2:] - b[..., :2]).clamp(min=1e-3)
    iou = inter / (wh_a.prod(-1) + wh_b.prod(-1) - inter + 1e-6)
    if not complete:
        return iou
    hull = torch.maximum(a[..., 2:], b[..., 2:]) - torch.minimum(a[..., :2], b[..., :2])
    center = ((a[..., :2] + a[..., 2:] - b[..., :2] - b[..., 2:]) ** 2).sum(-1) / 4
    aspect = 0.405 * (torch.atan(wh_a[..., 0] / wh_a[..., 1]) - torch.atan(wh_b[..., 0] / wh_b[..., 1])) ** 2
    with torch.no_grad():
        share = aspect / (1 - iou + aspect + 1e-6)
    return iou - center / ((hull**2).sum(-1) + 1e-6) - share * aspect


class Loss:
    """Task-aligned assignment (Feng et al., TOOD, 2021), binary cross entropy for classes, CIoU for boxes.

    Targets are `boxes` (N, M, 4) x1 y1 x2 y2 in input pixels, `labels` (N, M): a class, -1 for padding, -2 for an
    object that is ignored: places inside it that no object claims teach nothing.
    """

    def __init__(self, net: DemoNet, top: int = 10, alpha: float = 0.5, beta: float = 6.0) -> None:
        self.grid = net.grid.T
        self.stride = net.stride
        self.classes = net.classes
        self.top = top
        self.alpha = alpha
        self.beta = beta

    def __call__(self, far: Tensor, logits: Tensor, boxes: Tensor, labels: Tensor) -> Tensor:
        """The loss of a batch, one number, from what `DemoNet.raw` gave."""
        # (N, A, 4), (N, A, C)
        far = far.transpose(1, 2)
        logits = logits.transpose(1, 2)
        guess = torch.cat([self.grid - far[..., :2], self.grid + far[..., 2:]], -1)
        owner, quality, spare = self._assign(guess.detach(), logits.detach().sigmoid(), boxes, labels)
        taken = owner >= 0
        index = owner.clamp(min=0)
        target = functional.one_hot(labels.gather(1, index).clamp(min=0), self.classes) * (quality * taken)[..., None]
        weight = (taken | ~spare)[..., None].float()
        norm = target.sum().clamp(min=1.0)
        score_loss = functional.binary_cross_entropy_with_logits(logits, target, weight, reduction="sum") / norm
        aim = boxes.gather(1, index[..., None].expand(-1, -1, 4))
        box_loss = ((1 - ciou(guess[taken], aim[taken])) * quality[taken]).sum() / norm
        return score_loss + 3.0 * box_loss

    @torch.no_grad()
    def _assign(self, guess: Tensor, scores: Tensor, boxes: Tensor, labels: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """For each place, (N, A): its object or -1, its target score, whether it lies in an ignored object."""
        center = (boxes[..., :2] + boxes[..., 2:]) / 2
        half = (boxes[..., 2:] - boxes[..., :2]) / 2
        off = (self.grid - center[:, :, None]).abs()  # (N, M, A, 2)
        inside = (off <= half[:, :, None]).all(-1)
        spare = (inside & (labels == -2)[..., None]).any(1)
        wide = torch.maximum(half[:, :, None], self.stride[:, None])  # a small object still has places
        allowed = (off <= wide).all(-1) & (labels >= 0)[..., None]
        iou = ciou(guess[:, None], boxes[:, :, None], complete=False)
        index = labels.clamp(min=0)[..., None].expand(-1, -1, scores.shape[1])
        fit = scores.transpose(1, 2).gather(1, index) ** self.alpha * iou**self.beta + 1e-9 * (1 - off.sum(-1) / 1024)
        fit = torch.where(allowed, fit, torch.zeros_like(fit))
        best = fit.topk(self.top, dim=2)
        chosen = torch.zeros_like(allowed).scatter_(2, best.indices, best.values > 0)
        fit = fit * chosen
        owner = torch.where(chosen, iou + 1e-6, torch.zeros_like(iou)).max(1)
        owner_index = owner.indices[:, None]
        fit_of_owner = fit.gather(1, owner_index)[:, 0]
        keep = torch.zeros_like(chosen).scatter_(1, owner_index, (owner.values > 0)[:, None])
        peak = torch.where(keep, fit, torch.zeros_like(fit)).amax(2).clamp(min=1e-12)  # (N, M)
        reach = torch.where(keep, iou, torch.zeros_like(iou)).amax(2)
        quality = fit_of_owner * (reach / peak).gather(1, owner.indices)
        return torch.where(owner.values > 0, owner.indices, torch.full_like(owner.indices, -1)), quality, spare


def export(net: DemoNet, path: str) -> None:
    """Write the network as ONNX opset 17 with a dynamic batch."""
    net = net.eval().float().cpu()
    torch.onnx.export(
        net,
        (torch.zeros(1, 3, HEIGHT, WIDTH),),
        path,
        input_names=["images"],
        output_names=["output0"],
        dynamic_axes={"images": {0: "N"}, "output0": {0: "N"}},
        opset_version=17,
        dynamo=False,
    )
