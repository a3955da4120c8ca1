"""The plain references of queries with masks or keypoints find the objects that the families read."""

import numpy as np
import pytest

from streamkit.models.families import ReadOptions, begin_table, family
from streamkit.models.families.base import PlainImage

SIZE = (96, 64)


def outputs_of(name):
    rng = np.random.default_rng(5)
    boxes = rng.uniform(0.3, 0.6, (20, 4))
    if name == "detr_seg":
        return {"dets": boxes, "labels": rng.normal(0, 2, (20, 3)), "masks": rng.normal(0, 2, (20, 16, 24))}
    if name == "mask_queries":
        maps = rng.normal(0, 2, (20, 16, 24))
        return {"class_queries_logits": rng.normal(0, 3, (20, 4)), "masks_queries_logits": maps}
    if name == "rfdetr_pose":
        return {"dets": boxes, "labels": rng.normal(0, 2, (20, 3)), "keypoints": rng.normal(0.4, 0.3, (20, 12, 8))}
    scores = np.sort(rng.random(20))[::-1]
    return {"scores": scores, "labels": rng.integers(0, 3, 20), "keypoints": rng.uniform(5, 60, (20, 4, 2))}


@pytest.mark.parametrize("name", ["detr_seg", "mask_queries", "rfdetr_pose", "detrpose"])
def test_a_reference_finds_the_same_objects(name):
    outputs = outputs_of(name)
    rows = family(name).reference_rows(PlainImage(outputs, SIZE, SIZE, 3))
    rows = rows[rows[:, 4] >= 0.2]
    batch = {key: array[None] if array.dtype.kind == "i" else np.float32(array)[None] for key, array in outputs.items()}
    options = ReadOptions(np.full(3, 0.2, np.float32))
    geometry = np.float32([[1, 1, 0, 0]])
    table = begin_table(family(name), batch, geometry, np.array([SIZE]), SIZE, options, tuple("abc"))[0]()[0]
    assert len(table) == len(rows) > 3
    rows = rows[np.argsort(-rows[:, 4], kind="stable")]
    np.testing.assert_allclose(table.score, rows[:, 4], atol=1e-4)
    assert table.class_id.tolist() == rows[:, 5].astype(int).tolist()
    np.testing.assert_allclose(table.xyxy, np.clip(rows[:, :4], 0, (*SIZE, *SIZE)), atol=1e-2)
    if "keypoints" in table.extra:
        np.testing.assert_allclose(table.extra["keypoints"].reshape(len(table), -1), rows[:, 6:], atol=1e-2)
