"""The bundled quantization schemes keep the promises of their interface, and are found by their names."""

from __future__ import annotations

import functools

import pytest
import torch

from llmfw.core import LinearLayer, QuantizationScheme, load_plugins
from llmfw.core.plugin.registry import Entry
from llmfw.core.testing import QuantizationSchemeTests

from ...doubles.six_bit_scheme import SixBit
from ...length import also

NAMES = ("int8", "int4")


@functools.cache
def found(name: str) -> Entry:
    """Return the scheme's entry: to load the plugins takes longer than most of the tests."""
    return load_plugins().registry.find("quantization_scheme", name)


def build(name: str) -> QuantizationScheme:
    entry = found(name)
    scheme: QuantizationScheme = entry.build(entry.load(), entry.build_options({}))
    return scheme


@pytest.mark.parametrize("name", NAMES, scope="class")
class TestBundled(QuantizationSchemeTests):
    @pytest.fixture
    def scheme(self, name: str) -> QuantizationScheme:
        return build(name)

    @pytest.mark.parametrize("dtype", [torch.bfloat16, *also([torch.float32, torch.float16])], ids=str)
    def test_layers_hold_no_other_memory(
        self, supported: QuantizationScheme, device: str, dtype: torch.dtype
    ) -> None:
        super().test_layers_hold_no_other_memory(supported, device, dtype)


class TestForeign(QuantizationSchemeTests):
    """The kit suits schemes with other formats, too."""

    @pytest.fixture
    def scheme(self) -> QuantizationScheme:
        return SixBit(SixBit.Options())


@pytest.mark.parametrize(("name", "bits"), [("int8", 8.5), ("int4", 4.5)])
def test_sizes_include_scales(name: str, bits: float) -> None:
    layer = LinearLayer("x", 640, 320, torch.bfloat16)
    assert build(name).num_bytes(layer) == 640 * 320 * bits / 8


def test_heads_have_eight_bits() -> None:
    head = LinearLayer("lm_head", 640, 320, torch.bfloat16, is_head=True)
    assert build("int4").num_bytes(head) == build("int8").num_bytes(head)
