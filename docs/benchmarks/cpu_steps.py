"""What a step takes on a CPU: layers and attention in native code, next to torch's.

    .venv/bin/python docs/benchmarks/cpu_steps.py --page docs/benchmarks.md

For each model: the engine alone, without HTTP, in bfloat16, in a process of its own for each turn, A B A B. A turn
decodes 1, 4, 16 and 64 sequences of about 50 tokens, and computes one prompt. Beside them the machine's own speed is
measured: how fast all cores read memory, which a step of one sequence cannot beat. Figures are medians over the turns, of
medians over a turn's steps, with the lowest and highest of the turns.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from machine import describe_machine
from make_model import make_model
from tables import row, spread, write_between

if TYPE_CHECKING:
    from llmfw.core.engine.generation.engine import Engine

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
MODELS = {
    "demo": ROOT / "plugins/model_demo/weights",
    "smollm2-135m-shape": ROOT / ".bench/smollm2-135m-shape",
}
SIDES = {"torch": ("none", "torch"), "native": ("cpu-native", "cpu")}
"""Name → module passes, attention backend."""
COUNTS = (1, 4, 16, 64)
STEPS = 48
PROMPT = 1024


def main() -> None:
    """Measure all models, and write what was found."""
    options = parse_arguments()
    if options.turn:
        print(json.dumps(turn(*options.turn)))
        return
    found: dict[str, Any] = {"machine": describe_machine(), "models": {}}
    for name in options.models:
        if not (MODELS[name] / "model.safetensors").exists():
            MODELS[name].parent.mkdir(exist_ok=True)
            (MODELS[name].parent / ".gitignore").write_text("*\n")
            make_model(MODELS[name])
        turns: dict[str, list[dict[str, float]]] = {side: [] for side in SIDES}
        for _ in range(options.runs):
            for side in SIDES:
                turns[side].append(turn_of_its_own(name, side))
                print(name, side, turns[side][-1], file=sys.stderr, flush=True)
        found["models"][name] = turns
    options.out.write_text(json.dumps(found, indent=1) + "\n")
    text = "\n".join(page_of(found))
    print(text)
    if options.page:
        write_between(options.page, "cpu_steps", text)


def parse_arguments() -> argparse.Namespace:
    """Return the options."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS))
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--out", type=Path, default=HERE / "cpu_steps.json")
    parser.add_argument("--page", type=Path, help="page between whose markers the tables are written")
    parser.add_argument("--turn", nargs=2, metavar=("FOLDER", "SIDE"), help=argparse.SUPPRESS)
    return parser.parse_args()


def turn_of_its_own(name: str, side: str) -> dict[str, float]:
    """Take a turn in a fresh process, with the environment of an engine's process."""
    command = [sys.executable, __file__, "--turn", str(MODELS[name]), side]
    environment = os.environ | {"GOMP_SPINCOUNT": "20000"}
    done = subprocess.run(command, check=True, capture_output=True, text=True, env=environment)
    return dict(json.loads(done.stdout.splitlines()[-1]))


def turn(folder: str, side: str) -> dict[str, float]:
    """Return milliseconds of a step by number of sequences, prompt tokens a second, and GB/s that memory is read at."""
    import torch

    from llmfw.core.base.config import EngineConfig
    from llmfw.core.engine.generation.build import build_generation_engine
    from llmfw.core.plugin.plugins import load_plugins

    found = {"memory_gb_s": memory_speed()}
    passes, attention = SIDES[side]
    engine = build_generation_engine(
        EngineConfig(
            model=folder,
            dtype="bfloat16",
            module_passes=passes,
            attention=attention,
            max_total_tokens=32_768,
            log_level="warning",
        ),
        load_plugins().registry,
    )
    if engine.has_own_threads:  # as in the engine's process
        torch.set_num_threads(1)
    run(engine, 1, 20, 8)  # what the first steps bring with them
    for count in COUNTS:
        steps = run(engine, count, 20, STEPS)
        found[f"step_{count}_ms"] = 1e3 * statistics.median(steps[-STEPS + 8 :])
    found["prompt_tok_s"] = PROMPT / sum(run(engine, 1, PROMPT, 1))
    return found


def memory_speed() -> float:
    """Return how many GB of a large array are read in a second, by all cores, at best."""
    import torch

    numbers = torch.ones(1 << 27)
    seconds = []
    for _ in range(5):
        begun = time.perf_counter()
        numbers.sum()
        seconds.append(time.perf_counter() - begun)
    return numbers.nbytes / min(seconds) / 1e9


def run(engine: Engine, count: int, prompt_len: int, output_len: int) -> list[float]:
    """Run so many requests, which have nothing in common; return the seconds of each step."""
    from llmfw.core.base.request import Request, SamplingParams

    rng = random.Random(f"{count} {prompt_len} {output_len}")
    for i in range(count):
        prompt = [rng.randrange(300, 3000) for _ in range(prompt_len)]
        sampling = SamplingParams(temperature=0, max_tokens=output_len, ignore_eos=True)
        engine.add(Request(id=f"{count} {prompt_len} {i}", prompt=prompt, sampling=sampling))
    seconds = []
    while engine.has_work:
        begun = time.perf_counter()
        engine.step()
        seconds.append(time.perf_counter() - begun)
    return seconds


def page_of(found: dict[str, Any]) -> list[str]:
    """Return the lines of what was found."""
    machine = found["machine"]
    lines = [
        f"{machine['date']}, commit {machine['commit'] or 'unknown'}, {machine['cpu']}, {machine['cores']} cores."
    ]
    for name, turns in found["models"].items():
        lines += table(name, turns)
    return lines


def table(name: str, turns: dict[str, list[dict[str, float]]]) -> list[str]:
    """Return the lines of a model's table."""
    megabytes = (MODELS[name] / "model.safetensors").stat().st_size / 1e6
    speed = statistics.median(turn["memory_gb_s"] for each in turns.values() for turn in each)
    about = (
        f"{megabytes:.0f} MB of weights. Memory was read at {speed:.1f} GB/s, at which they take {megabytes / speed:.1f} ms; "
        "what a core's cache keeps comes sooner."
    )
    lines = ["", f"### {name}", "", about, ""]
    lines += [row(["", "torch", "native", "times as fast"]), row(["---"] * 4)]
    for key in (*(f"step_{count}_ms" for count in COUNTS), "prompt_tok_s"):
        theirs, ours = ([turn[key] for turn in turns[side]] for side in SIDES)
        faster = [b / a for a, b in zip(ours, theirs, strict=True)]
        if key == "prompt_tok_s":
            shown, faster = f"prompt of {PROMPT}, tok/s", [1 / each for each in faster]
        else:
            shown = f"step of {key.split('_')[1]}, ms"
        digits = 0 if key == "prompt_tok_s" else 2
        lines.append(row([shown, spread(theirs, digits), spread(ours, digits), spread(faster, 2)]))
    return lines


if __name__ == "__main__":
    main()
