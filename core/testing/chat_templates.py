"""Conformance tests of the `ChatTemplate` interface."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmfw.core.base.errors import RequestError
from llmfw.core.interfaces.chat_template import ChatTemplate, Message

from .chat_sources import ChatSourceTests
from .declared import built as built_as
from .declared import declared
from .stores import drawn

SOURCE = (
    "{{ bos_token }}{% for message in messages %}<|{{ message.role }}|>{{ message.content }}<|end|>\n{% endfor %}"
    "{% if tools %}<|tools|>{{ tools | tojson }}{% endif %}{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
"""Jinja source of a model's template, for chat templates that render the model's source."""

ASK = {"role": "user", "content": "What is the weather in Rome?"}
CHATS: dict[str, list[Message]] = {
    "a question": [ASK],
    "a system's message": [{"role": "system", "content": "Be brief."}, ASK],
    "an answer": [ASK, {"role": "assistant", "content": "It is sunny."}],
    "three turns": [
        ASK,
        {"role": "assistant", "content": "It is sunny."},
        {"role": "user", "content": "And so?"},
    ],
    "a long conversation": [
        {"role": ("user", "assistant")[number % 2], "content": f"Line {number:03}."} for number in range(301)
    ],
}
GIVEN: list[list[Message]] = [
    [{"role": "system", "content": " \n Be brief. "}, {"role": "user", "content": "\n What is new? \n"}],
    [
        {
            "role": "user",
            "content": [{"type": "text", "text": " What is "}, {"type": "text", "text": "new? "}],
            "name": " x ",
        }
    ],
    [
        {"role": "user", "content": " Which time is it? "},
        {
            "role": "assistant",
            "content": None,
            "reasoning_content": " Hm. ",
            "tool_calls": [
                {
                    "id": "1",
                    "type": "function",
                    "function": {"name": "get_time", "arguments": '{"zone": "x"}'},
                }
            ],
        },
        {"role": "tool", "tool_call_id": "1", "content": [{"type": "text", "text": " 9 "}]},
    ],
    [
        {"role": "user", "content": "Hello."},
        {"role": "assistant", "content": "<think>\nHm.\n</think>\n\nHello. "},
        {"role": "user", "content": "And so? "},
    ],
]
"""Conversations with white space and nested parts, which templates may be tempted to put in order."""

TOOLS: list[Mapping[str, Any]] = [
    {
        "type": "function",
        "function": {
            "name": name,
            "description": about,
            "parameters": {"type": "object", "properties": {key: {"type": "string"}}},
        },
    }
    for name, about, key in (
        ("get_weather", "Looks out of a window", "city"),
        ("get_time", "Asks a clock", "zone"),
    )
]
WRONG: list[Any] = [
    [],
    [{"role": "no such role", "content": "x"}],
    [{"role": "user"}],
    [{"role": "user", "content": None}],
    [{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "image_url", "image_url": {}}]}],
    [{"role": "assistant", "tool_calls": [{"id": "1", "type": "function"}]}, ASK],
    [ASK, ASK, {"role": "assistant", "content": "x"}, {"role": "system", "content": "late"}],
    [{"role": "tool", "tool_call_id": "1", "content": "sunny"}],
]

EXACT = {
    "100,000 characters": "".join(f"Line {number:05}. " for number in range(8334)).strip(),
    "composed letters": "caf\u00e9 \u00fc \uac00",
    "decomposed letters": "cafe\u0301 u\u0308 \u1100\u1161",
    "letters with a simpler form": "\ufb01ne \uff21 \u2460 \u212b x\u00b2",
    "ends of lines": "a\r\nb\rc\n\n\n\nd\u2028e",
    "invisible characters": "a\u200bb\u00a0c\u00add\ufeffe\tf   g",
}
"""Texts that templates may be tempted to shorten or to put in order."""

texts = st.text(st.sampled_from("ab Z.09\n<>|{}%[]&'\"\\#é\U0001f600"), min_size=1, max_size=30).map(
    str.strip
)


class ChatTemplateTests(ChatSourceTests):
    """Conformance tests of a chat template.

    Derive from this class and override the fixture `template`, and other fixtures if their defaults do not
    fit.
    """

    @pytest.fixture
    def template(self) -> type[ChatTemplate]:
        """Return the class of the template under test."""
        raise NotImplementedError(f"{type(self).__name__} has to override the fixture template")

    @pytest.fixture
    def source(self) -> str:
        """Return the source of the model's template, which is passed to the class."""
        return SOURCE

    @pytest.fixture
    def special_tokens(self) -> Mapping[str, str]:
        """Return the tokenizer's special tokens, by name."""
        return {"bos_token": "<s>", "eos_token": "</s>"}

    @pytest.fixture
    def has_tools(self, template: type[ChatTemplate]) -> bool:
        """Return whether the template writes tool definitions into the prompt."""
        return declared(template, "has_tools", False)

    @pytest.fixture
    def has_generation_prompt(self, template: type[ChatTemplate]) -> bool:
        """Return whether the template has a generation prompt: a text that starts the assistant's turn."""
        return declared(template, "has_generation_prompt", False)

    @pytest.fixture
    def built(
        self, template: type[ChatTemplate], source: str, special_tokens: Mapping[str, str]
    ) -> ChatTemplate:
        """Return the template, built as a server builds it for a model."""
        return built_as(template, source, special_tokens)

    @given(content=texts)
    @drawn
    def test_a_message_is_rendered_verbatim(self, built: ChatTemplate, content: str) -> None:
        assert content in built.render([{"role": "user", "content": content}])

    @pytest.mark.parametrize("text", EXACT.values(), ids=EXACT)
    def test_text_is_neither_cut_nor_normalized(self, built: ChatTemplate, text: str) -> None:
        """Holds for long texts and for letters that can be written in several ways, in each role."""
        chats: list[list[Message]] = [
            [{"role": "user", "content": text}],
            [{"role": "system", "content": text}, ASK],
            [ASK, {"role": "assistant", "content": text}, ASK],
        ]
        for chat in chats:
            prompt = outcome(built, chat)
            if isinstance(prompt, str) or len(chat) == 1:
                assert isinstance(prompt, str), prompt
                missing = first_missing(text, prompt)
                assert missing is None, (
                    f"the prompt has other text from character {missing} of {len(text)} on"
                )

    @pytest.mark.parametrize("chat", CHATS.values(), ids=CHATS)
    def test_messages_are_rendered_in_order(self, built: ChatTemplate, chat: Sequence[Message]) -> None:
        prompt = rendered(built, chat)
        places = [prompt.find(message["content"]) for message in chat]
        assert -1 not in places, prompt
        assert places == sorted(places), prompt

    def test_different_messages_give_different_prompts(self, built: ChatTemplate) -> None:
        prompts = [rendered(built, chat) for chat in (CHATS["a question"], CHATS["three turns"])]
        prompts.append(rendered(built, [{"role": "user", "content": "Hello"}]))
        assert len(set(prompts)) == 3

    @pytest.mark.parametrize("chat", CHATS.values(), ids=CHATS)
    def test_rendering_does_not_depend_on_earlier_calls(
        self,
        built: ChatTemplate,
        template: type[ChatTemplate],
        source: str,
        special_tokens: Mapping[str, str],
        chat: Sequence[Message],
    ) -> None:
        first = rendered(built, chat)
        for other in (*CHATS.values(), *WRONG):
            outcome(built, other, tools=TOOLS)
        assert rendered(built, chat) == first
        assert rendered(built_as(template, source, special_tokens), chat) == first

    def test_rendering_does_not_change_its_input(self, built: ChatTemplate) -> None:
        for chat in (*CHATS.values(), *GIVEN, *WRONG):
            given, tools = copy.deepcopy((chat, TOOLS))
            outcome(built, given, tools=tools)
            assert (given, tools) == (chat, TOOLS)

    def test_no_text_of_earlier_conversations_comes_back(
        self,
        built: ChatTemplate,
        template: type[ChatTemplate],
        source: str,
        special_tokens: Mapping[str, str],
    ) -> None:
        """Holds for conversations of the same object, and of other objects of its class."""
        for number in range(2):
            secrets = [f"{role} secret {number}" for role in ("system", "user", "assistant")]
            said: list[Message] = [{"role": secret.split()[0], "content": secret} for secret in secrets]
            system, user, assistant = said
            for chat in ([system, user], [user, assistant, user], [system, user, assistant, user]):
                outcome(built, chat, tools=[{"type": "function", "function": {"name": f"secret_{number}"}}])
            for later in (built, built_as(template, source, special_tokens)):
                for chat in CHATS.values():
                    prompt = outcome(later, chat)
                    assert not isinstance(prompt, str) or "secret" not in prompt

    def test_add_generation_prompt_appends_the_assistant_turn(
        self, built: ChatTemplate, has_generation_prompt: bool
    ) -> None:
        """With the argument, the template appends only the start of the turn; without it, nothing."""
        for chat in ([ASK], CHATS["three turns"]):
            without = rendered(built, chat, add_generation_prompt=False)
            prompt = rendered(built, chat, add_generation_prompt=True)
            assert prompt.startswith(without)
            if prompt == without and not has_generation_prompt:
                pytest.skip("the template does not have the capability has_generation_prompt")
            assert len(prompt) > len(without), "nothing was appended"

    def test_a_generation_prompt_is_added_by_default(self, built: ChatTemplate) -> None:
        assert rendered(built, [ASK]) == rendered(built, [ASK], add_generation_prompt=True)

    def test_all_tool_definitions_are_in_the_prompt(self, built: ChatTemplate, has_tools: bool) -> None:
        without, prompt = rendered(built, [ASK]), outcome(built, [ASK], tools=TOOLS)
        if not has_tools and (isinstance(prompt, RequestError) or prompt == without):
            why = prompt if isinstance(prompt, RequestError) else "they change nothing"
            pytest.skip(f"the template does not have the capability has_tools ({why})")
        assert isinstance(prompt, str), prompt
        for word in ("get_weather", "Looks out of a window", "city", "get_time", "Asks a clock", "zone"):
            assert word in prompt
            assert word not in without.replace(ASK["content"], "")
        assert ASK["content"] in prompt

    @pytest.mark.parametrize("messages", WRONG, ids=[f"wrong {number}" for number in range(len(WRONG))])
    def test_invalid_messages_raise_a_request_error(self, built: ChatTemplate, messages: list[Any]) -> None:
        """If a template refuses messages, it raises a `RequestError` with a message."""
        found = outcome(built, messages)
        assert isinstance(found, str) or str(found), "the RequestError has no message"

    def test_a_brief_rendering_equals_the_whole_one(self, built: ChatTemplate) -> None:
        """Unless it is None, because rendering takes longer."""
        for chat in (*CHATS.values(), *GIVEN, *WRONG):
            for tools in ((), TOOLS):
                whole = outcome(built, chat, tools=tools)
                brief = outcome(built, chat, tools=tools, is_brief=True)
                assert brief is None or str(brief) == str(whole)

    @pytest.mark.parametrize("name", ["conversations", "chat_template", "source"])
    def test_arguments_do_not_replace_the_template(self, built: ChatTemplate, name: str) -> None:
        """A client's `chat_template_kwargs` may be refused or ignored, and change no message."""
        said: Any = [{"role": "user", "content": "other text"}] if name == "conversations" else "other text"
        prompt = outcome(built, CHATS["a question"], **{name: said})
        assert isinstance(prompt, RequestError) or prompt == rendered(built, CHATS["a question"])

    def test_unknown_arguments_are_ignored(self, built: ChatTemplate) -> None:
        assert ASK["content"] in built.render([ASK], enable_thinking=False, no_such_argument=[1])


def first_missing(text: str, prompt: str) -> int | None:
    """Return the index of a text's first character that a prompt lacks; None if it has the whole text."""
    if text in prompt:
        return None
    low, high = 0, len(text)
    while low < high:  # the prompt has text[:low], and lacks text[: high + 1]
        middle = (low + high + 1) // 2
        low, high = (middle, high) if text[:middle] in prompt else (low, middle - 1)
    return low


def rendered(template: ChatTemplate, chat: Sequence[Message], **kwargs: Any) -> str:
    """Return the prompt of a conversation.

    If the template rejects the conversation, skips the test. If it rejects a single question, fails the test.
    """
    found = outcome(template, chat, **kwargs)
    if isinstance(found, RequestError) and list(chat) != [ASK]:
        pytest.skip(f"the template refuses such a conversation: {found}")
    assert isinstance(found, str), found
    return found


def outcome(
    template: ChatTemplate, chat: Sequence[Message], *, is_brief: bool = False, **kwargs: Any
) -> str | RequestError | None:
    """Return the prompt, or the RequestError that the template raised. Any other exception fails the test.

    Args:
        is_brief: whether to render briefly, which may return None.
    """
    try:
        found = (template.render_briefly if is_brief else template.render)(chat, **kwargs)
    except RequestError as error:
        return error
    if is_brief and found is None:
        return None
    assert isinstance(found, str), f"render returned {type(found).__name__}, not a text"
    return found
