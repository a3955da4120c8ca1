"""Who crosses a line, stays in a zone, goes which way and how fast: functions and state on flat arrays, no stages.

A batch becomes rounds (`rounds.py`): one frame of each source, all their tracked objects in common arrays. What is
remembered lies in arrays as well, a row for each track of each source (`memory.py`): a round of 64 sources costs as
many NumPy calls as one of a single source. docs/analytics.md says what is counted, and when.
"""
