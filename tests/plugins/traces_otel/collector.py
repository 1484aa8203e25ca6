"""A collector of OpenTelemetry for tests: takes traces by OTLP over HTTP, and decodes them."""

from __future__ import annotations

import gzip
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from ...doubles.scripted_server import STOPS_WITHIN_S


class Collector:
    """What has arrived.

    Attributes:
        url: URL of the collector.
        status: status of the next answers.
        spans: the spans, as protobuf messages.
        services: names of the services that sent them.
        paths: paths of all requests.
    """

    def __init__(self, url: str) -> None:
        self.url = url
        self.status = 200
        self.spans: list[Any] = []
        self.services: set[str] = set()
        self.paths: list[str] = []

    def named(self, name: str) -> list[Any]:
        """Return the spans of a name."""
        return [span for span in self.spans if span.name == name]

    def take(self, body: bytes) -> None:
        """Decode a message."""
        for group in ExportTraceServiceRequest.FromString(body).resource_spans:
            attributes = values(group.resource.attributes)
            self.services.add(attributes["service.name"])
            self.spans += [span for scope in group.scope_spans for span in scope.spans]


def values(attributes: Any) -> dict[str, Any]:
    """Return attributes as plain values."""
    found = {}
    for each in attributes:
        kind = each.value.WhichOneof("value")
        value = getattr(each.value, kind)
        found[each.key] = [item.string_value for item in value.values] if kind == "array_value" else value
    return found


@contextmanager
def collecting() -> Iterator[Collector]:
    """Run a collector until the block ends."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            if self.headers.get("content-encoding") == "gzip":
                body = gzip.decompress(body)
            collector.paths.append(self.path)
            if collector.status == 200:
                collector.take(body)
            self.send_response(collector.status)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    collector = Collector(f"http://127.0.0.1:{server.server_port}")
    thread = threading.Thread(target=server.serve_forever, args=(STOPS_WITHIN_S,))
    thread.start()
    try:
        yield collector
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
