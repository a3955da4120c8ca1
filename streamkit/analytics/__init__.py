# SPDX-License-Identifier: Apache-2.0
"""Line crossing, zones, direction, speed and heat maps as functions and state on flat arrays; no stages.

`per_source_steps.py` splits a batch into steps of one frame per source, with all tracked objects in common arrays.
`track_store.py` keeps state in arrays too, one row per track of each source, so a step of 64 sources takes as many
NumPy calls as a step of one. docs/analytics.md has the rules.
"""
