"""Stages that draw, encode, stream, record and save images."""
