"""The names of the families of networks."""

DETECTORS = ("yolox", "yolov5", "yolov8", "yolo_e2e", "detr", "ssd", "yunet")
VECTORS = ("logits", "probabilities", "embedding")
"""Families that answer with a vector a picture: `answers.Vector`."""
POSES = ("movenet", "yolov8_pose")
MASKS = ("yolov8_seg", "semantic")
FAMILIES = (*DETECTORS, *POSES, *MASKS, *VECTORS)
