"""Several processes: workers, partition of sources, frame IPC, and merged reports."""
