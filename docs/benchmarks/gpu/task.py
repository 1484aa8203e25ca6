"""What a stage is given: sizes, folders, choices; and what earlier stages have found out. Imports no torch."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path

from limits import Ceilings, Shape
from lines import Line, read_lines
from sizes import DRY, FULL, Sizes

ROOT = Path(__file__).resolve().parents[3]


@dataclass(frozen=True)
class Task:
    """One run of the script.

    Attributes:
        dry: on a CPU, with a tiny model.
        work: folder for what stages leave for each other; of this run alone.
        attention: the backend to measure with; "auto": the one that llmfw chooses.
        batches: sequences that decode together, in place of those of `sizes`; empty: those.
        prefill_attention: the backend to measure prompts with; None: the one that llmfw chooses with `attention`.
    """

    dry: bool
    work: Path
    attention: str = "auto"
    batches: tuple[int, ...] = ()
    prefill_attention: str | None = None

    @property
    def sizes(self) -> Sizes:
        """What is measured."""
        sizes = DRY if self.dry else FULL
        if not self.batches:
            return sizes
        sampled = tuple(batch for batch in sizes.sampled_batches if batch in self.batches)
        return replace(sizes, batches=self.batches, sampled_batches=sampled)

    @property
    def shape(self) -> Shape:
        """The model's, for its limits."""
        return Shape.of(self.sizes.model, 4 if self.sizes.dtype == "float32" else 2)

    @property
    def model(self) -> Path:
        """A model folder that holds a config.json and nothing else: for `--load-format dummy`."""
        folder = self.work / "model"
        folder.mkdir(exist_ok=True)
        (folder / "config.json").write_text(json.dumps(self.sizes.model), encoding="utf-8")
        return folder

    def file(self, stage: str) -> Path:
        """Where a stage's lines are."""
        return self.work / f"{stage}.jsonl"

    def lines(self, stage: str) -> list[Line]:
        """Return what a stage has written so far."""
        return read_lines(self.file(stage))

    @property
    def ceilings(self) -> Ceilings | None:
        """The machine's rates as measured in this run, None if they were not."""
        found = {k: v for line in self.lines("ceilings") for k, v in line.detail.items()}
        if "bandwidth" not in found or "flops" not in found:
            return None
        return Ceilings(found["bandwidth"], found["flops"])
