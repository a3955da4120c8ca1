"""CUDA kernels, one file each, and `load`, which compiles them."""
