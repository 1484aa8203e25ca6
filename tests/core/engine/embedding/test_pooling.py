"""The files of sentence-transformers are taken at their word, or refused by the name of the field."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from llmfw.core.base.errors import ModelError
from llmfw.core.engine.embedding.pooling import load_pooling

from .encoders import PACKAGE, build, save_encoder, write


@pytest.mark.parametrize(
    ("field", "value", "wanted"),
    [
        ("max_seq_length", "256", "1 or more, or null"),
        ("max_seq_length", -1, "1 or more, or null"),
        ("max_seq_length", 0, "1 or more, or null"),
        ("max_seq_length", True, "1 or more, or null"),
        ("max_seq_length", 64.0, "1 or more, or null"),
        ("do_lower_case", "false", "true or false"),
        ("pooling_mode_mean_tokens", "false", "true or false"),
        ("pooling_mode_cls_token", 1, "true or false"),
        ("pooling_mode", {"mean": 1}, "one of cls, lasttoken, max, mean"),
        ("word_embedding_dimension", "64", "1 or more, or null"),
        ("include_prompt", "no", "true or false"),
    ],
)
def test_a_field_of_another_type_is_named(tmp_path: Path, field: str, value: object, wanted: str) -> None:
    save_encoder(tmp_path)
    name = (
        "sentence_bert_config.json"
        if field in ("max_seq_length", "do_lower_case")
        else "1_Pooling/config.json"
    )
    file = tmp_path / name
    old = json.loads(file.read_text()) if file.exists() else {}
    write(file, old | {field: value})
    with pytest.raises(ModelError) as caught:
        load_pooling(str(tmp_path))
    assert str(caught.value).endswith(f"{field} is {value!r} in {name}; it must be {wanted}")


def test_a_pooling_of_another_size_is_refused(tmp_path: Path) -> None:
    folder = save_encoder(tmp_path)
    write(tmp_path / "1_Pooling/config.json", {"pooling_mode": "mean", "embedding_dimension": 32})
    with pytest.raises(ModelError, match="is for vectors of 32 dimensions, and its weights give 64"):
        build(folder)


@pytest.mark.parametrize("kind", ["evil.Transformer", "Transformer", "custom_st.Transformer"])
def test_modules_with_custom_code_are_refused(tmp_path: Path, kind: str) -> None:
    save_encoder(tmp_path)
    write(
        tmp_path / "modules.json",
        [{"path": "", "type": kind}, {"path": "1_Pooling", "type": PACKAGE + "Pooling"}],
    )
    with pytest.raises(ModelError, match=f"a module of type '{kind}', which is code of its own"):
        load_pooling(str(tmp_path))


def test_an_ignored_include_prompt_logs_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    save_encoder(tmp_path)
    write(tmp_path / "1_Pooling/config.json", {"pooling_mode": "mean", "include_prompt": False})
    load_pooling(str(tmp_path))
    assert "include_prompt is false in 1_Pooling/config.json, which is not applied" in caplog.text
