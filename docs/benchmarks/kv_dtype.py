"""What `--kv-cache-dtype fp8_e4m3` and `fp8_e5m2` cost: errors of the demo model next to keys and values in bfloat16.

    .venv/bin/python docs/benchmarks/kv_dtype.py --page docs/benchmarks.md

The engine itself scores texts that the demo model's training never showed, and writes the last reply of each anew, greedily.
The attention backend is `torch` on every side, weights and activations are in bfloat16; only what is stored differs. A
line for the same model computed and stored in float32 says how much of an error is bfloat16's own rounding. `calibrated`
has the scales in its checkpoint that let the largest key, and the largest value, of each layer be the largest number of
fp8_e4m3. Errors do not depend on the machine's speed. It takes about a minute.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cpu_steps import MODELS
from quantization import held_out
from tables import row, write_between

if TYPE_CHECKING:
    from llmfw.core.base.request import TokenEvent
    from llmfw.core.engine.generation.engine import Engine

HERE = Path(__file__).resolve().parent
SIDES = {
    "bfloat16": ("bfloat16", "auto"),
    "the same model in float32": ("float32", "auto"),
    "fp8_e4m3": ("bfloat16", "fp8_e4m3"),
    "fp8_e4m3, calibrated": ("bfloat16", "fp8_e4m3"),
    "fp8_e5m2": ("bfloat16", "fp8_e5m2"),
}
"""Name → `--dtype`, `--kv-cache-dtype`. All are compared with the first."""
OUTPUT = 64


def main() -> None:
    """Measure, and write what was found."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--texts", type=int, help="of the texts, so many; default: all")
    parser.add_argument("--out", type=Path, default=HERE / "kv_dtype.json")
    parser.add_argument("--page", type=Path, help="page between whose markers the table is written")
    options = parser.parse_args()
    found = measure(options.texts)
    options.out.write_text(json.dumps(found, indent=1) + "\n")
    text = "\n".join(table(found))
    print(text)
    if options.page:
        write_between(options.page, "kv_dtype", text)


def measure(num_texts: int | None) -> dict[str, dict[str, float]]:
    """Return the figures of each side."""
    texts = [(tokens.tolist(), labels.tolist()) for tokens, labels in held_out()][:num_texts]
    sides = {}
    with tempfile.TemporaryDirectory() as folder:
        for side, (dtype, kv_dtype) in SIDES.items():
            path = MODELS["demo"]
            if side.endswith("calibrated"):
                path = calibrated(path, Path(folder), [tokens for tokens, _ in texts])
            engine = build(path, dtype, kv_dtype)
            sides[side] = score(engine, texts), go_on(engine, texts)
    expected = next(iter(sides.values()))
    return {side: compare(expected, each) for side, each in sides.items()}


def build(path: Path, dtype: str, kv_dtype: str) -> Engine:
    """Build an engine whose sides differ in nothing else."""
    from llmfw.core.base.config import EngineConfig
    from llmfw.core.engine.generation.build import build_generation_engine
    from llmfw.core.plugin.plugins import load_plugins

    config = EngineConfig(
        model=str(path), dtype=dtype, kv_cache_dtype=kv_dtype, attention="torch", max_total_tokens=32768
    )
    return build_generation_engine(config, load_plugins().registry)


def calibrated(path: Path, folder: Path, prompts: Sequence[list[int]]) -> Path:
    """Write a folder with the model and the scales that these prompts ask for; return it."""
    import torch
    from safetensors.torch import save_file

    engine = build(path, "bfloat16", "auto")
    run(engine, prompts, max_tokens=1)
    storage = engine._executor._backend.storage
    largest = torch.finfo(torch.float8_e4m3fn).max
    scales = {}
    for index, pages in enumerate(zip(storage.keys, storage.values, strict=True)):
        for which, stored in zip("kv", pages, strict=True):
            scales[f"model.layers.{index}.self_attn.{which}_scale"] = stored.float().abs().max() / largest
    save_file(scales, folder / "scales.safetensors")
    for file in path.iterdir():
        (folder / file.name).symlink_to(file)
    return folder


def run(
    engine: Engine, prompts: Sequence[list[int]], max_tokens: int, **asked: Any
) -> list[list[TokenEvent]]:
    """Return all events of each prompt's request, which takes the most likely tokens."""
    from llmfw.core.base.request import Request, SamplingParams

    sampling = SamplingParams(temperature=0, max_tokens=max_tokens)
    events: dict[str, list[TokenEvent]] = {}
    for number, prompt in enumerate(prompts):
        events[str(number)] = []
        engine.add(Request(id=str(number), prompt=prompt, sampling=sampling, **asked))
    while engine.has_work:
        for event in engine.step():
            events[event.id].append(event)
    return list(events.values())


def score(engine: Engine, texts: Sequence[tuple[list[int], list[int]]]) -> list[tuple[float, int]]:
    """Return the log probability, and the most likely token, in place of each token that has a label."""
    found = []
    outputs = run(engine, [tokens for tokens, _ in texts], max_tokens=1, prompt_logprobs=1)
    for (tokens, labels), events in zip(texts, outputs, strict=True):
        records = events[0].prompt_logprobs
        assert records is not None
        assert len(records) == len(tokens) - 1
        found += [
            (record.logprob, record.top_ids[0])
            for record, label in zip(records, labels[1:], strict=True)
            if label >= 0
        ]
    return found


def go_on(engine: Engine, texts: Sequence[tuple[list[int], list[int]]]) -> list[list[int]]:
    """Return how each text's last reply is begun anew, greedily, until it ends."""
    from llmfw.core.model.tokenizer.tokenizer_files import load_tokenizer

    prompts = []
    for tokens, labels in texts:
        begins = [i for i in range(1, len(labels)) if labels[i - 1] < 0 <= labels[i]]
        prompts += [tokens[: begins[-1]]] if begins else []
    ends = load_tokenizer(str(MODELS["demo"])).eos_token_ids
    outputs = run(engine, prompts, max_tokens=OUTPUT, eos_token_ids=ends)
    return [[token for event in events for token in event.token_ids] for events in outputs]


Side = tuple[list[tuple[float, int]], list[list[int]]]


def compare(expected: Side, found: Side) -> dict[str, float]:
    """Return the figures of a side."""
    pairs = list(zip(expected[0], found[0], strict=True))
    changes = sorted(abs(b - a) for (a, _), (b, _) in pairs)
    texts = list(zip(expected[1], found[1], strict=True))
    return {
        "tokens": len(pairs),
        "perplexity": 2.718281828459045 ** -statistics.fmean(logprob for logprob, _ in found[0]),
        "mean_change": statistics.fmean(changes),
        "p99_change": changes[len(changes) * 99 // 100],
        "same_top": statistics.fmean(a == b for (_, a), (_, b) in pairs),
        "texts": len(texts),
        "same_text": statistics.fmean(a == b for a, b in texts),
        "same_tokens": sum(agreed(a, b) for a, b in texts) / sum(len(a) for a, _ in texts),
    }


def agreed(expected: Sequence[int], found: Sequence[int]) -> int:
    """Return how many tokens are the same before the first that is not."""
    both = zip(expected, found, strict=False)  # one may end before the other
    return next((place for place, (a, b) in enumerate(both) if a != b), min(len(expected), len(found)))


def table(found: dict[str, dict[str, float]]) -> Iterator[str]:
    """Yield the lines of the table."""
    first = next(iter(found.values()))
    yield (
        f"The demo model over {first['tokens']:.0f} tokens, and {first['texts']:.0f} replies of up to {OUTPUT} "
        "tokens written greedily, against its own with keys and values in bfloat16:"
    )
    yield ""
    yield row(
        [
            "keys and values in",
            "perplexity",
            "mean change of a log probability",
            "99% below",
            "same first choice",
            "same reply",
            "tokens of replies before the first other one",
        ]
    )
    yield row(["---"] * 7)
    for number, (side, each) in enumerate(found.items()):
        shown = [f"{each[name]:.4f}" for name in ("mean_change", "p99_change")]
        shown += [f"{each[name]:.1%}" for name in ("same_top", "same_text", "same_tokens")]
        yield row([side, f"{each['perplexity']:.4f}", *(shown if number else ["–"] * 5)])


if __name__ == "__main__":
    main()
