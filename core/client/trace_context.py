"""The W3C trace context of the HTTP request that is being handled, for observers."""

from __future__ import annotations

from contextvars import ContextVar

traceparent: ContextVar[str] = ContextVar("traceparent", default="")
"""Value of the request's header `traceparent`; empty if the header is missing or malformed."""
