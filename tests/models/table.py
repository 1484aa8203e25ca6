"""Tries every type of transformers that generates text, and writes the tables in docs/models.md: `make model-table`.

    python -m tests.models.table [--page docs/models.md] [--jobs N] [TYPE …]

Each type runs in a process of its own, so that one that crashes, hangs or eats memory is a line of the table.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import resource
import sys
import tempfile
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from multiprocessing.connection import Connection
from pathlib import Path

import torch
import transformers
from transformers.models.auto.modeling_auto import (
    MODEL_FOR_CAUSAL_LM_MAPPING_NAMES,
    MODEL_FOR_MULTIMODAL_LM_MAPPING_NAMES,
)

from .tiny_config import tiny_config
from .trial import LOOSE_TOLERANCES, TOLERANCE, Verdict, try_config, where_raised

TABLES = {
    "table": list(MODEL_FOR_CAUSAL_LM_MAPPING_NAMES),
    "multimodal": [
        name
        for name in MODEL_FOR_MULTIMODAL_LM_MAPPING_NAMES
        if name not in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES
    ],
}
"""The types of each table, by the name in its marks: causal language models, and others that also read images or sound."""
TIMEOUT_S = 120
MAX_REASON = 160
MEMORY = 16 << 30


def try_type(model_type: str) -> Verdict:
    """Return what becomes of a type, tried in a process of its own."""
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=_try_here, args=(model_type, theirs))
    process.start()
    theirs.close()
    verdict = None
    if ours.poll(TIMEOUT_S):
        try:
            verdict = Verdict(**ours.recv())
        except EOFError:
            process.join()
    process.kill()
    process.join()
    return verdict or Verdict("traceback", f"ended with {process.exitcode}, or took more than {TIMEOUT_S} s")


def _try_here(model_type: str, result: Connection) -> None:
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    with tempfile.TemporaryDirectory() as folder:
        try:
            config = tiny_config(model_type)
        except Exception as error:  # noqa: BLE001 - whatever transformers raises is the reason to report
            verdict = Verdict("not built", where_raised(error))
        else:
            verdict = try_config(config, Path(folder), LOOSE_TOLERANCES.get(model_type, TOLERANCE))
    result.send(asdict(verdict))


def page_of(verdicts: dict[str, Verdict]) -> str:
    """Return the counts and the table in Markdown."""
    counts = Counter(verdict.outcome for verdict in verdicts.values())
    listed = ", ".join(f"{count} {outcome}" for outcome, count in counts.most_common())
    return "\n".join(
        [
            f"transformers {transformers.__version__}, {len(verdicts)} types: {listed}.",
            "",
            "| type | class | result | why | fast CPU path |",
            "|---|---|---|---|---|",
            *(_row(name, verdict) for name, verdict in sorted(verdicts.items())),
        ]
    )


def _row(model_type: str, verdict: Verdict) -> str:
    reason = "" if verdict.outcome == "equal" else _short(verdict.reason)
    fast = "yes" if verdict.module_passes else ""
    return f"| `{model_type}` | {verdict.architecture} | {verdict.outcome} | {reason} | {fast} |"


def _short(reason: str) -> str:
    """Return a reason without what the row says already."""
    for words in (" cannot be served: ", " cannot be loaded: "):
        reason = reason.partition(words)[2] or reason
    reason = reason.replace("|", "\\|").replace("<", "&lt;")
    return reason if len(reason) <= MAX_REASON else reason[: MAX_REASON - 1].rstrip() + "…"


def write_page(page: Path, verdicts: dict[str, Verdict]) -> None:
    """Put each table whose types were tried between its marks in a page."""
    for table, types in TABLES.items():
        if tried := {name: verdicts[name] for name in types if name in verdicts}:
            begin, end = (f"<!-- {table}: {mark} -->" for mark in ("begin", "end"))
            before, _, rest = page.read_text("utf-8").partition(begin)
            _, _, after = rest.partition(end)
            page.write_text(f"{before}{begin}\n{page_of(tried)}\n{end}{after}", "utf-8")


def main() -> None:
    """Try the types that are named, or all, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("types", nargs="*", default=[name for types in TABLES.values() for name in types])
    parser.add_argument("--page", type=Path, help="Markdown file whose table is written anew")
    parser.add_argument("--json", type=Path, help="file that takes the verdicts")
    parser.add_argument("--jobs", type=int, default=1, help="types that are tried at a time")
    options = parser.parse_args()
    verdicts: dict[str, Verdict] = {}
    started = time.perf_counter()
    with ThreadPoolExecutor(options.jobs) as pool:
        for model_type, verdict in zip(options.types, pool.map(try_type, options.types), strict=True):
            verdicts[model_type] = verdict
            passes = f" [{', '.join(verdict.module_passes)}]" if verdict.module_passes else ""
            print(f"{model_type}: {verdict.outcome}{passes}: {verdict.reason}", flush=True)
            if options.json:
                options.json.write_text(json.dumps({name: asdict(each) for name, each in verdicts.items()}))
    if options.page:
        write_page(options.page, verdicts)
    counts = Counter(verdict.outcome for verdict in verdicts.values())
    print(dict(counts), f"{time.perf_counter() - started:.0f} s")
    sys.exit(bool(counts["different"] or counts["traceback"]))


if __name__ == "__main__":
    main()
