import pytest
import torch
from llmfw_openai_gpt.adapter import OpenAIGPTAdapter

from llmfw.core.testing import ModelAdapterTests


class TestOpenAIGPT(ModelAdapterTests):
    @pytest.fixture
    def adapter(self):
        return OpenAIGPTAdapter


def test_layers_are_numbered_in_order():
    transformers = pytest.importorskip("transformers")
    config = transformers.OpenAIGPTConfig(n_layer=3, n_embd=32, n_head=2, vocab_size=40, n_positions=16)
    model = transformers.OpenAIGPTLMHeadModel(config).eval()
    called = []

    def attend(module, query, key, value, attention_mask, **options):
        called.append(module.layer_idx)
        assert query.shape == key.shape == value.shape == (1, 2, 5, 16)
        assert options["scaling"] is None
        return value.transpose(1, 2)

    OpenAIGPTAdapter().adapt(model, attend)
    with torch.inference_mode():
        model(torch.arange(5)[None])
    assert called == [0, 1, 2]
