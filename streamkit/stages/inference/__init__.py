# SPDX-License-Identifier: Apache-2.0
"""Stages that run ONNX models, and the parts that compose them."""
