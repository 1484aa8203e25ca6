"""What a model's name stands for."""

from __future__ import annotations

import os

import pytest

from llmfw.core.base.errors import ConfigError, ModelError
from llmfw.core.interfaces.model_source import ModelSource
from llmfw.core.plugin.model_name import resolve_model
from llmfw.core.plugin.registry import Entry, Registry
from llmfw.core.testing import ModelSourceTests

EMPTY = Registry()


def test_a_registered_name_gives_its_source_s_folder(tmp_path, install_plugin, monkeypatch):
    (tmp_path / "config.json").write_text("{}")
    module = tmp_path / "a_source.py"
    module.write_text(
        "from llmfw.core.interfaces.model_source import ModelSource\n"
        "class Source(ModelSource):\n"
        "    tool_parser = 'hermes'\n"
        f"    def folder(self): return {str(tmp_path)!r}\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    registry = Registry([Entry("model", "tiny", "a_source:Source", "ours", "d", "1")])
    for name in ("tiny", "ours/tiny"):
        resolved = resolve_model(name, registry)
        assert (resolved.path, resolved.served_name) == (str(tmp_path), "tiny")
        assert (resolved.tool_parser, resolved.reasoning_parser) == ("hermes", None)


def test_a_folder_is_served_under_its_name(tmp_path, monkeypatch):
    """The path stays private: clients see the last part alone."""
    (tmp_path / "config.json").write_text("{}")
    monkeypatch.chdir(tmp_path.parent)
    assert resolve_model(tmp_path.name, EMPTY).path == tmp_path.name
    for given in (tmp_path.name, str(tmp_path), f"./{tmp_path.name}/"):
        assert resolve_model(given, EMPTY).served_name == tmp_path.name
    monkeypatch.chdir(tmp_path)
    assert resolve_model(".", EMPTY).served_name == tmp_path.name


def test_a_folder_without_config_names_the_file(tmp_path):
    with pytest.raises(ModelError, match=f"no config.json in {tmp_path}"):
        resolve_model(str(tmp_path), EMPTY)


def test_an_adapter_only_folder_is_refused(tmp_path):
    (tmp_path / "adapter_config.json").write_text("{}")
    with pytest.raises(ModelError, match="an adapter without a model; serve its base model with --adapter"):
        resolve_model(str(tmp_path), EMPTY)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("model_index.json", "diffusion pipeline"),
        ("a.gguf", "holds GGUF files"),
        ("params.json", "its authors' own"),
    ],
)
def test_other_formats_are_named(tmp_path, name, words):
    (tmp_path / name).write_text("{}")
    with pytest.raises(ModelError, match=words):
        resolve_model(str(tmp_path), EMPTY)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_a_pipe_in_the_folder_is_refused(tmp_path):
    (tmp_path / "config.json").write_text("{}")
    os.mkfifo(tmp_path / "tokenizer.json")
    with pytest.raises(ModelError, match=r"tokenizer\.json is a pipe"):
        resolve_model(str(tmp_path), EMPTY)


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("loop", "cannot be read: Too many levels of symbolic links"),
        ("dangling", "cannot be read: No such file"),
        ("folder", "is a folder"),
        ("pipe", "is a pipe"),
        ("device", "is a pipe, socket or device"),
    ],
)
def test_a_config_that_is_no_file_is_reported(tmp_path, kind, words):
    config = tmp_path / "config.json"
    if kind == "folder":
        config.mkdir()
    elif kind == "pipe":
        os.mkfifo(config)
    else:
        config.symlink_to({"loop": config, "dangling": "nothing", "device": "/dev/zero"}[kind])
    with pytest.raises(ModelError, match=rf"config\.json {words}"):
        resolve_model(str(tmp_path), EMPTY)


@pytest.mark.parametrize("call", ["stat", "listdir"])
def test_an_unreadable_folder_is_named(tmp_path, monkeypatch, call):
    """By the system's own calls: the superuser may read everything."""
    (tmp_path / "config.json").write_text("{}")
    original = getattr(os, call)

    def refuse(path, *args, **kwargs):
        if str(path) == str(tmp_path):
            raise PermissionError(13, "Permission denied", str(path))
        return original(path, *args, **kwargs)

    monkeypatch.setattr(os, call, refuse)
    with pytest.raises(ModelError, match=f"{tmp_path} cannot be read: Permission denied"):
        resolve_model(str(tmp_path), EMPTY)


def test_a_file_is_not_a_model(tmp_path):
    file = tmp_path / "model.safetensors"
    file.touch()
    with pytest.raises(ModelError, match="is a file; give the folder"):
        resolve_model(str(file), EMPTY)


@pytest.mark.parametrize("name", ["./nope", "/no/such", "nope/", "a/b/c", "two words", ""])
def test_invalid_model_names_are_refused(name):
    with pytest.raises(ModelError, match="there is no model folder"):
        resolve_model(name, EMPTY)


@pytest.mark.parametrize("name", ["gpt2", "meta-llama/Llama-3.2-1B", "HuggingFaceTB/SmolLM2-135M"])
def test_other_names_are_hub_ids(name):
    assert resolve_model(name, EMPTY).path == name


def test_a_source_receives_its_options(tmp_path, monkeypatch):
    for step in (1, 2):
        (tmp_path / f"step-{step}").mkdir()
        (tmp_path / f"step-{step}" / "config.json").write_text("{}")
    (tmp_path / "steps.py").write_text(
        "from llmfw.core.interfaces.model_source import ModelSource\n"
        "class Steps(ModelSource):\n"
        "    class Options(ModelSource.Options, frozen=True):\n"
        "        step: int = 1\n"
        "    def __init__(self, *, options): self.step = options.step\n"
        f"    def folder(self): return {str(tmp_path)!r} + f'/step-{{self.step}}'\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    registry = Registry([Entry("model", "steps", "steps:Steps", "ours", "d", "1")])
    assert resolve_model("steps", registry).path.endswith("/step-1")
    assert resolve_model("steps", registry, {"model.step": "2", "policy.x": "3"}).path.endswith("/step-2")
    with pytest.raises(ConfigError, match=r"options of model 'steps' .* it must be a whole number"):
        resolve_model("steps", registry, {"model.step": "two"})


def test_folders_refuse_model_options(tmp_path):
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(ConfigError, match=r"model option 'step' is given, but .* is not a registered model"):
        resolve_model(str(tmp_path), EMPTY, {"model.step": "2"})


def test_the_kit_accepts_sources_with_options(tmp_path):
    class Run(ModelSource):
        class Options(ModelSource.Options, frozen=True):
            run: str

        def __init__(self, *, options: Options) -> None:
            self.run = options.run

        def folder(self) -> str:
            return self.run

    source = Run(options=Run.Options(run=str(tmp_path)))
    ModelSourceTests().test_the_folder_is_absolute_and_stable(source)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("org/name@v1.0", "hf download org/name --revision v1.0 --local-dir DIR"),
        ("org/name:main", "hf download org/name --revision main --local-dir DIR"),
        ("https://huggingface.co/org/name/tree/main", "give the hub id 'org/name' in place of the URL"),
        ("hf://org/name", "give the hub id 'org/name' in place of the URL"),
        ("a..b/c", "there is no model folder 'a..b/c'"),
        ("org/name.git", "there is no model folder 'org/name.git'"),
        ("org/-name", "there is no model folder 'org/-name'"),
        ("a" * 90 + "/" + "b" * 90, "…'; registered models:"),
        ("a" * 5000, "a… cannot be read: File name too long"),
        ("a\x1b[2J\nb", r"there is no model folder 'a\x1b[2J\nb'"),
    ],
)
def test_invalid_hub_ids_are_refused(name: str, expected: str) -> None:
    with pytest.raises(ModelError) as caught:
        resolve_model(name, EMPTY)
    assert expected in str(caught.value)
    assert len(str(caught.value)) < 400
    assert str(caught.value).isprintable()


@pytest.mark.parametrize("name", ["gpt2", "Qwen/Qwen2.5-0.5B_x", "a/b", "a" * 96])
def test_valid_hub_ids_are_passed_to_the_hub(name: str) -> None:
    assert resolve_model(name, EMPTY).path == name
