"""The token sampler `torch` keeps the promises of its interface, whether or not it may wait for the device."""

from __future__ import annotations

import pytest
import torch

from llmfw.core.interfaces.token_sampler import TokenSampler
from llmfw.core.testing import TokenSamplerTests
from llmfw.plugins.sampling_torch.sampler import TorchSampler


class NeverWaits(TorchSampler):
    """Samples as on a GPU."""

    def __init__(self, vocab_size: int, device: torch.device, *, may_wait: bool) -> None:
        super().__init__(vocab_size, device, may_wait=False)


class TestTorchSampler(TokenSamplerTests):
    @pytest.fixture(params=[TorchSampler, NeverWaits])
    def token_sampler(self, request: pytest.FixtureRequest) -> type[TokenSampler]:
        kind: type[TokenSampler] = request.param
        return kind
