"""Containers and codecs: packets in, surfaces out, and back again.

uris ─► demux ─► decode: av_decoder (FFmpeg) | nv_decoder (NVDEC) ─► surfaces
"""
