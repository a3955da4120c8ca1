# SPDX-License-Identifier: Apache-2.0
"""Measures the accuracy of a pipeline on labeled video: `streamkit eval`."""
