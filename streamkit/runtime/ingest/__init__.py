"""Sources: reader threads, reconnection, batching, pacing, packet buffers, and fault injection."""
