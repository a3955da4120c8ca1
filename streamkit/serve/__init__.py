"""`run.py serve`: an HTTP API, metrics and a web page on top of a running pipeline.

`preview` taps the graph's ends and fills the `gallery`; `engine` is what the API may do with the pipeline; `app` is the
API, guarded by `token` and `guard`; `metrics` is what Prometheus reads; `server` runs it all beside the pipeline.
"""
