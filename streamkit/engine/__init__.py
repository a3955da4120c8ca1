# SPDX-License-Identifier: Apache-2.0
"""Fused convolutions on a GPU: the parts of a network that cuDNN runs in f16, beside ONNX Runtime, which runs the rest.

`graph` reads a simplified ONNX network, `operators` recognizes what the engine computes, `partition` cuts the network
into segments, and `lowering` turns a segment into a `program`: a list of steps on NHWC buffers in one block of memory.
`reference` runs a program in NumPy, `device` on a GPU.
"""
