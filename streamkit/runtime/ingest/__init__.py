# SPDX-License-Identifier: Apache-2.0
"""Sources: reader threads, reconnection, batching, pacing, packet buffers, and fault injection."""
