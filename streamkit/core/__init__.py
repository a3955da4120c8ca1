# SPDX-License-Identifier: Apache-2.0
"""Frames, detections, the stage contract, options, units, records, errors, and other parts that every layer uses."""
