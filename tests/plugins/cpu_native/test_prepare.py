"""Which libraries are built before torch is there: those that the engine then loads."""

from __future__ import annotations

import importlib.resources
import json
import subprocess
import sys
from pathlib import Path

import pytest

from llmfw.core.base.config import EngineConfig
from llmfw.core.model.device.devices import has_fast_bfloat16
from llmfw.plugins.cpu_native import cpu
from llmfw.plugins.cpu_native import prepare as prepare_module
from llmfw.plugins.cpu_native.build import BuildError
from llmfw.plugins.cpu_native.libraries import Scalar, machine_flags
from llmfw.plugins.cpu_native.prepare import prepare, probable_scalar

DEMO = str(importlib.resources.files("llmfw.plugins.model_demo") / "weights")
HALVES = Scalar.BFLOAT16 if cpu.has_fast_bfloat16() else Scalar.FLOAT32


def model(folder: Path, config: object) -> str:
    (folder / "config.json").write_text(json.dumps(config))
    return str(folder)


@pytest.fixture
def built(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What would have been built."""
    found: list[str] = []
    for name in ("build", "build_quantized"):
        monkeypatch.setattr(
            prepare_module, name, lambda scalar, name=name: found.append(f"{name} {scalar.name}")
        )
    return found


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({"dtype": "bfloat16"}, HALVES),
        ({"torch_dtype": "float16"}, HALVES),
        ({"torch_dtype": "float32"}, Scalar.FLOAT32),
        ({"text_config": {"dtype": "bfloat16"}, "dtype": "float32"}, HALVES),
        ({}, Scalar.FLOAT32),
        ([], Scalar.FLOAT32),
    ],
)
def test_the_dtype_comes_from_the_config(config: object, expected: Scalar, tmp_path: Path) -> None:
    assert probable_scalar(EngineConfig(model=model(tmp_path, config), device="cpu")) is expected


def test_the_dtype_option_overrides_the_config(tmp_path: Path) -> None:
    folder = model(tmp_path, {"dtype": "bfloat16"})
    for name, scalar in prepare_module.SCALARS.items():
        assert probable_scalar(EngineConfig(model=folder, device="cpu", dtype=name)) is scalar


@pytest.mark.parametrize("settings", [{"device": "cuda"}, {"task": "embed"}])
def test_nothing_is_built_for_other_engines(settings: dict[str, str], built: list[str]) -> None:
    prepare(EngineConfig(**{"model": DEMO, "device": "cpu"} | settings))
    assert built == []


def test_nothing_is_built_on_gpu_machines(built: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prepare_module, "ACCELERATORS", (Path("/"),))
    prepare(EngineConfig(model=DEMO))
    assert built == []


def test_quantized_kernels_are_built_on_request(built: list[str]) -> None:
    prepare(EngineConfig(model=DEMO, device="cpu", dtype="bfloat16"))
    prepare(EngineConfig(model=DEMO, device="cpu", dtype="float32", quantization="int8"))
    assert built == ["build BFLOAT16", "build FLOAT32", "build_quantized FLOAT32"]


def test_failures_are_left_to_the_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(scalar: Scalar) -> None:
        raise BuildError("no compiler")

    monkeypatch.setattr(prepare_module, "build", fail)
    prepare(EngineConfig(model=DEMO, device="cpu"))


def test_torch_agrees_on_bfloat16() -> None:
    assert cpu.has_fast_bfloat16() == has_fast_bfloat16()


def test_preparation_does_not_import_torch() -> None:
    code = "import sys, llmfw.plugins.cpu_native.prepare; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize(
    ("flags", "vendor", "expected"),
    [
        ("avx512f avx512_bf16", "GenuineIntel", ("-march=native", "-DLLMFW_PAIRS=0")),
        ("avx512f avx512_bf16", "AuthenticAMD", ("-march=native",)),
        ("avx2", "GenuineIntel", ("-march=native",)),
        ("", "", ("-march=native",)),
    ],
)
def test_pair_kernels_are_built_on_matching_cpus(
    flags: str, vendor: str, expected: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cpu, "_line", {"flags": flags, "vendor_id": vendor}.__getitem__)
    assert machine_flags() == expected
    has_slow = expected != ("-march=native",)
    assert ("-DLLMFW_PAIRS=1" in machine_flags(in_pairs=True)) == has_slow
