# SPDX-License-Identifier: Apache-2.0
"""Pure functions on arrays, with the same interface on host and device.

Each takes NumPy or CuPy arrays and returns the same kind; the argument's type selects the implementation. A CUDA kernel
is a file in `cuda/` with a NumPy equivalent beside its caller, which tests compare it with.
"""
