"""What `run.py serve` remembers over restarts: events with images, samples of metrics, and who changed what.

`serve_store` queues and writes, on its own thread; `database` is the SQLite file; `event_table`, `sample_table` and
`audit_table` hold the statements, and `media_links` finds the clip and the snapshot of an event.
"""
