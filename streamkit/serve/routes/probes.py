# SPDX-License-Identifier: Apache-2.0
"""Probes and metrics for supervisors and Prometheus, at the root of the server."""

from __future__ import annotations

from fastapi import FastAPI
from fastapi.responses import Response
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from streamkit.serve.engine import ServeEngine
from streamkit.serve.metrics import VisibleMetrics, registry
from streamkit.serve.routes.common import reply


def add_probes(app: FastAPI, engine: ServeEngine) -> None:
    """Add the probes and the metrics."""
    metrics_of = registry(engine)

    @app.get("/live", tags=["probes"], response_model=dict[str, bool])
    def live() -> Response:
        """Liveness: whether this process responds; a supervisor restarts it otherwise."""
        return reply({"live": True})

    @app.get("/ready", tags=["probes"], response_model=dict[str, bool], responses={503: {"model": dict[str, bool]}})
    def ready() -> Response:
        """Readiness: whether every stage is open and frames are accepted; 503 before that and while stopping."""
        return reply({"ready": engine.ready}, 200 if engine.ready else 503)

    @app.get(
        "/metrics",
        tags=["probes"],
        response_class=Response,
        responses={200: {"content": {"text/plain": {}}, "description": "Prometheus' text format"}},
    )
    def metrics() -> Response:
        """Metrics for Prometheus; those of visible cameras only for who may see some camera groups."""
        text = generate_latest(VisibleMetrics(engine, metrics_of))
        return Response(text, headers={"content-type": CONTENT_TYPE_LATEST})
