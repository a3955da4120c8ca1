# SPDX-License-Identifier: Apache-2.0
"""Stage runners, lanes, channels, isolation, and CUDA streams and events."""
