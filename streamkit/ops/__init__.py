"""Pure functions on arrays, the same on host and device.

Each takes NumPy or CuPy arrays and answers with the same kind; which one it was given decides what runs. A CUDA kernel
is a file in `cuda/` with a NumPy twin beside its caller, and the twin is what tests compare it with.
"""
