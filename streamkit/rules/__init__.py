"""Rules: conditions over detections, tracks and events, and their timing; no stages.

`syntax.py` parses a text, `typecheck.py` gives its names a meaning, `kernel.py` evaluates many rules at once,
`language.py` evaluates one plainly, `debounce.py` determines when a condition is raised and cleared, `schedule.py` when
it is active. docs/rule-language.md describes the language.
"""
