"""The bundled formats keep the promises of the interface."""

from __future__ import annotations

import pytest

from llmfw.core import QuantizedFormat
from llmfw.core.testing import QuantizedFormatTests

from .folders import registry


class TestBundled(QuantizedFormatTests):
    @pytest.fixture(params=registry().entries("quantized_format"), ids=lambda entry: entry.name)
    def quantized_format(self, request: pytest.FixtureRequest) -> type[QuantizedFormat]:
        kind: type[QuantizedFormat] = request.param.load()
        return kind
