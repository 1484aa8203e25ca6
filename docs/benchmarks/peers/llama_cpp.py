"""llama.cpp's own server, built for this machine from the sources that its Python binding is distributed with."""

from __future__ import annotations

import os
import shutil
import tarfile
from pathlib import Path

from servers import KV_TOKENS, Server

from .peer import CannotInstallError, Home, Peer

SLOTS = 16
CACHE_MIB = 1024  # of prompts whose slot was taken; by default 8 GiB, which a machine with several servers does not have
BUILD = "-DCMAKE_BUILD_TYPE=Release -DGGML_NATIVE=ON -DLLAMA_CURL=OFF -DLLAMA_BUILD_TESTS=OFF -DLLAMA_BUILD_EXAMPLES=OFF"
SERVER = "-DLLAMA_BUILD_SERVER=ON -DLLAMA_BUILD_UI=OFF -DLLAMA_USE_PREBUILT_UI=OFF -DBUILD_SHARED_LIBS=OFF"


def install(home: Home) -> None:
    """Fetch the sources and build `llama-server` and `llama-quantize`; what is built already is kept.

    Raises:
        CannotInstallError: there is no compiler or no cmake, or the build failed.
    """
    for tool in ("cmake", "make", "c++"):
        if shutil.which(tool) is None:
            raise CannotInstallError(f"{tool} is not on the PATH")
    sources = fetch(home)
    # Unix Makefiles: with Ninja the build begins again and again ("manifest still dirty").
    home.run(
        ["cmake", "-B", "build", "-G", "Unix Makefiles", *BUILD.split(), *SERVER.split()],
        cwd=sources,
    )
    jobs = os.environ.get("JOBS", str(os.cpu_count()))
    home.run(
        ["cmake", "--build", "build", f"-j{jobs}", "--target", "llama-server", "llama-quantize"], cwd=sources
    )


def fetch(home: Home) -> Path:
    """Return the folder of llama.cpp's sources, downloaded and unpacked if it is not there.

    Raises:
        CannotInstallError: it cannot be had, or holds no llama.cpp.
    """
    package = str(home.pinned["sources"])
    unpacked = home.folder / "src" / package.replace("==", "-")
    if not unpacked.exists():
        download, part = home.folder / "download", unpacked.with_suffix(".part")
        shutil.rmtree(download, ignore_errors=True)
        shutil.rmtree(part, ignore_errors=True)
        # Without build isolation pip takes scikit-build-core, which tells it the package's name, from this environment.
        command = ["download", package, "--no-deps", "--no-binary", ":all:", "--no-build-isolation"]
        home.pip(*command, "--dest", str(download))
        [archive] = download.glob("*.tar.gz")
        with tarfile.open(archive) as tar:
            tar.extractall(part, filter="data")
        part.rename(unpacked)
    found = sorted(unpacked.glob("*/vendor/llama.cpp"))
    if not found:
        raise CannotInstallError(f"{package} holds no vendor/llama.cpp")
    return found[0]


def program(home: Home, name: str) -> Path:
    """Return a program of the build."""
    return fetch(home) / "build" / "bin" / name


def serve(home: Home, model: Path, _folder: Path) -> Server:
    """Return the server: each slot with keys and values of its own, which was faster than all in one."""
    threads = str(os.cpu_count())
    command = [str(program(home, "llama-server")), "-m", str(model)]
    command += ["--host", "127.0.0.1", "--port", "{port}"]
    command += ["--parallel", str(SLOTS), "-c", str(KV_TOKENS), "--no-kv-unified", "--cont-batching"]
    command += ["--cache-ram", str(CACHE_MIB)]
    command += ["-t", threads, "-tb", threads, "-b", "2048", "-ub", "512", "-fa", "on", "--no-webui"]
    return Server("llama.cpp", command)


def _peer(name: str, bits: int, weights: str) -> Peer:
    return Peer(name, "llama.cpp", bits, weights, serve)


PEERS = [
    _peer("llama.cpp-bf16", 16, "bf16"),
    _peer("llama.cpp-f16", 16, "f16"),
    _peer("llama.cpp-q8_0", 8, "q8_0"),
    _peer("llama.cpp-q4_k_m", 4, "q4_k_m"),
]
