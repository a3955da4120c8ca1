"""Input and output files other than video."""
