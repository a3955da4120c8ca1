"""Stage runners, lanes, channels, isolation, and CUDA streams and events."""
