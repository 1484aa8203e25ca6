"""Options of other servers are answered with the option to use here."""

from __future__ import annotations

import re

import pytest
from click.testing import CliRunner

from llmfw.api.cli import build_cli
from llmfw.api.commands.serve import serve_command
from llmfw.api.settings.other_servers_flags import advice, foreign_flags, nearest

OWN = {name for param in serve_command.params for name in param.opts}


@pytest.mark.parametrize("command", ["serve demo", "batch run FILE demo --output out", "plan demo"])
@pytest.mark.parametrize(
    ("given", "answer"),
    [
        ("--max-model-len 100", "--max-model-len is an option of vLLM; here it is --context-length"),
        ("--max-num-seqs=4", "here it is --max-running-requests"),
        ("--max-seq-len 100", "--max-seq-len is an option of TabbyAPI; here it is --context-length"),
        ("--uvicorn-log-level info", "here it is --log-level"),
        ("-tp 2", "-tp is an option of vLLM; here it is --tp, on CPUs so far"),
        ("-ngl 99", "-ngl is an option of llama-server; here it is --device cuda"),
        ("-hf org/model", "-hf is an option of llama-server; here it is the argument MODEL"),
        ("--disable-cuda-graph", "--disable-cuda-graph is an option of SGLang; here it is --cuda-graph off"),
    ],
)
def test_a_foreign_option_suggests_ours(tmp_path, command, given, answer):
    (tmp_path / "in.jsonl").write_text("{}\n")
    line = f"{command} {given}".replace("FILE", str(tmp_path / "in.jsonl"))
    result = CliRunner().invoke(build_cli(), line.split())
    assert result.exit_code == 2
    assert answer in result.stderr.splitlines()[-1]


def test_every_known_foreign_option_has_one_answer():
    for flags, here in foreign_flags():
        for flag in flags:
            found = advice(flag)
            assert found is not None
            assert found.endswith(here)


def test_no_foreign_option_exists_here():
    assert not OWN & {flag for flags, _ in foreign_flags() for flag in flags}


def test_answers_name_existing_options():
    named = {flag for _, here in foreign_flags() for flag in re.findall(r"--[a-z][\w-]+", here)}
    assert named <= OWN


def test_an_unknown_option_stays_unknown():
    result = CliRunner().invoke(build_cli(), ["serve", "demo", "--no-such-thing"])
    assert "No such option '--no-such-thing'" in result.stderr


@pytest.mark.parametrize(
    ("given", "answer"),
    [
        ("--enable-prefix-cachng", "Did you mean --enable-prefix-caching? --enable-prefix-caching is an option of vLLM; here it is not needed"),
        ("--max-num-seq", "Did you mean --max-num-seqs? --max-num-seqs is an option of vLLM; here it is --max-running-requests"),
        ("--contxt-length", "Did you mean '--context-length'?"),
        ("--disable-radix-cach", "Did you mean '--disable-radix-cache'?"),
        ("--no-enable-prefix-cachin", "Did you mean --no-enable-prefix-caching?"),
    ],
)  # fmt: skip
def test_a_misspelled_option_suggests_the_nearest(given: str, answer: str) -> None:
    result = CliRunner().invoke(build_cli(), ["serve", "demo", given])
    assert result.exit_code == 2
    assert answer in result.stderr.splitlines()[-1]


@pytest.mark.parametrize("name", sorted(name for name in OWN if name.startswith(("--no-", "--disable-"))))
def test_an_opposite_is_never_suggested(name: str) -> None:
    bare = re.sub("^--(no|disable)-", "", name)
    for given in (f"--enable-{bare}", f"--{bare}", f"--enable-{bare}x"):
        assert (
            name
            not in (
                result := CliRunner().invoke(build_cli(), ["serve", "demo", given, "--help-component", "x"])
            ).stderr.splitlines()[-1]
        ), result.stderr


@pytest.mark.parametrize("name", sorted(name for name in OWN if name.startswith("--")))
def test_any_misspelt_option_suggests_the_right_one(name: str) -> None:
    if len(name) > 8:
        near = nearest(name + "q", OWN)
        assert near == name
