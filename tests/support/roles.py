"""Which role each request of the API needs: what a test compares with every route that there is."""

NOBODY, VIEWER, OPERATOR, ADMIN = "", "viewer", "operator", "admin"

NEEDS = {
    ("GET", "/live"): NOBODY,
    ("GET", "/ready"): NOBODY,
    ("GET", "/metrics"): NOBODY,
    ("GET", "/api/v1/session"): NOBODY,
    ("POST", "/api/v1/session"): NOBODY,
    ("DELETE", "/api/v1/session"): NOBODY,
    ("GET", "/api/v1/status"): NOBODY,
    ("GET", "/api/v1/sources"): NOBODY,
    ("GET", "/api/v1/stages"): NOBODY,
    ("GET", "/api/v1/alarms"): NOBODY,
    ("GET", "/api/v1/events"): NOBODY,
    ("GET", "/api/v1/sources/{id}/snapshot.jpg"): VIEWER,
    ("GET", "/api/v1/sources/{id}/live.mjpg"): VIEWER,
    ("GET", "/api/v1/events/{number}/image.jpg"): VIEWER,
    ("GET", "/api/v1/sessions"): VIEWER,
    ("DELETE", "/api/v1/sessions/{id}"): VIEWER,
    ("POST", "/api/v1/sources"): OPERATOR,
    ("PUT", "/api/v1/sources/{id}"): OPERATOR,
    ("DELETE", "/api/v1/sources/{id}"): OPERATOR,
    ("POST", "/api/v1/sources/{id}/pause"): OPERATOR,
    ("POST", "/api/v1/sources/{id}/resume"): OPERATOR,
    ("POST", "/api/v1/sources/{id}/record"): OPERATOR,
    ("POST", "/api/v1/sources/test"): OPERATOR,
    ("GET", "/api/v1/source-options"): OPERATOR,
    ("GET", "/api/v1/sources.csv"): OPERATOR,
    ("POST", "/api/v1/sources.csv"): OPERATOR,
    ("PATCH", "/api/v1/stages/{id}"): OPERATOR,
    ("GET", "/api/v1/tokens"): ADMIN,
    ("POST", "/api/v1/tokens"): ADMIN,
    ("DELETE", "/api/v1/tokens/{name}"): ADMIN,
    ("GET", "/api/v1/audit"): ADMIN,
}
"""The least role for each method and path of the OpenAPI document."""
