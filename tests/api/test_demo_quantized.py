"""`llmfw serve demo --quantization` answers, and says what it is."""

from __future__ import annotations

import httpx
import pytest

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
