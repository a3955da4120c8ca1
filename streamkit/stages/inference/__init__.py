"""Stages that run ONNX models, and the parts that compose them."""
