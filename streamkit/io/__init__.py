"""Files that a pipeline reads and writes beside video."""
