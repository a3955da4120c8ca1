"""Rules: conditions over detections, tracks and events, and their timing; no stages.

`syntax.py` parses a text, `language.py` types it and evaluates a single rule, `kernel.py` evaluates many rules at once,
`debounce.py` determines when a condition is raised and cleared, `schedule.py` when it is active.
docs/rule-language.md describes the language.
"""
