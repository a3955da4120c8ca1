"""Write mmpose.npz: where MMPose 1.3.2 puts the keypoints of heat maps, and the scores of SimCC outputs.

Run it with torch, numpy and opencv-python installed, and the folder of MMPose's sources: `python mmpose.py FOLDER`. No
network with weights is needed: the outputs are random, `heatmaps` (2, 5, 16, 12), `x` (2, 5, 96) and `y` (2, 5, 128)
float16 for an input of `size` 48 x 64.

The file also holds `keypoints` (2, 5, 2) of the heat maps in pixels of the input, counted from the center of the first
one, and `scores` (2, 5) of the SimCC outputs.
"""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import numpy as np

SIZE = (48, 64)


def authors_module(name: str) -> ModuleType:
    """Load a module of the codecs alone: MMPose as a whole needs mmcv."""
    path = Path(sys.argv[1]) / "mmpose" / "codecs" / "utils" / f"{name}.py"
    full = f"codecs.{name}"
    spec = importlib.util.spec_from_file_location(full, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[full] = module
    spec.loader.exec_module(module)
    return module


def main() -> None:
    """Decode random outputs as `MSRAHeatmap` and `SimCCLabel` do."""
    sys.modules["codecs"] = ModuleType("codecs")
    sys.modules["codecs"].__path__ = []
    reading = authors_module("post_processing")
    refinement = authors_module("refinement")
    rng = np.random.default_rng(6)
    heatmaps = rng.random((2, 5, 16, 12)).astype(np.float16)
    heatmaps[0, 0, 0, 0] = 1
    heatmaps[0, 1, 7, 11] = 1
    heatmaps[1, 2, 1, 1] = 1
    x, y = (rng.random((2, 5, 2 * side)).astype(np.float16) for side in SIZE)
    keypoints = []
    for maps in heatmaps.astype(np.float32):
        places = reading.get_heatmap_maximum(maps)[0][None]
        places = refinement.refine_keypoints(places, maps)
        keypoints.append(places[0] * (np.array(SIZE) / (12, 16)))
    scores = reading.get_simcc_maximum(x.astype(np.float32), y.astype(np.float32))[1]
    np.savez_compressed(
        Path(__file__).with_suffix(".npz"),
        heatmaps=heatmaps,
        x=x,
        y=y,
        size=SIZE,
        keypoints=np.array(keypoints, np.float32),
        scores=scores,
    )


main()
