"""`llmfw serve demo --quantization` and `LLM(quantization=…)` answer, and say what they are."""

from __future__ import annotations

import httpx
import pytest

from llmfw.api.llm import LLM
from llmfw.core.base.errors import ConfigError
from llmfw.core.base.request import SamplingParams

from .app.test_serve import LLMFW, READY, running, sdk_of

pytestmark = pytest.mark.slow
CAPITAL = {"role": "user", "content": "What is the capital of France?"}


@pytest.mark.long
def test_the_quantized_demo_answers_correctly() -> None:
    options = ("--quantization", "int8", "--port", "0", "--max-total-tokens", "4096")
    with running(*LLMFW, "demo", *options) as process:
        process.wait_for(READY, timeout_s=300)
        assert "quantization=int8" in process.log
        info = httpx.get(f"{process.url}/get_model_info", timeout=60).json()
        assert info["quantization"] == "int8"
        with sdk_of(process) as sdk:
            reply = sdk.chat.completions.create(
                model="demo",
                messages=[CAPITAL],  # type: ignore[list-item]
                temperature=0,
                max_tokens=40,
                timeout=300,
            )
        assert "Paris" in str(reply.choices[0].message.content)


def test_an_llm_is_quantized_by_its_scheme() -> None:
    with LLM("demo", max_total_tokens=1024, quantization="quantization_int/int8") as llm:
        [output] = llm.generate("The capital of France is", SamplingParams(temperature=0, max_tokens=4))
    assert "Paris" in output.text


def test_an_unknown_scheme_lists_the_known_ones() -> None:
    with pytest.raises(ConfigError, match="unknown quantization scheme 'int5'; known: int4, int8"):
        LLM("demo", quantization="int5")
