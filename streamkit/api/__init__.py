"""Pipelines in a Python loop."""
