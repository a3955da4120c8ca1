"""Measures the accuracy of a pipeline on labelled video: `run.py eval`."""
