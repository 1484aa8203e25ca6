"""The request field `deadline_ms`."""

from __future__ import annotations

from typing import Annotated, ClassVar

import msgspec

from llmfw.core import RequestField

MAX_MS = 24 * 3600 * 1000


class Deadline(RequestField):
    """Milliseconds from the request's arrival in the engine until the client wants the whole answer.

    The policy `edf` orders requests by deadline. A request that misses its deadline runs on; only the field
    `timeout` ends requests.
    """

    conformance: ClassVar = {"accepted": [1, 250, MAX_MS], "refused": [0, -1, MAX_MS + 1, 1.5, "250", True]}
    value_type = Annotated[int, msgspec.Meta(ge=1, le=MAX_MS)]
