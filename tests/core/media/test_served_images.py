"""From pixels to tokens through both processes: the one that prepares images, and the engine's."""

from __future__ import annotations

from pathlib import Path

import pytest

from llmfw.core.base.config import EngineConfig
from llmfw.core.base.errors import RequestError
from llmfw.core.base.image import Image
from llmfw.core.base.request import Request, SamplingParams
from llmfw.core.client.client import EngineClient
from llmfw.core.client.process import ProcessEngineClient
from llmfw.core.client.replicas.request_prefixes import prompt_prefixes
from llmfw.core.media.prompter import ImagePrompter
from llmfw.core.plugin.media_choice import media_processor_entry
from llmfw.core.plugin.plugins import load_plugins
from llmfw.plugins.media_transformers.processor import TransformersProcessor

from ..engine.generation.running import build_engine, generate
from ..engine.generation.tiny_vision import picture, save_vision_model

GREEDY = SamplingParams(temperature=0, max_tokens=8)


async def answer(client: EngineClient, prompter: ImagePrompter, name: str, images: list[Image]) -> Request:
    """Return the request of a prompt, with what came of it as its id's last part."""
    text = "see <|image_pad|> and <|image_pad|>"
    prompt = await prompter.prompt(text, images)
    request = Request(id=name, prompt=prompt.token_ids, sampling=GREEDY, media=prompt.spans)
    tokens = [token async for event in client.generate(request) for token in event.token_ids]
    assert len(tokens) == 8
    return Request(id=" ".join(map(str, tokens)), prompt=request.prompt, sampling=GREEDY, media=request.media)


@pytest.mark.long  # in short, test_seeing_model has the process that prepares images, and test_images the engine
async def test_images_cross_both_processes(tmp_path: Path) -> None:
    """Tokens are those of an engine in this process, and a router sees images as the prefix cache does."""
    folder = save_vision_model(tmp_path, "qwen3-vl")
    images = [picture(1, 160, 160), picture(2, 160, 80)]
    config = EngineConfig(model=str(folder), device="cpu", dtype="float32", log_level="error", grammar="none")
    client = ProcessEngineClient(config)
    await client.start()
    assert client.info.reads_images
    prompter = ImagePrompter(media_processor_entry(load_plugins().registry), str(folder))
    try:
        first = await answer(client, prompter, "a", images)
        other = await answer(client, prompter, "b", images[::-1])
        with pytest.raises(RequestError, match="2 times"):
            await prompter.prompt("see <|image_pad|><|image_pad|>", images[:1])
    finally:
        await prompter.close()
        await client.close()
    engine = build_engine(folder, context_length=1024)
    expected = TransformersProcessor(str(folder)).process("see <|image_pad|> and <|image_pad|>", images)
    assert (first.prompt, first.media) == (expected.token_ids, expected.spans)
    request = Request(id="c", prompt=expected.token_ids, sampling=GREEDY, media=expected.spans)
    (outcome,) = generate(engine, [request])
    assert " ".join(map(str, outcome.token_ids)) == first.id
    hashes, others = (list(prompt_prefixes(each, 16, {}).up_to(99)) for each in (first, other))
    assert hashes == list(prompt_prefixes(request, 16, {}).up_to(99))
    assert hashes[0] != others[0]
