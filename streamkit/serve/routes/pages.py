# SPDX-License-Identifier: Apache-2.0
"""The web page."""

from __future__ import annotations

from pathlib import Path

from fastapi import FastAPI
from fastapi.responses import FileResponse, Response
from fastapi.staticfiles import StaticFiles

PAGE = Path(__file__).parents[1] / "page"


def add_pages(app: FastAPI) -> None:
    """The web page and the description of the API."""

    @app.get("/", include_in_schema=False)
    def index() -> Response:
        return FileResponse(PAGE / "index.html", headers={"cache-control": "no-cache"})

    @app.get("/docs", include_in_schema=False)
    def docs() -> Response:
        return FileResponse(PAGE / "docs.html", headers={"cache-control": "no-cache"})

    @app.get("/service-worker.js", include_in_schema=False)
    def service_worker() -> Response:
        return FileResponse(PAGE / "service-worker.js", headers={"cache-control": "no-cache"})

    app.mount("/page", StaticFiles(directory=PAGE), name="page")
