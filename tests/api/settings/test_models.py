"""The models of a command line: one without a name first, others as NAME=PATH, and what they refuse."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from llmfw.api.cli import build_cli
from llmfw.api.commands.serve import serve_command
from llmfw.api.commands.several_models import check_several, further_model
from llmfw.api.settings.models import ModelChoice, models_of
from llmfw.core.base.errors import ConfigError
from llmfw.core.plugin.registry import Registry

MODELS = {
    "": [ModelChoice("demo")],
    "m": [ModelChoice("m")],
    "--model m": [ModelChoice("m")],
    "m --model a=/x": [ModelChoice("m"), ModelChoice("/x", "a")],
    "--model a=/x --model m --model b=y": [ModelChoice("m"), ModelChoice("/x", "a"), ModelChoice("y", "b")],
    "--model a=/x --model b=org/c=d": [ModelChoice("/x", "a"), ModelChoice("org/c=d", "b")],
    "--model /has=sign": [ModelChoice("/has=sign")],
}
"""Command line → the models, the first one first."""


def chosen(line: str) -> list[ModelChoice]:
    with serve_command.make_context("serve", line.split()) as ctx:
        return models_of(ctx.params["model"], ctx.params["model_option"])


@pytest.mark.parametrize(("line", "models"), MODELS.items())
def test_the_model_without_a_name_is_first(line: str, models: list[ModelChoice]) -> None:
    assert chosen(line) == models


def test_an_existing_path_is_no_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a=b").mkdir()
    monkeypatch.chdir(tmp_path)
    assert chosen("--model a=b") == [ModelChoice("a=b")]


def test_files_and_the_environment_name_several(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "llmfw.toml"
    file.write_text('model = ["m", "a=/x"]\n')
    assert chosen(f"--config {file}") == [ModelChoice("m"), ModelChoice("/x", "a")]
    assert chosen(f"n --config {file}") == [ModelChoice("n"), ModelChoice("/x", "a")]
    file.write_text('model = "m"\n')
    assert chosen(f"--config {file}") == [ModelChoice("m")]
    monkeypatch.setenv("LLMFW_MODEL", "m\na=/x")
    assert chosen("") == [ModelChoice("m"), ModelChoice("/x", "a")]
    assert '\nmodel = ["m", "a=/x"]' in CliRunner().invoke(build_cli(), ["serve", "--show-config"]).output


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("a --model =x", "--model is '=x'; write NAME=PATH, with a name of letters"),
        ("a --model b=", "--model is 'b='; write NAME=PATH"),
        ("a --model b", "MODEL is given twice: 'a' and --model 'b'; to serve both, write --model NAME=b"),
        ("a --model n=x --model n=y", "--model names 'n' twice"),
        ("demo --model demo=demo", "two models are called 'demo'; name one of them by --model NAME=PATH"),
        ("demo --model a=demo --replicas 2", "--replicas is given, and there are 2 models"),
        ("demo --model a=demo --adapter b=/x", "--adapter is given, and there are 2 models"),
        ("demo --model a=/no/such", "there is no model folder '/no/such'"),
    ],
)
def test_models_that_do_not_go_together_are_refused(line: str, message: str) -> None:
    result = CliRunner().invoke(build_cli(), ["serve", *line.split()])
    assert result.exit_code != 0
    assert message in result.output


def test_settings_of_one_model_are_for_the_first() -> None:
    options = {"tool_parser.x": 1, "attention.y": 2}
    given = {
        "options": options,
        "tool_parser": "hermes",
        "chat_template": "t",
        "served_model_name": "n",
        "port": 1,
    }
    with pytest.raises(ConfigError):  # a hub id needs the hub's folder at start, and is not resolved here
        further_model(ModelChoice("./none", "a"), given, Registry())
    model, values = further_model(ModelChoice("org/b", "a"), given, Registry())
    assert (model.path, model.served_name) == ("org/b", "a")
    own = {"tool_parser": None, "reasoning_parser": None, "chat_template": None, "served_model_name": None}
    assert values == own | {"options": {"attention.y": 2}, "port": 1}


def test_one_model_may_have_replicas() -> None:
    check_several(["m"], {"replicas": 2})
