"""A grammar backend that does to its process what a spec's source says."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from llmfw.core.base.errors import RequestError
from llmfw.core.base.request import GrammarSpec
from llmfw.core.interfaces.grammar import Grammar, GrammarBackend
from llmfw.core.interfaces.tokenizer import Tokenizer


class AnyText(Grammar):
    """A grammar that allows every token. Its masks take some time.

    `fault` names the method that misbehaves.
    """

    def __init__(self, mask_s: float = 0.0, fault: str = "") -> None:
        self.mask_s = mask_s
        self.fault = fault

    def copy(self) -> AnyText:
        if self.fault == "copy":
            raise OSError("no copy")
        return AnyText(self.mask_s, self.fault)

    def accept(self, token_id: int) -> None:
        if self.fault in ("accept", "force"):
            raise ValueError("not here")

    def forced(self) -> Sequence[int]:
        return [10**6] if self.fault == "force" else ()

    def is_finished(self) -> bool:
        return self.fault in ("finish", "end", "dead")


class HostileBackend(GrammarBackend):
    """Compiles "ok", "slow mask", and texts that misbehave; what follows a space tells specs apart."""

    def __init__(self, tokenizer: Tokenizer, vocab_size: int) -> None:
        self.count = 0
        self.eos = tokenizer.eos_token_ids[0]

    def prepare(self, spec: GrammarSpec) -> GrammarSpec:
        if spec.source.startswith("recurse"):
            return self.prepare(spec)
        return GrammarSpec("prepared", spec.source)

    def compile(self, spec: GrammarSpec) -> Grammar:
        self.count += 1
        what = spec.source.partition(" ")[0]
        if what == "crash":
            ctypes.string_at(0)
        elif what == "hang":
            time.sleep(60)
        elif what == "spin":
            spin(60)
        elif what == "slow":
            spin(0.15)
        elif what == "eat":
            kept = [bytearray(2**20) for _ in range(1000)]
            kept.clear()
        elif what == "raise":
            raise OSError("out of paper")
        elif what == "refuse":
            raise RequestError(f"refused after {self.count}")
        elif what == "mask":
            return AnyText(0.3)
        elif what == "fault":
            return AnyText(fault=spec.source.split()[1])
        elif what.startswith("{"):  # a structural tag
            return AnyText(fault="end")
        return AnyText()

    def fill_masks(self, grammars: Sequence[Grammar], masks: npt.NDArray[np.int32]) -> None:
        for grammar in grammars:
            assert isinstance(grammar, AnyText)
            spin(grammar.mask_s)
            masks[:] = 0 if grammar.fault in ("empty", "dead", "end") else -1
            if grammar.fault == "end":
                masks[:, self.eos // 32] = 1 << self.eos % 32


def spin(seconds: float) -> None:
    """Use CPU time."""
    begun = time.thread_time()
    while time.thread_time() - begun < seconds:
        pass
