"""Label lists that a card may name instead of listing the classes."""

from __future__ import annotations

_COCO = """
person, bicycle, car, motorcycle, airplane, bus, train, truck, boat, traffic light, fire hydrant, stop sign,
parking meter, bench, bird, cat, dog, horse, sheep, cow, elephant, bear, zebra, giraffe, backpack, umbrella, handbag,
tie, suitcase, frisbee, skis, snowboard, sports ball, kite, baseball bat, baseball glove, skateboard, surfboard,
tennis racket, bottle, wine glass, cup, fork, knife, spoon, bowl, banana, apple, sandwich, orange, broccoli, carrot,
hot dog, pizza, donut, cake, chair, couch, potted plant, bed, dining table, toilet, tv, laptop, mouse, remote,
keyboard, cell phone, microwave, oven, toaster, sink, refrigerator, book, clock, vase, scissors, teddy bear,
hair drier, toothbrush
"""

_VOC = """
aeroplane, bicycle, bird, boat, bottle, bus, car, cat, chair, cow, diningtable, dog, horse, motorbike, person,
pottedplant, sheep, sofa, train, tvmonitor
"""


def _names(text: str) -> tuple[str, ...]:
    return tuple(" ".join(name.split()) for name in text.split(","))


KNOWN: dict[str, tuple[str, ...]] = {
    "coco": _names(_COCO),
    "voc": _names(_VOC),
    "voc_segmentation": ("background", *_names(_VOC)),
    "face": ("face",),
    "person": ("person",),
}
"""Label lists by name. `coco` holds COCO's 80 detection classes in the order that networks are trained on."""
