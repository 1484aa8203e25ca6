"""Conformance tests of chat templates that run the model's Jinja source: its meaning and its cost."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from llmfw.core.base.errors import ConfigError, RequestError
from llmfw.core.interfaces.chat_template import ChatTemplate

from .chat_examples import (
    COSTLY,
    FORBIDDEN,
    FORMS,
    HUGE,
    INVALID,
    MODERATE,
    REFUSED,
    RENDERED,
    SAID,
    SLOW,
)
from .declared import built as built_as
from .declared import declared
from .resources import peak_memory


class ChatSourceTests:
    """Tests of templates with the capability `renders_jinja`. `ChatTemplateTests` derives from this class."""

    @pytest.fixture
    def renders_jinja(self, template: type[ChatTemplate]) -> bool:
        """Return whether the template renders the Jinja source of the model, as transformers does."""
        return declared(template, "renders_jinja", False)

    @pytest.fixture
    def of_jinja(self, renders_jinja: bool) -> None:
        """Skip the test if the template does not render the model's source."""
        if not renders_jinja:
            pytest.skip(
                "the template does not have the capability renders_jinja (override the fixture if it has)"
            )

    @pytest.mark.usefixtures("of_jinja")
    def test_a_source_means_what_jinja_says(
        self, template: type[ChatTemplate], special_tokens: Mapping[str, str]
    ) -> None:
        for source, expected in RENDERED.items():
            assert (source, result(template, special_tokens, source)) == (source, expected)

    @pytest.mark.usefixtures("of_jinja")
    def test_a_costly_source_is_stopped(
        self, template: type[ChatTemplate], special_tokens: Mapping[str, str]
    ) -> None:
        """A model's files may come from an untrusted author, and each request runs the source."""
        for source in COSTLY:
            found = result(template, special_tokens, source)
            assert not isinstance(found, str), f"{source} rendered {len(found)} characters"

    @pytest.mark.usefixtures("of_jinja")
    def test_a_large_text_is_never_made(
        self, template: type[ChatTemplate], special_tokens: Mapping[str, str]
    ) -> None:
        """A source that would make a text of 256 MiB at once is refused before it takes 128 MiB."""
        for source in (source for source in COSTLY if str(HUGE) in source):
            with peak_memory() as peaks:
                result(template, special_tokens, source)
            assert max(peaks) < HUGE // 2, f"{source} took {max(peaks)} bytes"

    @pytest.mark.usefixtures("of_jinja")
    def test_a_source_reaches_only_the_conversation(
        self, template: type[ChatTemplate], special_tokens: Mapping[str, str]
    ) -> None:
        for source in FORBIDDEN:
            found = result(template, special_tokens, source)
            assert not isinstance(found, str), f"{source} rendered {found!r}"

    @pytest.mark.usefixtures("of_jinja")
    def test_the_cost_of_renderings_does_not_add_up(
        self, template: type[ChatTemplate], special_tokens: Mapping[str, str]
    ) -> None:
        source = (
            "{% for i in range(20000) %}{% set t = 'x' * i %}{% endfor %}{{ t is defined }}{{ 'y' * 200000 }}"
        )
        built = built_as(template, source, special_tokens)
        assert {len(built.render(SAID)) for _ in range(20)} == {200_005}

    @pytest.mark.usefixtures("of_jinja")
    def test_moderate_sources_are_rendered(
        self, template: type[ChatTemplate], special_tokens: Mapping[str, str]
    ) -> None:
        for source, expected in MODERATE.items():
            found = result(template, special_tokens, source)
            assert isinstance(found, str), f"{source} is refused: {found}"
            assert found == expected, f"{source} gives another text of {len(found)} characters"

    @pytest.mark.usefixtures("of_jinja")
    def test_messages_have_the_form_a_source_reads(self, template: type[ChatTemplate]) -> None:
        """Content is text or a list of parts, null values are absent, and arguments of calls are objects."""
        for example in FORMS:
            built = built_as(template, example.source, {"bos_token": "<s>"})
            kwargs = {"add_generation_prompt": False, **example.kwargs}
            assert (example, built.render([example.message], **kwargs)) == (example, example.expected)

    @pytest.mark.usefixtures("of_jinja")
    def test_a_slow_source_is_not_rendered_briefly(
        self, template: type[ChatTemplate], special_tokens: Mapping[str, str]
    ) -> None:
        built = built_as(template, SLOW, special_tokens)
        for _ in range(2):
            assert built.render_briefly(SAID, add_generation_prompt=False) is None
            assert built.render(SAID, add_generation_prompt=False) == SAID[0]["content"]

    @pytest.mark.usefixtures("of_jinja")
    def test_invalid_sources_raise_a_config_error(
        self, template: type[ChatTemplate], special_tokens: Mapping[str, str]
    ) -> None:
        for source in (*INVALID, "x" * 10_000_000):
            found = result(template, special_tokens, source)
            assert isinstance(found, ConfigError), f"{source[:100]} gives {str(found)[:100]}"

    @pytest.mark.usefixtures("of_jinja")
    def test_errors_have_the_words_of_the_source(
        self, template: type[ChatTemplate], special_tokens: Mapping[str, str]
    ) -> None:
        for source, said in REFUSED.items():
            found = result(template, special_tokens, source)
            assert isinstance(found, RequestError | ConfigError), source
            assert said in str(found)
            assert str(found).encode()

    @pytest.mark.usefixtures("of_jinja")
    def test_a_model_without_source_refuses_chats(
        self, template: type[ChatTemplate], special_tokens: Mapping[str, str]
    ) -> None:
        assert isinstance(result(template, special_tokens, ""), RequestError)


def result(
    template: type[ChatTemplate], special_tokens: Mapping[str, str], source: str
) -> str | RequestError | ConfigError:
    """Return the prompt of SAID, or the error that the template raised. Any other exception fails the test."""
    try:
        built: Any = built_as(template, source, special_tokens)
        found: str = built.render(SAID, add_generation_prompt=False)
    except (RequestError, ConfigError) as error:
        return error
    return found
