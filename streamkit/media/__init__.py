# SPDX-License-Identifier: Apache-2.0
"""Containers and codecs: packets to surfaces, and surfaces to packets.

uris ─► demux ─► decode: av_decoder (FFmpeg) | nv_decoder (NVDEC) ─► surfaces
"""
