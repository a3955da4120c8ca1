# SPDX-License-Identifier: Apache-2.0
"""CUDA kernels, one file each, and `load`, which compiles them."""
