# SPDX-License-Identifier: Apache-2.0
"""Rules: conditions over detections, tracks and events, and their timing; no stages.

`syntax.py` parses a text, `language.py` types it, and `code.py` compiles it. `kernel.py` evaluates conditions and
determines when a rule is raised and cleared, `schedule.py` when it is active. `engine.py` runs the kernel on batches,
compiled by Numba, and `group.py` on the named facts of alarms, in plain Python.
docs/rule-language.md describes the language.
"""
