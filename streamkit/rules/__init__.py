"""Rules: expressions over what is seen, what lasts and what is told; no stages. docs/rules.md has the language.

`syntax.py` makes a tree of a text, `language.py` gives its names a meaning and evaluates it plainly, `holding.py` says
when what is true is told, `schedule.py` when anything is told at all.
"""
