"""Stages that send records out of the process."""
