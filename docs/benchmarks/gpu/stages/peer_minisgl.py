"""mini-sglang with the same model, prompts and lengths, where its source lies in .peers/mini-sglang.

Its offline class is driven as its own benchmark does it. It needs FlashInfer and a GPU; its compiled helpers are built
when it is imported.
"""

from __future__ import annotations

import json
import random
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from lines import Line
from task import ROOT, Task
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

SOURCE = ROOT / ".peers" / "mini-sglang" / "python"

MOST_CAPTURED = 256
"""Its own most; graphs of 512 sequences overflow its 128 MiB of scratch memory for attention, as one did on an H200."""


def measure(task: Task) -> Iterator[Line]:
    """Measure the batches of `decode`, after a shorter run that does not count."""
    if not SOURCE.is_dir():
        yield Line("mini-sglang", note=f"not installed: no {SOURCE.relative_to(ROOT)}")
        return
    if task.sizes.device != "cuda":
        yield Line("mini-sglang", note="left out: it needs a GPU")
        return
    sys.path.insert(0, str(SOURCE))
    from minisgl.core import SamplingParams
    from minisgl.llm import LLM

    sizes = task.sizes
    llm = LLM(
        str(model_with_tokenizer(task)),
        use_dummy_weight=True,
        attention_backend="fi",
        max_running_req=sizes.most_running,
        cuda_graph_max_bs=MOST_CAPTURED,
        max_seq_len_override=sizes.prompt + sizes.output + 1,
        num_page_override=sizes.kv_tokens,
    )
    clock = Clock(llm)
    rng = random.Random(0)

    def run(batch: int, output: int) -> float:
        shared = [rng.randrange(2, 3000) for _ in range(sizes.shared)]
        own = sizes.prompt - sizes.shared
        prompts = [[*shared, *(rng.randrange(2, 3000) for _ in range(own))] for _ in range(batch)]
        llm.generate(prompts, SamplingParams(temperature=0.0, ignore_eos=True, max_tokens=output))
        return clock.seconds

    for batch in dict.fromkeys(sizes.batches):
        run(batch, 4)
        seconds = run(batch, sizes.output)
        yield Line(
            f"mini-sglang, {batch}",
            tok_s=batch * sizes.output / seconds,
            ms=1000 * seconds,
            note=f"{sizes.prompt} in, {sizes.output} out",
        )


class Clock:
    """Measures an engine's own loop, without the detokenization that its `generate` ends with; ours has none either.

    Args:
        llm: an `LLM` of mini-sglang.
    """

    def __init__(self, llm: Any) -> None:
        self.seconds = 0.0
        self._run = llm.run_forever
        llm.run_forever = self._timed

    def _timed(self) -> None:
        begun = time.perf_counter()
        try:
            self._run()  # ends with an exception
        finally:
            self.seconds = time.perf_counter() - begun


def model_with_tokenizer(task: Task) -> Path:
    """Return a folder as `task.model`, with a tokenizer of bytes and made-up tokens, which mini-sglang asks for."""
    folder = task.work / "model_with_tokenizer"
    folder.mkdir(exist_ok=True)
    config = task.sizes.model | {"torch_dtype": task.sizes.dtype}
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    tokens = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokens += [f"t{i}" for i in range(len(tokens), config["vocab_size"])]
    tokenizer = Tokenizer(models.BPE(vocab={token: i for i, token in enumerate(tokens)}, merges=[]))
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.save(str(folder / "tokenizer.json"))
    about = json.dumps({"tokenizer_class": "PreTrainedTokenizerFast"})
    (folder / "tokenizer_config.json").write_text(about, encoding="utf-8")
    return folder
