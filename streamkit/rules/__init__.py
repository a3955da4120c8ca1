# SPDX-License-Identifier: Apache-2.0
"""Rules: conditions over detections, tracks and events, and their timing; no stages.

`syntax.py` parses a text, `language.py` types it, and `conditions.py` evaluates it on columns of facts. `group.py`
determines when a rule is raised and cleared, `schedule.py` when it is active. `engine.py` runs both on batches, and
`FactRule` on the named facts of alarms.
docs/rule-language.md describes the language.
"""
