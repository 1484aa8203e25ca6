"""Offline use: a model in this process, without a server.

    llm = LLM("demo")
    [output] = llm.generate("The capital of France is", SamplingParams(temperature=0, max_tokens=8))

The same code as in a server turns prompts into text. torch is imported when an `LLM` is built.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine, Mapping, Sequence
from os import PathLike, fspath
from types import TracebackType
from typing import Any, Self, TypeVar, cast

import msgspec

from llmfw.core.base.config import EngineConfig, ServerConfig
from llmfw.core.base.errors import ConfigError, RequestError
from llmfw.core.base.image import Image
from llmfw.core.base.media import MediaPrompt
from llmfw.core.base.request import SamplingParams, TokenLogprob
from llmfw.core.base.setting import check_fields
from llmfw.core.client.inproc import InprocEngineClient
from llmfw.core.interfaces.chat_template import Message
from llmfw.core.interfaces.parsers import ContentDelta
from llmfw.core.model.tokenizer.tokenizer_check import check_fit
from llmfw.core.model.tokenizer.tokenizer_files import load_tokenizer
from llmfw.core.plugin.defaults import default_name
from llmfw.core.plugin.model_name import resolve_model
from llmfw.core.plugin.option_keys import check_option_keys, merged
from llmfw.core.plugin.plugins import load_plugins
from llmfw.core.plugin.registry import Registry

from .admin.adapters import AdapterService
from .media.own_images import take_images
from .services.components import build_chat_template, image_prompts_of
from .services.request_fields import build_request_fields
from .text.generation import Generator
from .text.generation_prompt import Output as Asked
from .text.model_names import check_adapter_names
from .text.request_fields import RequestFields
from .text.terms import Terms
from .text.text_stream import TextStream

DEFAULT_MODEL = "demo"
_FIRST = ("options", "disabled_plugins")
"""Settings that are used before the others are checked."""
_SETTINGS = frozenset(EngineConfig.__struct_fields__) - {"model", "place"}

ResultT = TypeVar("ResultT")
Prompts = str | Sequence[str] | Sequence[Sequence[int]]


class Output(msgspec.Struct, frozen=True):
    """Result for one prompt.

    Attributes:
        text: generated text, without an end-of-sequence token or stop string.
        token_ids: generated tokens, including the one that ended the output.
        finish_reason: "stop" or "length".
        prompt_tokens: number of prompt tokens.
        cached_tokens: number of prompt tokens that came from the prefix cache.
        logprobs: one for each of `token_ids`, if requested.
        prompt_logprobs: one for each prompt token except the first, if requested.
    """

    text: str
    token_ids: list[int]
    finish_reason: str
    prompt_tokens: int
    cached_tokens: int
    logprobs: list[TokenLogprob] | None = None
    prompt_logprobs: list[TokenLogprob] | None = None


class LLM:
    """A model in this process.

    Args:
        model: name of a registered model, folder, or hub id; None: the config file's model, or "demo".
        chat_template: a registered template or a file; None: the config file's template, or the model's own.
        config: path of a TOML file, as for `llmfw serve --config`. Settings that only a server has are
            ignored.
        request_fields: names of plugins' request fields for `fields`, separated by commas, in addition to those
            that the chosen components need; None: the config file's.
        adapters: name → folder of each LoRA adapter to load.
        settings: settings of the engine: the fields of `llmfw.core.base.config.EngineConfig`. They override
            the config file's settings; `options` overrides the file's component options one by one.

    Raises:
        ConfigError: an unknown setting or a value of the wrong type; or the model cannot be served.
    """

    def __init__(
        self,
        model: str | None = None,
        *,
        chat_template: str | None = None,
        config: str | PathLike[str] | None = None,
        request_fields: str | None = None,
        adapters: Mapping[str, str | PathLike[str]] | None = None,
        **settings: Any,
    ) -> None:
        check_fields(EngineConfig, {name: settings[name] for name in _FIRST if name in settings})
        if adapters is not None:
            settings["adapters"] = tuple(f"{name}={fspath(path)}" for name, path in adapters.items())
        if config is None:
            self._load(model, chat_template, request_fields, settings)
        else:
            self._load_with_config_file(config, model, chat_template, request_fields, settings)
        self._loop = asyncio.new_event_loop()
        # A separate event loop in a separate thread: the caller may already run a loop, as notebooks do.
        self._thread = threading.Thread(target=self._loop.run_forever, name="llmfw-llm", daemon=True)
        self._thread.start()
        self._run(self._client.start())

    def _load_with_config_file(
        self,
        config: str | PathLike[str],
        model: str | None,
        chat_template: str | None,
        request_fields: str | None,
        settings: dict[str, Any],
    ) -> None:
        """Load with the settings of a config file, except for settings that the caller gives."""
        from .settings.component_options import naming_sources  # brings click
        from .settings.file_settings import read_settings

        file = read_settings(fspath(config))
        options = settings.get("options", {})
        if isinstance(options, dict):  # else `_load` refuses it
            settings["options"] = merged(file.options, options)
        of_engine = {name: value for name, value in file.values.items() if name in _SETTINGS}
        with naming_sources(file.options_without(options)):
            self._load(
                model or file.model,
                chat_template or file.values.get("chat_template"),
                request_fields or file.values.get("request_fields"),
                of_engine | settings,
            )

    def _load(
        self,
        model: str | None,
        chat_template: str | None,
        request_fields: str | None,
        settings: dict[str, Any],
    ) -> None:
        """Load the components and the model."""
        from llmfw.core.engine.process.build import build_engine

        plugins = load_plugins(settings.get("disabled_plugins", ()))
        options = settings.get("options")
        model = model or default_name(plugins.registry, "model", DEFAULT_MODEL)
        resolved = resolve_model(model, plugins.registry, options if isinstance(options, dict) else {})
        config = _engine_config(resolved.path, settings)
        check_adapter_names(config, model)
        for kind in {"policy", "eviction"} - settings.keys():
            name = default_name(plugins.registry, kind, getattr(config, kind))
            config = msgspec.structs.replace(config, **{kind: name})
        tokenizer = load_tokenizer(config.model, config.load_format)
        self._template = build_chat_template(chat_template, plugins.registry, tokenizer, config.options)
        self._fields = _request_fields(request_fields, config, model, plugins.registry)
        self._client = InprocEngineClient(build_engine(config, plugins.registry))
        check_fit(tokenizer, config.model, self._client.info.vocab_size)
        self._generator = Generator(self._client, tokenizer, model, fields=self._fields)
        self._image_prompts = image_prompts_of(self._client.info, plugins.registry)
        self._adapters = AdapterService(self._client, self._generator.names)

    def generate(
        self,
        prompts: Prompts,
        sampling: SamplingParams | None = None,
        *,
        logprobs: int | None = None,
        prompt_logprobs: int | None = None,
        logprob_token_ids: Sequence[int] = (),
        fields: Mapping[str, Any] | None = None,
        adapter: str | None = None,
    ) -> list[Output]:
        """Continue all prompts concurrently; return one output per prompt, in order.

        Args:
            prompts: one text, several texts, or several lists of token ids.
            logprobs: number of most likely tokens to report with the log probability of each new token.
            prompt_logprobs: number of most likely tokens to report with the log probability of each prompt
                token.
            logprob_token_ids: tokens whose log probabilities to report, too, for the position of each new
                token; at most 128. Needs `logprobs`.
            fields: values of plugins' request fields, such as `{"dry_multiplier": 0.8}`.
            adapter: name of the adapter to generate with; None: the model alone.

        Raises:
            RequestError: a prompt is empty or does not fit; or logprob_token_ids or a field is wrong.
            ModelNotFoundError: there is no such adapter.
        """
        texts = [prompts] if isinstance(prompts, str) else prompts
        encode = self._generator.tokenizer.encode
        token_ids = [encode(prompt) if isinstance(prompt, str) else list(prompt) for prompt in texts]
        asked = Asked(
            logprobs=logprobs, prompt_logprobs=prompt_logprobs, logprob_token_ids=tuple(logprob_token_ids)
        )
        terms = self._terms(fields, adapter)
        whole = [MediaPrompt(each, ()) for each in token_ids]
        return self._run(self._generate(whole, sampling or SamplingParams(), asked, terms, primed=True))

    def chat(
        self,
        messages: Sequence[Message] | Sequence[Sequence[Message]],
        sampling: SamplingParams | None = None,
        *,
        tools: Sequence[Mapping[str, Any]] = (),
        fields: Mapping[str, Any] | None = None,
        adapter: str | None = None,
        **template_kwargs: Any,
    ) -> list[Output]:
        """Answer one conversation or several at once; return one output for each, in order.

        If the model reads images, contents may have parts such as `{"type": "image", "image": "cat.png"}`. An image is
        one of Pillow, a path, the bytes of a file, or a data: URL.

        Args:
            tools: tool definitions for the template; calls are part of the text.
            fields: values of plugins' request fields.
            adapter: name of the adapter to generate with; None: the model alone.
            template_kwargs: arguments for the chat template, such as `enable_thinking`.

        Raises:
            RequestError: the template refuses the messages, or they do not fit; or a field is wrong; or an image cannot
                be read, or the model reads text only.
            ModelNotFoundError: there is no such adapter.
        """
        if not messages:
            raise RequestError("messages is empty; at least one is needed", param="messages")
        if wrong := template_kwargs.keys() & set(SamplingParams.__struct_fields__):
            name = min(wrong)
            raise RequestError(
                f"{name} is no argument of chat templates; pass it in sampling=SamplingParams({name}=…)",
                param=name,
            )
        several = not isinstance(messages[0], Mapping)
        conversations = cast("Sequence[Sequence[Message]]", messages if several else [messages])
        encode = self._generator.tokenizer.encode
        prompts = []
        for each in conversations:
            each, images = take_images(each)
            text = self._template.render(each, tools=tools, **template_kwargs)
            if images:
                prompts.append(self._run(self._with_images(text, images)))
            else:
                prompts.append(MediaPrompt(encode(text, add_special_tokens=False), ()))
        terms = self._terms(fields, adapter)
        return self._run(self._generate(prompts, sampling or SamplingParams(), Asked(), terms, primed=False))

    def load_adapter(self, name: str, path: str | PathLike[str]) -> None:
        """Load an adapter. Replaces an adapter of the same name. Needs the setting `max_adapters`.

        Raises:
            RequestError: the adapter cannot be loaded.
        """
        self._run(self._adapters.load(name, fspath(path)))

    def unload_adapter(self, name: str) -> None:
        """Unload an adapter.

        Raises:
            ModelNotFoundError: there is no such adapter.
        """
        self._run(self._adapters.unload(name))

    def close(self) -> None:
        """Free the model. The object cannot be used afterwards."""
        if self._thread.is_alive():
            self._run(self._client.close())
            if self._image_prompts is not None:
                self._run(self._image_prompts.close())
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    async def _generate(
        self,
        prompts: list[MediaPrompt],
        sampling: SamplingParams,
        asked: Asked,
        terms: Terms,
        *,
        primed: bool,
    ) -> list[Output]:
        if not prompts:
            return []

        def make_text(prompt: Sequence[int]) -> TextStream:
            detokenizer = self._generator.tokenizer.detokenizer(prompt if primed else ())
            return TextStream(detokenizer, stop=sampling.stop, min_tokens=sampling.min_tokens)

        generation = self._generator.start(
            "llm-",
            [prompt.token_ids for prompt in prompts],
            sampling,
            make_text,
            terms=terms,
            output=asked,
            media=[prompt.spans for prompt in prompts],
        )
        deltas = await generation.finish()
        return [
            Output(
                text="".join(d.text for d in deltas[choice.index] if isinstance(d, ContentDelta)),
                token_ids=choice.text.token_ids,
                finish_reason=choice.text.finish_reason or "stop",
                prompt_tokens=len(choice.request.prompt),
                cached_tokens=choice.text.num_cached_tokens,
                logprobs=None if asked.logprobs is None else choice.text.logprobs,
                prompt_logprobs=choice.text.prompt_logprobs,
            )
            for choice in generation.choices
        ]

    async def _with_images(self, text: str, images: Sequence[Image]) -> MediaPrompt:
        if self._image_prompts is None:
            raise RequestError(
                "messages has images, and this model reads text only: leave them out", param="messages"
            )
        return await self._image_prompts.prompt(text, images)

    def _terms(self, fields: Mapping[str, Any] | None, adapter: str | None) -> Terms:
        return Terms(fields=self._fields.values(fields or {}), model=adapter)

    def _run(self, work: Coroutine[Any, Any, ResultT]) -> ResultT:
        result = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return result.result()
        except BaseException:
            result.cancel()  # Ctrl-C: abort the prompts that still run
            raise


def _request_fields(names: str | None, config: EngineConfig, model: str, registry: Registry) -> RequestFields:
    given = {} if names is None else {"request_fields": names}
    check_fields(ServerConfig, given)
    try:
        server = msgspec.convert(
            {"served_model_name": model, "options": config.options, **given}, ServerConfig
        )
    except msgspec.ValidationError as error:
        raise ConfigError(f"request_fields: {error}") from error
    return build_request_fields(config, server, registry)


def _engine_config(path: str, settings: dict[str, Any]) -> EngineConfig:
    if unknown := sorted(settings.keys() - _SETTINGS):
        raise ConfigError(f"there is no engine setting {unknown[0]!r}; known: {', '.join(sorted(_SETTINGS))}")
    if (task := settings.get("task")) in ("embed", "classify"):
        does = "makes embeddings" if task == "embed" else "classifies"
        raise ConfigError(f"task is {task!r}; LLM generates text, and `llmfw serve --task {task}` {does}")
    check_fields(EngineConfig, settings)
    try:
        own = {
            "max_queued_requests": 0,
            "max_queued_tokens": 0,
        }  # only the caller's own prompts wait
        config = msgspec.convert({"model": path, "task": "generate", **own, **settings}, EngineConfig)
    except msgspec.ValidationError as error:
        raise ConfigError(f"engine settings: {error}") from error
    check_option_keys(config.options)
    return config
