"""What `--quantization` costs and brings: errors of the demo model, and what a step takes, next to bfloat16.

    .venv/bin/python docs/benchmarks/quantization.py --page docs/benchmarks.md

Errors: the distribution of the next token, after each token that the demo model was to learn to say in texts that its
training never showed, against the same model's in bfloat16. They do not depend on the machine's speed. A line for the
same weights computed in float32 says how much of an error is bfloat16's own rounding. Where `make peers` has put llama.cpp
and OpenVINO below `--peers`, a second table has what weights alone lose, ours and those of their formats: all of it
computed in float32, by the same code.

Speed: engines with bfloat16, int8 and int4 weights in one process, without HTTP, take turns at decoding 1 and 16 sequences,
A B C A B C; figures are medians over the turns, of medians over a turn's steps, with the lowest and highest of the turns.
Ratios are those of neighbors. It takes about two minutes on a quiet machine; `--errors-only` half a minute on any.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cpu_steps import MODELS, ROOT, memory_speed, run
from make_model import make_model
from tables import row, spread, write_between

if TYPE_CHECKING:
    from llmfw.core.engine.generation.engine import Engine
    from llmfw.core.model.models import LoadedModel

HERE = Path(__file__).resolve().parent
SIDES = {"bfloat16": None, "int8": "int8", "int4": "int4"}
"""Name → what `--quantization` says."""
FORMATS = {
    "q8_0": "Q8_0: llama.cpp's, and OpenVINO's int8",
    "q4_k_m": "Q4_K_M: llama.cpp's",
    "q4_0": "Q4_0: OpenVINO's int4",
}
"""Type of a GGUF file → whose it is."""
COUNTS = (1, 16)
BATCHES, SEED = 8, 7
STEPS = 24


def main() -> None:
    """Measure, and write what was found."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS))
    parser.add_argument("--runs", type=int, default=9)
    parser.add_argument("--errors-only", action="store_true")
    parser.add_argument("--peers", type=Path, default=ROOT / ".peers", help="of the peers (default .peers)")
    parser.add_argument("--out", type=Path, default=HERE / "quantization.json")
    parser.add_argument("--page", type=Path, help="page between whose markers the tables are written")
    options = parser.parse_args()
    found: dict[str, Any] = json.loads(options.out.read_text()) if options.out.exists() else {}
    found["errors"] = errors()
    if all((options.peers / name).exists() for name in ("llama.cpp", "openvino")):
        found["weight_errors"] = weight_errors(options.peers)
    if not options.errors_only:
        found["memory_gb_s"] = memory_speed()
        found["steps"] = {name: steps(name, options.runs) for name in options.models}
    options.out.write_text(json.dumps(found, indent=1) + "\n")
    text = "\n".join(tables(found))
    print(text)
    if options.page:
        write_between(options.page, "quantization", text)


def load(folder: Path, dtype: str, quantization: str | None) -> LoadedModel:
    """Load a model, with the passes that there are."""
    import torch

    from llmfw.core.base.config import EngineConfig
    from llmfw.core.model.models import load_model
    from llmfw.core.plugin.plugins import load_plugins

    config = EngineConfig(model=str(folder), dtype=dtype, quantization=quantization)
    return load_model(config, torch.device("cpu"), load_plugins().registry)


def errors() -> dict[str, dict[str, float]]:
    """Return, for each side, how far the demo model's distributions are from those in bfloat16."""
    demo = MODELS["demo"]
    sides = {side: load(demo, "bfloat16", quantization) for side, quantization in SIDES.items()}
    plain = load(demo, "float32", None)
    sizes = {side: model.num_bytes for side, model in sides.items()} | {"float32": plain.num_bytes // 2}
    models = {"bfloat16": sides.pop("bfloat16"), "float32": plain, **sides}
    return compare(models, sizes)


def weight_errors(homes: Path) -> dict[str, dict[str, float]]:
    """Return how far the demo model's distributions are from its own where only its weights are others, all in float32.

    Args:
        homes: of the peers.
    """
    from peers.gguf_weights import decoded_folder

    demo, work = MODELS["demo"], ROOT / ".bench"
    models = {side: load(demo, "float32", quantization) for side, quantization in SIDES.items()}
    sizes = {side: load(demo, "bfloat16", quantization).num_bytes for side, quantization in SIDES.items()}
    for kind, side in FORMATS.items():
        folder, sizes[side] = decoded_folder(demo, "demo", kind, work, homes)
        models[side] = load(folder, "float32", None)
    return compare(models, sizes)


def compare(models: dict[str, LoadedModel], sizes: dict[str, int]) -> dict[str, dict[str, float]]:
    """Return how far each model's distributions are from those of the first one.

    Args:
        sizes: bytes of the weights.
    """
    import torch

    texts = list(held_out())
    found: dict[str, dict[str, float]] = {}
    expected = torch.empty(0)
    for side, model in models.items():
        scores = torch.cat([log_probabilities(model, *text) for text in texts])
        labels = torch.cat([labels[1:][labels[1:] >= 0] for _, labels in texts])
        if not found:
            expected = scores
        divergence = (expected.exp() * (expected - scores)).sum(-1)
        found[side] = {
            "weight_mb": sizes[side] / 1e6,
            "tokens": len(scores),
            "perplexity": float((-scores.gather(1, labels[:, None])).mean().exp()),
            "mean_kl": float(divergence.mean()),
            "p99_kl": float(divergence.quantile(0.99)),
            "max_kl": float(divergence.max()),
            "same_top": float((scores.argmax(-1) == expected.argmax(-1)).double().mean()),
        }
    return found


def held_out() -> Iterator[tuple[Any, Any]]:
    """Yield tokens and labels of texts that the demo model was not trained on; a label below 0 is not to be learned."""
    from transformers import AutoTokenizer

    from llmfw.plugins.model_demo.encoding import Encoder
    from llmfw.plugins.model_demo.train import held_out_batches

    encoder = Encoder(AutoTokenizer.from_pretrained(MODELS["demo"]))
    for tokens, labels in held_out_batches(encoder, SEED, BATCHES):
        yield from zip(tokens, labels, strict=True)


def log_probabilities(model: LoadedModel, tokens: Any, labels: Any) -> Any:
    """Return the logarithms of the next token's probabilities, in float64, before each token that has a label."""
    from llmfw.core.model.trial.packed import run_in_one_row

    logits = run_in_one_row(model.module, [tokens.tolist()])
    return logits[:-1][labels[1:] >= 0].double().log_softmax(-1)


def steps(name: str, runs: int) -> dict[str, list[dict[str, float]]]:
    """Return milliseconds of a step by number of sequences, of each side and turn."""
    import torch

    folder = MODELS[name]
    if not (folder / "model.safetensors").exists():
        folder.parent.mkdir(exist_ok=True)
        (folder.parent / ".gitignore").write_text("*\n")
        make_model(folder)
    engines = {side: build(folder, side) for side in SIDES}
    if all(engine.has_own_threads for engine in engines.values()):  # as in the engine's process
        torch.set_num_threads(1)
    for engine in engines.values():
        run(engine, 1, 20, 8)  # what the first steps bring with them
    turns: dict[str, list[dict[str, float]]] = {side: [] for side in SIDES}
    for _ in range(runs):
        for side, engine in engines.items():
            taken = {count: run(engine, count, 20, STEPS)[-STEPS + 4 :] for count in COUNTS}
            turns[side].append(
                {f"step_{count}_ms": 1e3 * statistics.median(each) for count, each in taken.items()}
            )
    return turns


def build(folder: Path, side: str) -> Engine:
    """Build an engine."""
    from llmfw.core.base.config import EngineConfig
    from llmfw.core.engine.generation.build import build_generation_engine
    from llmfw.core.plugin.plugins import load_plugins

    config = EngineConfig(
        model=str(folder),
        dtype="bfloat16",
        quantization=SIDES[side],
        max_total_tokens=8192,
        log_level="warning",
    )
    return build_generation_engine(config, load_plugins().registry)


def tables(found: dict[str, Any]) -> Iterator[str]:
    """Yield the lines of the tables."""
    tokens = found["errors"]["bfloat16"]["tokens"]
    yield f"Errors of the demo model over {tokens:.0f} tokens, against its own distributions in bfloat16:"
    yield from errors_table(found["errors"])
    if "weight_errors" in found:
        yield ""
        yield "The same with everything computed in float32, so that only weights differ:"
        yield from errors_table(found["weight_errors"])
    for name, turns in found.get("steps", {}).items():
        yield from ("", f"A step of {name}, ms; memory was read at {found['memory_gb_s']:.1f} GB/s:", "")
        yield row(["sequences", *SIDES, "int8: times as fast", "int4: times as fast"])
        yield row(["---"] * 6)
        for count in COUNTS:
            times = {side: [turn[f"step_{count}_ms"] for turn in turns[side]] for side in SIDES}
            faster = [
                spread([a / b for a, b in zip(times["bfloat16"], times[side], strict=True)], digits=2)
                for side in ("int8", "int4")
            ]
            yield row([str(count), *(spread(each, digits=2) for each in times.values()), *faster])


def errors_table(errors: dict[str, dict[str, float]]) -> Iterator[str]:
    """Yield the lines of a table, after an empty one."""
    yield ""
    yield row(
        ["", "weights, MB", "perplexity", "mean KL", "99% of KL below", "largest KL", "same first choice"]
    )
    yield row(["---"] * 7)
    for i, (side, each) in enumerate(errors.items()):
        shown = [f"{each[name]:.1e}" for name in ("mean_kl", "p99_kl", "max_kl")]
        shown = [*shown, f"{each['same_top']:.2%}"] if i else ["–"] * 4
        side = "the same weights in float32" if side == "float32" else side
        yield row([side, f"{each['weight_mb']:.1f}", f"{each['perplexity']:.4f}", *shown])


if __name__ == "__main__":
    main()
