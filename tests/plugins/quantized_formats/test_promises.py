"""The bundled formats keep the promises of the interface."""

from __future__ import annotations

import pytest

from llmfw.core import QuantizedFormat
from llmfw.core.testing import QuantizedFormatTests

from .folders import registry
from .variants import Make, variants

VARIANTS = variants()


class TestBundled(QuantizedFormatTests):
    @pytest.fixture(params=registry().entries("quantized_format"), ids=lambda entry: entry.name)
    def quantized_format(self, request: pytest.FixtureRequest) -> type[QuantizedFormat]:
        kind: type[QuantizedFormat] = request.param.load()
        return kind


@pytest.mark.parametrize("variant", VARIANTS)
class TestVariants(QuantizedFormatTests):
    @pytest.fixture
    def quantized_format(self, variant: str) -> type[QuantizedFormat]:
        kind: type[QuantizedFormat] = registry().find("quantized_format", variant.partition(":")[0]).load()
        return kind

    @pytest.fixture
    def example(self, variant: str) -> Make:
        return VARIANTS[variant]
