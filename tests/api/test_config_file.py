"""Settings from a file, the environment and the command line: which goes first, and how wrong ones are answered."""

from __future__ import annotations

import os
import re
import tomllib
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result

from llmfw.api.access.key_text import hashed
from llmfw.api.cli import build_cli
from llmfw.api.commands.batch.run import run_command
from llmfw.api.commands.serve import build_configs, serve_command
from llmfw.api.settings.component_options import naming_sources
from llmfw.api.settings.options import config_names
from llmfw.core.base.errors import ConfigError
from llmfw.core.plugin.model_name import ResolvedModel

WRONG = {
    "prot = 1": "'prot' in FILE: there is no such setting; did you mean 'port'",
    "max_total_tokens = 1": "did you mean 'max-total-tokens'",
    "option = 'policy.x=1'": "'option' in FILE: there is no such setting",
    "port = '1'": "'port' in FILE: it is '1'; it must be a whole number, 0 to 65535",
    "host = ''": "'host' in FILE: it is empty; leave it out, or give a value",
    "port = true": "'port' in FILE: it is True; it must be a whole number",
    "port = 70000": "'port' in FILE: it is 70000; it must be a whole number, 0 to 65535",
    "batch-share = 'a'": "'batch-share' in FILE: it is 'a'; it must be a finite number, 0 to 1",
    "strict-params = 1": "'strict-params' in FILE: it is 1; it must be true | false",
    "policy = 'lmp'": "'policy' in FILE: unknown policy 'lmp'.*Did you mean 'lpm'",
    "policy = ['lpm']": "'policy' in FILE: it is .*; it must be text",
    "no-plugin = [1]": "'no-plugin' in FILE: it is .1.; it must be a list of: text",
    "no-plugin = 'nope'": "'no-plugin' in FILE: there is no plugin 'nope'",
    "policy = 'lpm'\nschedule-policy = 'fcfs'": "'schedule-policy' in FILE: the setting is there twice",
    "log-level = 'loud'": "'log-level' in FILE: it is 'loud'; it must be one of debug, info",
    "[policy]\nname = 'lpm'": "'policy' in FILE: it is a table; options of a component stand in .options.policy.",
    "[attentoin]\nx = 1": "'attentoin' in FILE: there is no such table; options of a component stand in",
    "options = 1": "'options' in FILE: options stand in a table for each kind",
    "[options]\npolicy = 1": "'options.policy' in FILE: options stand in a table",
    "[options.polcy]\nx = 1": "'options.polcy.x' in FILE: there is no component option 'polcy.x'; .*policy.…",
    "[options.policy]\nx = 1979-05-27": "'options.policy.x' in FILE: 1979-05-27 is neither",
    "port = \n": "'--config': .*FILE' is not a TOML file: .*line 1",
}


@pytest.fixture
def write(tmp_path: Path):
    def write(text: str) -> str:
        (tmp_path / "llmfw.toml").write_text(text)
        return str(tmp_path / "llmfw.toml")

    return write


def configs(*line: str, command: click.Command = serve_command) -> dict[str, Any]:
    with command.make_context("serve", [*line]) as ctx:
        both = build_configs(ResolvedModel("/m", "m"), ctx.params)
    return {name: getattr(struct, name) for struct in both for name in struct.__struct_fields__}


def serve(*line: str) -> Result:
    return CliRunner().invoke(build_cli(), ["serve", *line])


def test_command_line_beats_environment_beats_file(write, monkeypatch):
    file = write("port = 1\nmax-total-tokens = 1\npage-size = 1")
    monkeypatch.setenv("LLMFW_PORT", "2")
    monkeypatch.setenv("LLMFW_MAX_TOTAL_TOKENS", "2")
    found = configs("--config", file, "--port", "3")
    assert (found["port"], found["max_total_tokens"], found["page_size"]) == (3, 2, 1)
    assert found["max_prefill_tokens"] == 16384


def test_values_of_every_type_are_read_from_files(write):
    file = write(
        "api-key = ['ann=k', 'bob=l']\nstrict-params = true\nbatch-share = 1\nprefill-stretch = 0.5\n"
        "schedule-policy = 'fcfs'\nno-plugin = 'bench'\ndisable-overlap-schedule = true\nrandom-seed = 7"
    )
    found = configs("--config", file)
    expected = {
        "api_key": (("ann", hashed("k")), ("bob", hashed("l"))),
        "strict_params": True,
        "batch_share": 1.0,
        "prefill_stretch": 0.5,
        "policy": "fcfs",
        "disabled_plugins": ("bench",),
        "overlap": False,
        "random_seed": 7,
    }
    assert {name: found[name] for name in expected} == expected


def test_component_options_are_merged_one_by_one(write, monkeypatch):
    file = write("[options.policy]\na = 1\nb = 1\nc = 1\nd = [1, 'x']\n[options.attention]\ne = true")
    monkeypatch.setenv("LLMFW_POLICY__B", "2")
    monkeypatch.setenv("LLMFW_POLICY__C", "2")
    found = configs("--config", file, "-o", "policy.c=3")["options"]
    assert found == {
        "policy.a": 1,
        "policy.b": "2",
        "policy.c": "3",
        "policy.d": [1, "x"],
        "attention.e": True,
    }


SAME = {
    "port": (70000, "70000; it must be a whole number, 0 to 65535"),
    "batch-share": (1.5, "1.5; it must be a finite number, 0 to 1"),
    "log-level": ("loud", "'loud'; it must be one of debug, info, warning, error"),
    "device": ("GPU0", "'GPU0'; it must be a device, such as auto, cpu, cuda or cuda:1"),
    "chunked-prefill-size": (0, "0; give 1 or more, or -1 to never cut prompts"),
    "adapter": ("a", "'a'; write NAME=PATH"),
}


@pytest.mark.parametrize(("key", "value", "wrong"), [(key, *each) for key, each in SAME.items()])
def test_flag_variable_and_file_refuse_alike(write, monkeypatch, key, value, wrong):
    flag = serve("/nowhere", f"--{key}={value}").stderr
    file = serve("/nowhere", "--config", write(f"{key} = {value!r}")).stderr
    monkeypatch.setenv(f"LLMFW_{key.upper().replace('-', '_')}", str(value))
    for text in (flag, file, serve("/nowhere").stderr):
        assert " ".join(text.split()).endswith(f": it is {wrong}")


def test_spellings_of_a_component_are_one_option(write, monkeypatch):
    """A variable cannot have the "-" of `request-log`; it replaces the file's option, and -o replaces both."""
    file = write("[options.observer.request-log]\npath = 'file'")
    monkeypatch.setenv("LLMFW_OBSERVER__REQUEST_LOG__PATH", "variable")
    assert configs("--config", file)["options"] == {"observer.request_log.path": "variable"}
    given = ["-o", "observer.request-log.path=given"]
    assert configs("--config", file, *given)["options"] == {"observer.request-log.path": "given"}
    twice = serve("/nowhere", *given, "-o", "observer.request_log.path=again")
    assert "'observer.request_log.path' is given twice: 'given' and 'again'" in twice.stderr


def test_every_setting_has_its_environment_variable(monkeypatch):
    variables = [param.variable for param in serve_command.params if getattr(param, "variable", None)]
    assert {"LLMFW_PORT", "LLMFW_MODEL", "LLMFW_API_KEY", "LLMFW_DISABLE_RADIX_CACHE"} < set(variables)
    assert len(set(variables)) == len(variables) > 40
    expected = configs("--random-seed", "0")
    for variable in variables:
        monkeypatch.setenv(variable, "")
    assert configs("--random-seed", "0") == expected


def test_flags_and_lists_are_read_from_the_environment(monkeypatch):
    monkeypatch.setenv("LLMFW_STRICT_PARAMS", "true")
    monkeypatch.setenv("LLMFW_NO_PLUGIN", "bench, simulator")
    monkeypatch.setenv("LLMFW_API_KEY", "ann=k\nbob=l")
    monkeypatch.setenv("LLMFW_ADAPTER", "a=/my folder/x\nb=/y")
    found = configs()
    assert found["strict_params"] is True
    assert found["adapters"] == ("a=/my folder/x", "b=/y")
    assert found["disabled_plugins"] == ("bench", "simulator")
    assert found["api_key"] == (("ann", hashed("k")), ("bob", hashed("l")))


def test_the_environment_may_name_the_file(write, monkeypatch):
    monkeypatch.setenv("LLMFW_CONFIG", write("log-level = 'error'"))
    assert configs()["log_level"] == "error"


@pytest.mark.parametrize(("text", "message"), WRONG.items())
def test_a_wrong_file_names_key_and_file(write, text, message):
    file = write(text)
    result = serve("--config", file, "/nowhere")
    assert result.exit_code == 2
    assert re.search(message.replace("FILE", re.escape(file)), " ".join(result.stderr.split())), result.stderr


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        ("port = 8000".encode("utf-16"), "is not a TOML file: it is UTF-16; save it as UTF-8"),
        (b"\xef\xbb\xbfport = 8000", "it starts with a byte order mark; save it as UTF-8 without one"),
    ],
)
def test_a_file_in_another_encoding_is_refused(tmp_path, raw, message):
    (tmp_path / "c.toml").write_bytes(raw)
    result = serve("--config", str(tmp_path / "c.toml"), "/nowhere")
    assert result.exit_code == 2
    assert message in " ".join(result.stderr.split())


@pytest.mark.parametrize(
    ("variable", "value", "message"),
    [
        (
            "LLMFW_PORT",
            "http",
            "Invalid value for LLMFW_PORT: it is 'http'; it must be a whole number, 0 to 65535",
        ),
        ("LLMFW_POLICY", "lmp", "Invalid value for LLMFW_POLICY: unknown policy 'lmp'"),
        ("LLMFW_POLCY__X", "1", "Invalid value for LLMFW_POLCY__X: there is no component option 'polcy.x'"),
        ("LLMFW_STRICT_PARAMS", "maybe", "Invalid value for LLMFW_STRICT_PARAMS: 'maybe'"),
        ("LLMFW_CONFIG", "/no/such/file", "'/no/such/file' cannot be read: No such file"),
    ],
)
def test_a_wrong_variable_is_named(monkeypatch, variable, value, message):
    monkeypatch.setenv(variable, value)
    result = serve("/nowhere")
    assert result.exit_code == 2
    assert message in " ".join(result.stderr.split())


def test_the_model_argument_beats_the_file(write):
    file = write("model = '/from/the/file'")
    assert "'/from/the/file'" in serve("--config", file).stderr
    assert "'/named'" in serve("--config", file, "/named").stderr
    assert "'/named'" in serve("--config", file, "--model", "/named").stderr


def test_batch_run_ignores_the_server_s_settings(write, tmp_path):
    (tmp_path / "in.jsonl").write_text("{}")
    file = write("port = 1\nstorage = 'x'\nmodel = 'm'\npolicy = 'fcfs'\n[options.policy]\na = 1")
    line = [str(tmp_path / "in.jsonl"), "--output", "out.jsonl", "--config", file]
    with run_command.make_context("run", line) as ctx:
        found = ctx.params
    assert (found["policy"], found["model_option"], found["options"]) == ("fcfs", "m", {"policy.a": 1})
    assert found["storage"] is None


def test_shown_settings_are_a_valid_config_file(write, monkeypatch):
    file = write(
        'served-model-name = "a \\"b\\" \\u007f"\n[options.policy]\nmax_overtaken = 8\nx = [1, {y = 2}]\nz = -inf'
    )
    monkeypatch.setenv("LLMFW_PAGE_SIZE", "16")
    line = ["/m", "--config", file, "--port", "1", "--random-seed", "7", "-o", "policy.a=1"]
    expected = configs(*line)
    shown = serve(*line, "--show-config").stdout
    assert "port = 1  # command line\n" in shown
    assert "page-size = 16  # LLMFW_PAGE_SIZE\n" in shown
    assert f"max_overtaken = 8  # {file}\n" in shown
    assert 'host = "127.0.0.1"  # default\n' in shown
    assert "# context-length: the model's own\n" in shown
    monkeypatch.delenv("LLMFW_PAGE_SIZE")
    assert configs("--config", write(shown)) == expected
    again = serve("--config", write(shown), "--show-config").stdout
    assert tomllib.loads(again) == tomllib.loads(shown)


def test_keys_and_passwords_are_not_shown():
    line = (
        "--api-key",
        "very-secret",
        "--admin-api-key",
        "more-secret",
        "-o",
        "policy.url=a://me:secret@host",
        "-o",
        "authenticator.sso.client_token=secret",
    )
    shown = serve(*line, "--show-config").stdout
    assert "secret" not in shown
    assert "# api-key: not shown  # command line" in shown
    assert "# url: not shown  # command line" in shown
    assert "# client_token: not shown  # command line" in shown


def test_a_component_error_names_its_option_s_source(write):
    file = write("[options.policy]\nmax_overtaken = 8\nother = 1")
    with serve_command.make_context("serve", ["--config", file]) as ctx:
        options = ctx.meta["llmfw.component_options"]
    for text in ("policy 'lpm' has no option 'other'; known", "options of policy 'lpm': … - at `$.other`"):
        with pytest.raises(ConfigError) as told, naming_sources(options):
            raise ConfigError(text)
        assert str(told.value) == f"{text} (policy.other is set in {file})"


def test_errors_name_their_own_component_s_source(write):
    file = write("[options.observer]\none = {path = 1}\ntwo-b = {path = 2}")
    with serve_command.make_context("serve", ["--config", file]) as ctx:
        options = ctx.meta["llmfw.component_options"]
    for text in (
        "observer 'two-b' has no option 'path'",
        "options of observer …: observer.two-b.path: 2 is …",
    ):
        with pytest.raises(ConfigError) as told, naming_sources(options):
            raise ConfigError(text)
        assert str(told.value) == f"{text} (observer.two-b.path is set in {file})"


def test_the_docs_use_only_known_names():
    page = (Path(__file__).parents[2] / "docs" / "configuration.md").read_text("utf-8")
    for text in re.findall(r"^```toml\n(.*?)^```", page, re.MULTILINE | re.DOTALL):
        found = tomllib.loads(text)
        assert found.keys() - {"options"} <= config_names().keys()


@pytest.mark.parametrize("kind", ["pipe", "nested"])
def test_an_unreadable_config_is_one_line(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "f.toml"
    if kind == "pipe":
        os.mkfifo(path)
    else:
        path.write_text("a=" + "[" * 100_000)
    result = CliRunner().invoke(build_cli(), ["serve", "--config", str(path), "--show-config"])
    assert result.exit_code == 2
    assert ("is not a regular file" if kind == "pipe" else "nested too deeply") in result.output
