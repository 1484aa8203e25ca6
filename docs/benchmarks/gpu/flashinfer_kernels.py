"""Compile FlashInfer's kernels where there is CUDA's toolkit, with or without a GPU.

    python docs/benchmarks/gpu/flashinfer_kernels.py --cuda-home /usr/local/cuda --out kernels

writes the package `kernels/flashinfer_jit_cache`, from which FlashInfer loads ready kernels wherever it can be imported.
They fit FlashInfer of the same version, any version of Python and torch, and the architectures named by --arch. What is
compiled already is not compiled again. docs/attention_flashinfer.md says more.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

PACKAGE = '''"""Compiled kernels of FlashInfer, for compute capability {arch}."""

from pathlib import Path

__version__ = "{version}"


def get_jit_cache_dir():
    return str(Path(__file__).parent / "kernels")
'''
NEEDED = ("batch_prefill", "batch_decode")
"""What the attention backend calls: prompts and, on tensor cores, single tokens; single tokens without them."""

LOAD = """
import ctypes, sys, tvm_ffi
for name in sys.argv[1:3]:
    ctypes.CDLL(name, mode=ctypes.RTLD_GLOBAL)
for path in sys.argv[3:]:
    tvm_ffi.load_module(path)
"""


def main(arguments: Sequence[str] | None = None) -> None:
    """Build, pack, and see whether what was packed can be loaded."""
    options = parse(arguments)
    if options.list:
        print("\n".join(modules()))
        return
    nvcc = options.cuda_home / "bin" / "nvcc"
    if not nvcc.exists():
        sys.exit(f"there is no {nvcc}: --cuda-home names the folder of CUDA's toolkit")
    scratch = (options.scratch or options.out.with_name(f".{options.out.name}-build")).resolve()
    prepare(options, scratch)
    built = [build(name, spec) for name in options.only for spec in modules()[name](options)]
    package = pack(built, version_of_kernels(nvcc), options.arch, options.out)
    load(package, options.cuda_home, scratch / "stubs")
    size = sum(path.stat().st_size for path in package.rglob("*.so")) / 2**20
    print(f"{len(built)} modules, {size:.2f} MiB, in {package}")


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Return the command line's options."""
    parser = argparse.ArgumentParser(description="Compile FlashInfer's kernels, with or without a GPU.")
    add = parser.add_argument
    add("--list", action="store_true", help="print the names of modules, and end")
    add("--out", type=Path, default=Path("kernels"), help="folder to write flashinfer_jit_cache to")
    add("--scratch", type=Path, help="folder to compile in; default: beside --out")
    add("--cuda-home", type=Path, default=Path(os.environ.get("CUDA_HOME", "/usr/local/cuda")))
    add("--arch", default="9.0a", help="compute capabilities, separated by spaces")
    add("--only", type=names, default=list(NEEDED), help="modules, separated by commas")
    add("--dtype", choices=("bfloat16", "float16"), default="bfloat16")
    add("--kv-cache-dtype", choices=("auto", "fp8_e4m3", "fp8_e5m2"), default="auto")
    add("--head-dim", type=int, choices=(64, 128, 256), default=128)
    add("--window", action="store_true", help="for layers with a sliding window")
    add("--soft-cap", action="store_true", help="for layers with a soft cap")
    add("--fa3", action="store_true", help="for prompts: Hopper's own kernels")
    add(
        "--include", type=Path, action="append", default=[], help="folder with headers that the toolkit lacks"
    )
    add("--jobs", type=int, default=os.cpu_count())
    return parser.parse_args(arguments)


def names(text: str) -> list[str]:
    """Return names of modules.

    Raises:
        argparse.ArgumentTypeError: there is no module of such a name.
    """
    found = text.split(",")
    if unknown := [name for name in found if name not in modules()]:
        raise argparse.ArgumentTypeError(f"no module {unknown[0]!r}; there are {', '.join(modules())}")
    return found


def prepare(options: argparse.Namespace, scratch: Path) -> None:
    """Say where FlashInfer finds what it needs, before it is imported, and put there what this machine lacks."""
    stubs = scratch / "stubs"
    stubs.mkdir(parents=True, exist_ok=True)
    library = stubs / "libcuda.so"  # the driver's: only its name is linked against
    compiler = os.environ.get("CXX", "c++")
    command = [compiler, "-shared", "-o", library, "-Wl,-soname,libcuda.so.1", "-x", "c", os.devnull]
    subprocess.run(command, check=True)
    shutil.copy(library, stubs / "libcuda.so.1")
    for header in ("cublasLt.h", "cublas_v2.h"):  # included by norm, which uses nothing of them
        if not (options.cuda_home / "include" / header).exists():
            (stubs / header).touch()
    os.environ |= {
        "CUDA_HOME": str(options.cuda_home.resolve()),
        "CUDA_VISIBLE_DEVICES": "",
        "FLASHINFER_CUDA_ARCH_LIST": options.arch,
        "FLASHINFER_EXTRA_CUDAFLAGS": " ".join(f"-I{path}" for path in (*options.include, stubs)),
        "FLASHINFER_EXTRA_LDFLAGS": f"-L{stubs}",
        "FLASHINFER_WORKSPACE_BASE": str(scratch),
        "MAX_JOBS": str(options.jobs),
    }
    os.environ.pop("FLASHINFER_DISABLE_JIT", None)


Specs = Callable[[argparse.Namespace], Iterator[Any]]


def modules() -> dict[str, Specs]:
    """Return which modules there are, each with what gives FlashInfer's specifications of it."""
    return {
        "batch_prefill": batch_prefill,
        "batch_decode": batch_decode,
        "page": lambda options: plain("page", "gen_page_module"),
        "cascade": lambda options: plain("cascade", "gen_cascade_module"),
        "silu_and_mul": lambda options: plain("activation", "gen_act_and_mul_module", "silu"),
        "norm": lambda options: plain("norm", "gen_norm_module"),
        "rope": lambda options: plain("rope", "gen_rope_module"),
        "sampling": lambda options: plain("sampling", "gen_sampling_module"),
    }


def batch_prefill(options: argparse.Namespace) -> Iterator[Any]:
    """Yield the modules of BatchPrefillWithPagedKVCacheWrapper."""
    from flashinfer.jit.attention import gen_batch_prefill_module

    for backend in ("fa2", "fa3") if options.fa3 else ("fa2",):
        yield gen_batch_prefill_module(backend, *shape(options), False)


def batch_decode(options: argparse.Namespace) -> Iterator[Any]:
    """Yield the module of BatchDecodeWithPagedKVCacheWrapper, where it does not use tensor cores."""
    from flashinfer.jit.attention import gen_batch_decode_module

    yield gen_batch_decode_module(*shape(options))


def shape(options: argparse.Namespace) -> tuple[Any, ...]:
    """Return the dtypes of queries, keys and values, output and page ids, and for which layers, as FlashInfer asks."""
    import torch

    dtype = getattr(torch, options.dtype)
    fp8 = {"fp8_e4m3": torch.float8_e4m3fn, "fp8_e5m2": torch.float8_e5m2}
    stored_as = fp8.get(options.kv_cache_dtype, dtype)
    no_positions = 0
    dims = (options.head_dim, options.head_dim)
    return (dtype, stored_as, dtype, torch.int32, *dims, no_positions, options.window, options.soft_cap)


def plain(module: str, function: str, *arguments: str) -> Iterator[Any]:
    """Yield a module that depends on neither shapes nor dtypes."""
    import importlib

    yield getattr(importlib.import_module(f"flashinfer.jit.{module}"), function)(*arguments)


def build(name: str, spec: Any) -> Path:
    """Compile a module; return its file."""
    started = time.perf_counter()
    if name == "sampling" and not found_curand():
        sys.exit("sampling needs curand.h: --include the folder `include` of the wheel nvidia-curand")
    spec.build(False)
    built = Path(spec.jit_library_path)
    seconds, mebibytes = time.perf_counter() - started, built.stat().st_size / 2**20
    print(f"{name}: {built.name}, {seconds:.0f} s, {mebibytes:.2f} MiB", flush=True)
    return built


def found_curand() -> bool:
    """Return whether cuRAND's headers are where the compiler looks."""
    folders = [part.removeprefix("-I") for part in os.environ["FLASHINFER_EXTRA_CUDAFLAGS"].split()]
    return any(
        (Path(folder) / "curand.h").exists() for folder in (*folders, f"{os.environ['CUDA_HOME']}/include")
    )


def version_of_kernels(nvcc: Path) -> str:
    """Return FlashInfer's version and the toolkit's, "0.6.12+cu130": it has to begin with FlashInfer's."""
    from importlib.metadata import version

    said = subprocess.run([nvcc, "--version"], check=True, capture_output=True, text=True).stdout
    toolkit = said.partition("release ")[2].partition(",")[0].replace(".", "")
    return f"{version('flashinfer-python')}+cu{toolkit}"


def pack(built: Sequence[Path], version: str, arch: str, out: Path) -> Path:
    """Write the package: each module as NAME/NAME.so, where FlashInfer looks for it. Others that are there stay."""
    package = out / "flashinfer_jit_cache"
    for library in built:
        folder = package / "kernels" / library.stem
        folder.mkdir(parents=True, exist_ok=True)
        shutil.copy(library, folder)
    (package / "__init__.py").write_text(PACKAGE.format(arch=arch, version=version))
    return package


def load(package: Path, cuda_home: Path, stubs: Path) -> None:
    """Load every packed module in a fresh process, as FlashInfer does, with the toolkit's runtime and no driver."""
    runtime = cuda_home / "lib64" / "libcudart.so"
    libraries = sorted(package.rglob("*.so"))
    command = [sys.executable, "-c", LOAD, stubs / "libcuda.so.1", runtime, *libraries]
    subprocess.run(command, check=True)
    print("loaded:", ", ".join(library.stem for library in libraries))


if __name__ == "__main__":
    main()
