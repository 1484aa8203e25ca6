"""`llmfw check` tests installed components against their interfaces and names broken promises."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from llmfw.api.cli import build_cli
from llmfw.core.plugin.kinds import INTERFACES
from llmfw.core.testing.installed import KITS

from ..length import also

REGISTER = """
@hookimpl
def register_{hook}(register):
    register("mine", __name__ + ":Mine")
"""
POLICY = REGISTER.format(hook="schedule_policies") + (
    "from llmfw.core.interfaces.policy import Ordering, SchedulePolicy\nclass Mine(SchedulePolicy):\n"
)
PARSER = REGISTER.format(hook="reasoning_parsers") + (
    "from llmfw.core.interfaces.parsers import ContentDelta, ReasoningParser\nclass Mine(ReasoningParser):\n"
    "    def feed(self, text): return [ContentDelta(text)] if text else []\n"
)
KEEPS = PARSER + "    def finish(self): return []\n"
LOSES = (
    PARSER.replace("[ContentDelta(text)]", "[ContentDelta(text[1:] or ' ')]")
    + "    def finish(self): return []\n"
)
HANGS = PARSER + "    def finish(self):\n        while True: pass\n"
RAISES = REGISTER.format(hook="eviction_rules") + (
    "from llmfw.core import EvictionRule\nclass Mine(EvictionRule):\n"
    "    def rank(self, leaf): return 0.0\n"
    "    def __init__(self, options): raise OSError('no disk')\n"
)


def check(line: str, *more: str) -> Result:
    """Run `llmfw check` here. That pytest runs in it, inside of pytest, it does not notice."""
    return CliRunner().invoke(build_cli(), ["check", *line.split(), *more])


def promises(done: Result) -> dict[str, Any]:
    assert done.stdout.startswith("{"), done.output
    return {promise["name"]: promise for promise in json.loads(done.stdout)["promises"]}


REQUIRES = POLICY + (
    "    class Options(SchedulePolicy.Options, frozen=True):\n        limit: int\n"
    "    def order(self, waiting, figures): return Ordering(())\n"
)


def test_a_missing_origin_is_one_line():
    done = check("middleware cors")
    assert done.exit_code == 2
    assert done.output.startswith("Error: middleware 'cors' of plugin 'http_middleware' (")
    assert "cors allows no origin; give -o 'middleware.cors.origins=" in done.output
    assert done.output.count("\n") == 1


def test_a_missing_required_option_is_one_line(install_plugin):
    install_plugin("ours", REQUIRES)
    done = check("policy mine")
    assert done.exit_code == 2
    assert "give -o policy.limit=VALUE" in done.output
    assert done.output.count("\n") == 1


KNOWS = """
from llmfw.core import Authenticator, Principal, hookimpl

@hookimpl
def register_authenticators(register):
    register("mine", f"{__name__}:Mine")

class Mine(Authenticator):
    async def authenticate(self, credentials):
        return Principal(tenant="ann") if credentials.bearer() == "sesame" else None
"""


def test_an_authenticator_needs_valid_headers(install_plugin):
    install_plugin("ours", KNOWS)
    for given, advice in (
        ("", "cannot be checked without valid: give it by --set valid=…"),
        ('--set valid={"authorization":"sesame"}', "has to be headers of a known client"),
    ):
        done = check(f"authenticator mine {given}")
        assert (done.exit_code, advice in done.output) == (2, True), done.output
        assert "BROKEN" not in done.output
    done = check("authenticator mine --set", 'valid=[["authorization", "Bearer sesame"]]')
    assert (done.exit_code, "0 broken" in done.output) == (0, True), done.output


def test_every_kind_has_a_conformance_kit():
    assert set(KITS) == set(INTERFACES)


COMPONENTS = (
    "tool-parser parsers_families/hermes",
    "drafter prompt-lookup -o drafter.min_ngram=2",
    *also(
        (
            "reasoning_parser qwen3",
            "chat_template chatml",
            "grammar llguidance",
            "policy lpm -o policy.max_overtaken=3",
            "file_store memory",
            "batch_store memory",
            "response_store sqlite",
            "model demo",
            "attention torch",
        )
    ),
)


@pytest.mark.parametrize("component", COMPONENTS)
def test_bundled_components_pass_their_kits(component):
    done = check(component)
    assert done.exit_code == 0, done.output
    assert "\nOK: " in done.stdout
    assert "FAILED" not in done.stdout


@pytest.fixture(scope="module")
def checked_in(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """Check a component in a folder with odd settings of pytest; return the folder and the output."""
    folder = tmp_path_factory.mktemp("checked")
    (folder / "pytest.ini").write_text("[pytest]\naddopts = --no-such-option\n")
    env = os.environ | {"PYTEST_ADDOPTS": "--no-such-option", "XDG_CACHE_HOME": f"{folder}-cache"}
    command = [sys.executable, "-m", "llmfw.api", "check", "reasoning_parser", "qwen3"]
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder, done.stdout


def test_checks_ignore_the_user_s_pytest_settings(checked_in: tuple[Path, str]) -> None:
    folder, output = checked_in
    assert "  ok       text between the tags is reasoning\n" in output
    assert [path.name for path in folder.iterdir()] == ["pytest.ini"]


def test_later_checks_find_the_tables_of_characters(checked_in: tuple[Path, str]) -> None:
    assert list(Path(f"{checked_in[0]}-cache").glob("llmfw/hypothesis/unicode_data/*/*.json.gz"))


@pytest.mark.long
def test_a_broken_promise_is_named_with_its_reason(install_plugin):
    install_plugin("ours", LOSES)
    done = check("reasoning_parser mine")
    assert done.exit_code == 1
    head, *lines = done.stdout.splitlines()
    assert "reasoning parser 'mine' of plugin 'ours'" in head
    assert "foreign 1.2" in head
    assert "  FAILED   text without tags is returned unchanged" in lines
    assert any("assert" in line and "It is sunny." in line for line in lines)
    assert any("does not have the capability closing" in line for line in lines if "  skipped" in line)
    assert lines[-1].startswith("BROKEN: ")


def test_an_endless_test_is_stopped(install_plugin):
    install_plugin("ours", HANGS)
    done = check("reasoning_parser mine --timeout 0.3 --json")
    assert done.exit_code == 1
    broken = promises(done)["test_empty_text_gives_no_deltas"]
    assert "after 0.3 s (--timeout) it had not come to an end" in broken["reason"]


def test_a_construction_error_is_printed_once(install_plugin):
    install_plugin("ours", RAISES)
    done = check("eviction mine")
    assert done.exit_code == 1
    assert done.stdout.count("OSError: no disk") == 1
    assert done.stdout.count("(as above)") == done.stdout.count("FAILED") - 1
    assert re.search(r"^ +at .*/plugin_\w+\.py:9$", done.stdout, re.MULTILINE)
    assert "raise OSError('no disk')" not in done.stdout


@pytest.mark.parametrize(
    ("ends", "how", "form"),
    [
        ("os._exit(0)", "with exit code 0", ()),
        ("os.kill(os.getpid(), 9)", "by signal 9 (Killed)", ("--json",)),
    ],
)
def test_a_component_that_ends_the_process_is_broken(install_plugin, ends, how, form):
    source = "import os\n" + PARSER.replace("return [ContentDelta(text)] if text else []", ends)
    folder = install_plugin("ending", source + "    def finish(self): return []\n")
    env = os.environ | {"PYTHONPATH": os.pathsep.join(map(str, filter(None, [folder, *sys.path])))}
    command = [sys.executable, "-m", "llmfw.api", "check", "reasoning_parser", "mine", *form]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stderr
    last = json.loads(done.stdout)["reason"] if form else done.stdout.splitlines()[-1]
    assert f"the component ended the process {how} while this was tested: " in last


def test_tracebacks_are_printed_on_demand(install_plugin):
    install_plugin("ours", RAISES)
    assert "raise OSError('no disk')" in check("eviction mine --verbose").stdout


def test_a_class_may_declare_fixture_values(install_plugin):
    declares = "    conformance = {'examples': [('Yes.', '', 'Yes.')]}\n"
    install_plugin("ours", KEEPS + declares)
    done = check("reasoning_parser mine --json")
    assert done.exit_code == 0
    found = promises(done)
    assert found["test_the_examples_are_split_correctly"]["outcome"] == "ok"
    assert "closing" in found["test_unclosed_text_is_reasoning"]["reason"]


def test_a_component_may_bring_its_test_class(install_plugin):
    own = (
        "    conformance = __name__ + ':MyTests'\nimport pytest\n"
        "from llmfw.core.testing import ReasoningParserTests\nclass MyTests(ReasoningParserTests):\n"
        "    @pytest.fixture\n    def parser(self): return Mine\n"
        "    def test_my_own_promise(self): assert False, 'mine is broken'\n"
    )
    install_plugin("ours", KEEPS + own)
    done = check("reasoning_parser mine --json")
    assert done.exit_code == 1
    assert "mine is broken" in promises(done)["test_my_own_promise"]["reason"]


def test_fixtures_can_be_set_by_name(install_plugin):
    done = check("reasoning_parser qwen3 --set exmples=[]")
    assert done.exit_code == 2
    assert "no fixture 'exmples'" in done.output
    assert "Did you mean 'examples'?" in done.output


def test_checking_nothing_is_exit_code_2():
    done = check("attention triton")
    assert done.exit_code == 2
    assert "NOTHING CHECKED" in done.stdout or "needs triton" in done.output


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("polcy fcfs", "there is no kind 'polcy'; kinds are attention, .* Did you mean 'policy'?"),
        ("policy fcsf", "unknown policy 'fcsf'; known: .*Did you mean 'fcfs'?"),
        ("policy lpm -o policy.max_overtakn=3", "policy 'lpm' has no option 'max_overtakn'"),
        ("policy lpm -o attention.workspace_mb=3", "option 'attention.workspace_mb' is not one of a policy"),
    ],
)
def test_an_impossible_check_explains_itself(line, message):
    done = check(line)
    assert done.exit_code == 2
    assert re.search(message.replace("?", r"\?"), " ".join(done.output.split()))


def test_a_missing_requirement_is_named(install_plugin):
    install_plugin("ours", KEEPS.replace(':Mine")', ":Mine\", needs=('no_such_module',))"))
    done = check("reasoning_parser mine")
    assert done.exit_code == 2
    assert "needs no_such_module, which is not installed" in done.output


def test_a_missing_method_is_named(install_plugin):
    install_plugin("ours", POLICY + "    pass\n")
    done = check("policy mine")
    assert done.exit_code == 1
    assert "lacks order, which llmfw.core.SchedulePolicy asks for" in done.output


def test_without_pytest_the_install_command_is_shown(monkeypatch):
    monkeypatch.setitem(sys.modules, "hypothesis", None)
    done = check("policy fcfs")
    assert done.exit_code == 2
    assert "needs hypothesis, which is not installed: pip install 'llmfw-engine[testing]'" in done.output
