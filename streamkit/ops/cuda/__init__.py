"""CUDA kernels, a file each, and `load`, which compiles them."""
