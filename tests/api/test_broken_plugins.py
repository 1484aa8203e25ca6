"""Thirteen ways in which a plugin can be broken: real packages, the real command line. Each is one clear line.

packages/          one folder, as pip lays packages out
  NAME.py          the declaring module of plugin NAME, of the package ext-NAME 1.2
  NAME_component.py     what it names
  ext_NAME-1.2.dist-info/
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from ..crash import serve_echo
from .app.test_serve import LLMFW, MODEL, READY, Process

DECLARED = "from llmfw.core import hookimpl\n@hookimpl\ndef register_{hook}(register):\n    register({name!r}, '{module}:Component')\n"
POLICY = "from llmfw.core.interfaces.policy import Ordering, SchedulePolicy\n"
TEMPLATE = "from llmfw.core.interfaces.chat_template import ChatTemplate\nclass Component(ChatTemplate):\n"
RENDER = "    def render(self, messages, **kwargs):\n        return str(messages[-1]['content'])\n"

ENDLESS = "import time\ntime.sleep(600)\n"

RIVAL = """
from litestar import post

@post("/rerank")
async def rerank() -> None: ...

@hookimpl
def register_routes(register):
    register(__name__ + ":rerank")
"""

STORE = """
from llmfw.plugins.store_memory.responses import MemoryResponses

class Component(MemoryResponses):
    async def unfinished(self):
        raise OSError("no such disk")
"""

AT_LOAD = {
    "syntax": ("def register(:", r"SyntaxError: invalid syntax \(syntax\.py, line 1\)"),
    "dependency": ("import no_such_kernels", "ModuleNotFoundError: No module named 'no_such_kernels'"),
    "signature": (
        "from llmfw.core import hookimpl\n@hookimpl\ndef register_models(register, engine): pass",
        "register_models has the argument 'engine', which this llmfw does not pass; it passes 'register'",
    ),
    "undecorated": ("def register_models(register): pass", r"register_models has no @hookimpl"),
    "misspelt": (
        "from llmfw.core import hookimpl\n@hookimpl\ndef register_model(register): pass",
        "there is no hook 'register_model'. Did you mean 'register_models'",
    ),
    "newer": ("from llmfw.core import hookimpl", r"it needs llmfw-engine>=9, and this is llmfw \d"),
    "policies": (
        "from llmfw.core import hookimpl",
        "another package brings a plugin of this name .*: llmfw-engine ",
    ),
}
"""Plugin → its declaring module, and why it does not load."""

COMPONENTS = {
    "same_a": ("schedule_policies", "same", POLICY),
    "same_b": ("schedule_policies", "same", POLICY),
    "optioned": (
        "schedule_policies",
        "optioned",
        POLICY + "class Component(SchedulePolicy):\n    class Options(SchedulePolicy.Options, frozen=True):\n"
        "        count: int = 1\n    def order(self, waiting, figures): return Ordering.by(waiting.arrival)\n",
    ),
    "lacking": ("chat_templates", "lacking", TEMPLATE + "    pass\n"),
    "unbuilt": (
        "chat_templates",
        "unbuilt",
        TEMPLATE + RENDER + "    def __init__(self, *args):\n        raise OSError('no such\\nfont')\n",
    ),
    "first_use": (
        "chat_templates",
        "first_use",
        TEMPLATE + "    def render(self, messages, **kwargs):\n        return messages[7]\n",
    ),
    "unread": ("response_stores", "unread", STORE),
    "in_engine": ("schedule_policies", "in_engine", "raise OSError('no such device')\n"),
    "best_attention": ("attention_backends", "best", "raise OSError('no such device')\n"),
}
"""Plugin → its hook, the name of its component, and the component's module."""


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("packages")
    modules = {name: source for name, (source, _) in AT_LOAD.items()}
    for name, (hook, component, source) in COMPONENTS.items():
        declared = DECLARED.format(hook=hook, name=component, module=f"{name}_component")
        modules[name] = (
            declared.replace("Component')", "Component', rank=1000)")
            if name == "best_attention"
            else declared
        )
        (folder / f"{name}_component.py").write_text(source)
    for name, source in modules.items():
        install(folder, name, source)
    return folder


def install(folder: Path, name: str, source: str) -> None:
    """Lay out a package with a plugin in a folder of packages."""
    module = "policies_too" if name == "policies" else name
    (folder / f"{module}.py").write_text(source)
    about = folder / f"ext_{name}-1.2.dist-info"
    about.mkdir()
    needs = "Requires-Dist: llmfw-engine>=9\n" if name == "newer" else "Requires-Dist: llmfw-engine\n"
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: ext-{name}\nVersion: 1.2\n{needs}")
    (about / "entry_points.txt").write_text(f"[llmfw]\n{name} = {module}\n")


def environment(packages: Path) -> dict[str, str]:
    env = {name: value for name, value in os.environ.items() if not name.startswith("LLMFW_")}
    return env | {"PYTHONPATH": str(packages)}


LLMFW_API = (sys.executable, "-m", "llmfw.api")


def command(
    packages: Path, *args: str, python: tuple[str, ...] = LLMFW_API
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*python, *args],
        env=environment(packages),
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
    )


def errors_of(done: subprocess.CompletedProcess[str]) -> list[str]:
    """Return what a command wrote of its own, without the warnings that each plugin gets."""
    assert "Traceback" not in done.stderr
    return [
        line
        for line in done.stderr.splitlines()
        if line and not re.match(r"warning: |Usage: |Try |\[\d{4}-|llmfw: still importing", line)
    ]


def test_plugin_free_commands_ignore_broken_plugins(packages: Path) -> None:
    done = command(packages, "--version")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("llmfw")


@pytest.fixture(scope="module")
def listed(packages: Path) -> subprocess.CompletedProcess[str]:
    return command(packages, "plugins", "--json")


@pytest.mark.parametrize("plugin", AT_LOAD)
def test_a_broken_plugin_is_one_line(listed: subprocess.CompletedProcess[str], plugin: str) -> None:
    """It names package, version and cause."""
    assert listed.returncode == 0
    [broken] = [broken for broken in json.loads(listed.stdout)["broken"] if broken["name"] == plugin]
    assert (broken["package"], broken["version"]) == (f"ext-{plugin}", "1.2")
    assert re.search(AT_LOAD[plugin][1], broken["reason"])
    assert "\n" not in broken["reason"]


@pytest.fixture(scope="module")
def with_endless(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of packages with a plugin whose import does not end while a test waits."""
    folder = tmp_path_factory.mktemp("endless")
    install(folder, "endless", ENDLESS)
    return folder


def test_plugin_free_commands_ignore_slow_plugins(with_endless: Path) -> None:
    done = command(with_endless, "--version")
    assert (done.returncode, done.stderr) == (0, "")


def test_a_slow_import_is_named_while_waiting(with_endless: Path) -> None:
    process = subprocess.Popen(
        [*LLMFW_API, "plugins"], env=environment(with_endless), stderr=subprocess.PIPE, text=True
    )
    assert process.stderr is not None
    with process.stderr:
        line = process.stderr.readline()
        process.kill()
        process.wait(20)
    assert line == "llmfw: still importing plugin 'endless' (ext-endless 1.2) after 1 s …\n"


@pytest.mark.long
@pytest.mark.parametrize(
    ("args", "code", "cause"),
    [
        (
            "--policy same",
            2,
            "policy 'same' is brought by 2 plugins; choose one of: same_a/same, same_b/same",
        ),
        (
            "--policy syntax",
            1,
            r"there is no policy 'syntax': plugin 'syntax' \(ext-syntax 1\.2\) did not load: SyntaxErr",
        ),
        (
            "--tool-parser the_dependency",
            1,
            r"tool parser 'the_dependency': plugin 'dependency' \(ext-dependency 1\.2\) did not load: Module",
        ),
        (
            "--policy of_nobody",
            1,
            r"unknown policy 'of_nobody'; known: .*plugin 'dependency' .* did not load: .*plugin 'syntax' .* did",
        ),
        ("--policy lmp", 2, r"unknown policy 'lmp'; known: .*Did you mean 'lpm'"),
        ("newer", 1, r"there is no model 'newer': plugin 'newer' \(ext-newer 1\.2\) did not load: it needs"),
        ("--chat-template lacking", 1, r"'lacking' of plugin 'lacking' \(ext-lacking 1\.2, .* lacks render"),
        (
            "--chat-template unbuilt",
            1,
            r"'unbuilt' of plugin 'unbuilt' \(ext-unbuilt 1\.2, .* cannot be built: OSError: no such font",
        ),
        pytest.param(
            "--policy optioned -o policy.count=many",
            1,
            r"policy 'optioned' of plugin 'optioned' \(ext-optioned 1\.2, .*count is .*; it must be a whole number",
            marks=pytest.mark.slow,  # the engine process starts, and imports torch
        ),
        pytest.param(
            "--policy in_engine",
            1,
            r"'in_engine' of plugin 'in_engine' \(ext-in_engine 1\.2, .* cannot be imported: OSError: no such device",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_a_needed_broken_component_ends_the_server(packages: Path, args: str, code: int, cause: str) -> None:
    done = command(packages, "serve", "--port", "0", *args.split())
    assert done.returncode == code, done.stderr
    assert ("Usage:" in done.stderr) == (code == 2)
    lines = errors_of(done)
    assert len(lines) == 1, done.stderr
    [line] = lines
    assert line.startswith("Error: ")
    assert re.search(cause, line), line


def test_a_shared_path_fails_before_loading(tmp_path: Path, install_plugin: Callable[..., Path]) -> None:
    (tmp_path / "config.json").write_text(json.dumps(MODEL))
    done = command(
        install_plugin("rival", RIVAL), "serve", str(tmp_path), "--load-format", "dummy", "--port", "0"
    )
    assert done.returncode == 1, done.stderr
    last = done.stderr.splitlines()[-1]
    assert "of plugin 'rival'" in last
    assert "POST /rerank by route 'llmfw.plugins.api_pooling" in last
    assert "Load weight" not in done.stderr


def test_a_store_failing_at_start_ends_the_server(packages: Path, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"vocab_size": 1000}')
    args = (str(tmp_path), "--load-format", "dummy", "--port", "0", "--response-store", "unread")
    done = command(packages, *args, python=(sys.executable, serve_echo.__file__))
    assert done.returncode == 1, done.stderr
    assert done.stderr.splitlines()[-1] == (
        "Error: response store 'unread' of plugin 'unread' (ext-unread 1.2, unread_component:Component) failed in unfinished() as "
        "the server started: OSError: no such disk"
    )
    assert [line for line in errors_of(done) if "Error" in line] == [done.stderr.splitlines()[-1]]
    assert "ready to roll" not in done.stderr


@contextmanager
def serving(packages: Path, *command: str) -> Iterator[Process]:
    """Run a server among all of these packages, whose chat template breaks at its first use."""
    popen = subprocess.Popen(
        [*command, "--port", "0", "--chat-template", "first_use"],
        env=environment(packages),
        stderr=subprocess.PIPE,
        text=True,
    )
    process = Process(popen)
    reader = threading.Thread(target=process.read)
    reader.start()
    try:
        process.wait_for(READY)
        yield process
    finally:
        popen.kill()
        popen.wait(20)
        reader.join(20)
        assert popen.stderr is not None
        popen.stderr.close()


def test_a_failing_component_fails_only_its_request(packages: Path, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"vocab_size": 256, "eos_token_id": 1}')
    messages = {"messages": [{"role": "user", "content": "Hi"}]}
    command = (sys.executable, serve_echo.__file__, str(tmp_path), "--load-format", "dummy")
    with serving(packages, *command) as server:
        reply = httpx.post(f"{server.url}/v1/chat/completions", json=messages, timeout=20)
        assert (reply.status_code, reply.json()["error"]["code"]) == (500, "plugin_error")
        assert "chat template 'first_use' of plugin 'first_use' failed" in reply.json()["error"]["message"]
        server.wait_for("(ext-first_use 1.2, first_use_component:Component) failed in render(): IndexError")
        reply = httpx.post(f"{server.url}/v1/completions", json={"prompt": "Hi", "max_tokens": 3}, timeout=20)
        assert reply.status_code == 200
        figures = httpx.get(f"{server.url}/metrics").text
    component = 'kind="chat_template",name="first_use",plugin="first_use"'
    assert f"llmfw_plugin_failures_total{{{component}}} 1.0\n" in figures


@pytest.mark.long
@pytest.mark.slow
def test_a_server_serves_among_broken_plugins(packages: Path) -> None:
    """It reports each of them once."""
    with serving(packages, *LLMFW, "--dtype", "float32") as server:
        reply = httpx.post(f"{server.url}/v1/completions", json={"prompt": "Hi", "max_tokens": 3}, timeout=20)
        assert reply.status_code == 200
        figures = httpx.get(f"{server.url}/metrics").text
    assert 'llmfw_plugin_seconds_total{kind="policy",name="lpm",plugin="policies"}' in figures
    for name, (_, cause) in AT_LOAD.items():
        [line] = [line for line in server.lines if f"warning: plugin {name!r}" in line]
        assert re.match(rf"warning: plugin '{name}' \(ext-{name} 1\.2\) did not load: .*{cause}", line)
    [line] = [line for line in server.lines if "Attention backend" in line]
    assert re.search(
        r"'best' of plugin 'best_attention' .* cannot be imported: OSError: no such device", line
    )
    assert "Traceback" not in server.log
