"""Measures the accuracy of a pipeline on labelled video: `streamkit eval`."""
