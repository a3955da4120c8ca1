# SPDX-License-Identifier: Apache-2.0
"""What `streamkit serve` remembers over restarts: events with images, and samples of metrics.

`serve_store` queues and writes, on its own thread; `database` is the SQLite file; `event_table`, `sample_table`
and `count_table` hold the statements, and `media_links` finds the clip and the snapshot of an event.
"""
