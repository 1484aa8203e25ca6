"""The script that says where a CPU's time goes: what a sample of perf belongs to, and the table."""

from __future__ import annotations

from collections.abc import Iterator
from types import ModuleType

import pytest

from .benchmark_script import MACHINE, benchmark_script

NATIVE = "/root/.cache/llmfw/native-0ad0.so"
API, ENGINE, CLIENT = 10, 11, 20


@pytest.fixture(scope="module")
def script() -> Iterator[ModuleType]:
    with benchmark_script("cpu_profile") as (module,):
        yield module


def sample(pid: int, symbol: str = "f", file: str = "/usr/lib/libc.so.6", comm: str = "python") -> str:
    return f"{comm:>16} {pid:5}  7f1c667aedf0 {symbol} ({file})"


@pytest.mark.parametrize(
    ("symbol", "file", "place"),
    [
        ("llmfw::(anonymous namespace)::multiply<(llmfw::(anonymous namespace)::Kind)2, 8, 1, false>", NATIVE, "products"),
        ("llmfw::attention::TileWork<llmfw::bfloat16, float>::attend_chunk", NATIVE, "attention"),
        ("AttentionPlan::attend<llmfw::bfloat16, float>", NATIVE, "attention"),
        ("llmfw::(anonymous namespace)::turn<llmfw::bfloat16>", NATIVE, "other native code"),
        ("llmfw::run", NATIVE, "threads waiting"),
        ("std::thread::_State_impl<llmfw::(anonymous namespace)::Pool::start(int)>::_M_run", NATIVE, "threads waiting"),
        ("gc_collect_main", "/usr/lib/libpython3.11.so.1.0", "garbage collection"),
        ("dict_traverse", "/usr/bin/python3.11", "garbage collection"),
        ("_PyEval_EvalFrameDefault", "/usr/lib/libpython3.11.so.1.0", "Python and the rest"),
        ("at::native::copy", "/venv/torch/lib/libtorch_cpu.so", "torch"),
        ("clear_page_erms", "[kernel.kallsyms]", "system calls"),
        ("[unknown]", "[unknown]", "Python and the rest"),
    ],
)  # fmt: skip
def test_samples_are_attributed_to_what_they_compute(
    script: ModuleType, symbol: str, file: str, place: str
) -> None:
    processes = script.Processes(API, frozenset({ENGINE}), CLIENT)
    assert script.place_of(sample(ENGINE, symbol, file), processes) == place


def test_samples_of_other_processes_belong_to_them(script: ModuleType) -> None:
    processes = script.Processes(API, frozenset({ENGINE}), CLIENT)
    lines = [
        sample(API),
        sample(CLIENT),
        sample(CLIENT),
        sample(99),
        sample(0, "pv_native_safe_halt", "[kernel.kallsyms]", "swapper"),
    ]
    found = script.shares([*lines, "", "# no sample"], processes)
    assert {name: share for name, share in found.items() if share} == {
        "API process": 0.2,
        "client": 0.4,
        "others": 0.2,
        "idle": 0.2,
    }


def test_the_table_has_a_column_for_each_workload(script: ModuleType) -> None:
    processes = script.Processes(API, frozenset({ENGINE}), CLIENT)
    single = {
        "shares": script.shares([sample(API)], processes),
        "output_tok_s": 50.0,
        "itl_p50_ms": 16.51,
        "ttft_p50_ms": 183.0,
    }
    lines = script.page_of({"machine": MACHINE, "models": {"smol": {"single": single, "burst": single}}})
    assert "| of all cores' time | single | burst |" in lines
    assert "| API process | 100.0 % | 100.0 % |" in lines
    assert "| ITL p50, ms | 16.5 | 16.5 |" in lines
