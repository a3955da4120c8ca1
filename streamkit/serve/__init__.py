# SPDX-License-Identifier: Apache-2.0
"""`streamkit serve`: an HTTP API, metrics and a web page for a running pipeline.

`engine` is what the API may do with the pipeline; `app` is the API, protected by `token` and `guard`; `live` serves the
images of `runtime/preview/`; `metrics` serves Prometheus; `server` runs it all beside the pipeline.
"""
