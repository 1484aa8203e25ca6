"""The script that compiles FlashInfer's kernels, but for the compiling."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

SCRIPT = Path(__file__).parents[2] / "docs" / "benchmarks" / "gpu" / "flashinfer_kernels.py"


@pytest.fixture(scope="module")
def kernels() -> ModuleType:
    spec = importlib.util.spec_from_file_location("flashinfer_kernels", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_flashinfer_finds_the_packed_kernels(
    kernels: ModuleType, tmp_path: Path, fresh_python: Callable[..., str]
) -> None:
    for name in ("page", "norm"):
        library = tmp_path / f"{name}.so"
        library.write_text(name)
        kernels.pack([library], "0.6.12+cu130", "9.0a", tmp_path / "out")
    code = (
        "import flashinfer_jit_cache as cache; from pathlib import Path\n"
        "folder = Path(cache.get_jit_cache_dir())\n"
        "print(cache.__version__, *[(folder / name / f'{name}.so').read_text() for name in ('page', 'norm')])"
    )
    assert fresh_python(code, tmp_path / "out") == "0.6.12+cu130 page norm\n"


def test_the_list_needs_no_flashinfer(kernels: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    kernels.main(["--list"])
    assert set(kernels.NEEDED) < set(capsys.readouterr().out.split())


def test_a_missing_module_is_named(kernels: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        kernels.main(["--only", "page,pages"])
    assert "no module 'pages'; there are batch_prefill" in capsys.readouterr().err


def test_a_folder_without_a_compiler_is_named(kernels: ModuleType, tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match=r"there is no .*bin/nvcc: --cuda-home"):
        kernels.main(["--cuda-home", str(tmp_path)])
