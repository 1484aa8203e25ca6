"""The bundled media processor, held to the promises of the interface."""

from __future__ import annotations

from pathlib import Path

import pytest

from llmfw.core import MediaProcessor, ModelError
from llmfw.core.testing import MediaProcessorTests
from llmfw.plugins.media_transformers.processor import TransformersProcessor

from ...core.engine.generation.tiny_models import save_random_model
from ...core.engine.generation.tiny_vision import save_vision_model


@pytest.fixture(scope="module", params=["qwen3-vl", "llava", "idefics3", "gemma3", "smolvlm", "mistral3"])
def saved(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(save_vision_model(tmp_path_factory.mktemp("vision"), request.param))


class TestTransformersProcessor(MediaProcessorTests):
    @pytest.fixture
    def processor_class(self) -> type[MediaProcessor]:
        return TransformersProcessor

    @pytest.fixture
    def folder(self, saved: str) -> str:
        return saved


def test_text_models_have_no_processor(tmp_path: Path) -> None:
    folder = save_random_model(tmp_path, "LlamaConfig", {})
    with pytest.raises(ModelError, match="no processor of images"):
        TransformersProcessor(str(folder))
