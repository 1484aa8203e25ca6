"""The endpoints of batches, and the task that each needs. Imported by the command line, too."""

from __future__ import annotations

from collections.abc import Mapping

TASKS: Mapping[str, str] = {
    "/v1/chat/completions": "generate",
    "/v1/completions": "generate",
    "/v1/embeddings": "embed",
    "/v1/responses": "generate",
}
"""Path of an endpoint → task of the engine that answers its requests."""

SUPPORTED = ", ".join(TASKS)
