"""The CPU time of calls: without garbage collections, which are no fault of the call."""

from __future__ import annotations

import gc
import threading
import time

import pytest

from llmfw.core.base.request import Request, SamplingParams
from llmfw.core.schedule.constraint import Constraint
from llmfw.core.schedule.cpu_time import CPUTime
from llmfw.core.schedule.step_cost import MAX_DEBT_S

from ...doubles.trie_grammar import TrieGrammar, tokens_of

EOS = (1,)
TEXT = tokens_of("red")


def burn(seconds: float) -> None:
    until = time.thread_time() + seconds
    while time.thread_time() < until:
        pass


class Heavy:
    """Garbage whose collection takes as long as that of millions of objects."""

    def __init__(self) -> None:
        self.itself = self

    def __del__(self) -> None:
        burn(1.25 * MAX_DEBT_S)


def collect() -> None:
    """Collect garbage, for longer than a grammar may take in all."""
    Heavy()
    gc.collect()


class Littering(TrieGrammar):
    """A grammar during whose calls the garbage is collected."""

    def accept(self, token_id: int) -> None:
        collect()
        super().accept(token_id)


def test_only_the_body_s_own_time_counts() -> None:
    burn(0.01)
    with CPUTime() as taken:
        burn(0.02)
        collect()
        time.sleep(0.01)
    assert 0.02 <= taken.seconds < MAX_DEBT_S


def test_collections_of_other_threads_are_not_subtracted() -> None:
    with CPUTime() as taken:
        thread = threading.Thread(target=collect)
        thread.start()
        burn(0.05)
        thread.join()
    assert taken.seconds >= 0.05


def test_an_exception_leaves_no_callback() -> None:
    before = list(gc.callbacks)
    with pytest.raises(ValueError, match="broke"), CPUTime():
        raise ValueError("broke")
    assert gc.callbacks == before


def test_collections_do_not_end_a_grammar_s_output() -> None:
    sampling = SamplingParams(max_tokens=9)
    request = Request(id="a", prompt=[5], sampling=sampling, eos_token_ids=EOS)
    state = Constraint(request, Littering(frozenset({TEXT}), EOS))
    for token in (*TEXT, *EOS):
        state.accept(token)
    assert state.has_ended
