"""Runs one stage in this process, and writes each of its lines as soon as it is known. `run.py` calls it.

A stage is a module in `stages` with a function `measure(task)` that yields lines.
"""

from __future__ import annotations

import argparse
import importlib
import sys
import traceback
from pathlib import Path

from lines import line_of_error, write_line
from task import Task


def run_stage(name: str, task: Task) -> bool:
    """Run a stage; return whether nothing failed. An exception becomes its last line."""
    fine = True
    try:
        for line in importlib.import_module(f"stages.{name}").measure(task):
            if task.dry:
                line.goal = line.most_ms = None  # nothing is held to a goal where figures mean nothing
            write_line(task.file(name), line)
            print(" | ".join(line.cells()), flush=True)
            fine = fine and not line.failed
    except Exception as error:  # noqa: BLE001 - whatever it is, it costs one line of the table
        traceback.print_exc()
        line = line_of_error(name, error)
        line.failed = True  # as it is not known what else the stage would have measured
        write_line(task.file(name), line)
        return False
    return fine


def main() -> None:
    """Run the stage that the command line names."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name")
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--attention", default="auto")
    parser.add_argument("--prefill-attention")
    parser.add_argument("--batches", nargs="*", type=int, default=[])
    parser.add_argument("--dry", action="store_true")
    options = parser.parse_args()
    task = Task(
        *(options.dry, options.work, options.attention, tuple(options.batches)),
        prefill_attention=options.prefill_attention,
    )
    sys.exit(not run_stage(options.name, task))


if __name__ == "__main__":
    main()
