"""`run.py serve`: an HTTP API, metrics and a web page for a running pipeline.

`preview` taps the graph's outputs and fills the `gallery`; `engine` is what the API may do with the pipeline; `app` is
the API, protected by `token` and `guard`; `metrics` serves Prometheus; `server` runs it all beside the pipeline.
"""
