# SPDX-License-Identifier: Apache-2.0
"""Several processes: workers, partition of sources, frame IPC, and merged reports."""
