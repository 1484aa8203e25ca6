"""All hooks that a plugin may implement.

All kinds of components are registered in the same way: the hook receives a function `register`, and calls it
once per component, with a name and the import path of the class ("package.module:Class"). The class is
imported only when its name is chosen, so the module that declares the hooks can be imported quickly. Hooks
run once when a process starts, in the API process and in the engine process, never per request or per step.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

import pluggy

if TYPE_CHECKING:
    import click

hookspec = pluggy.HookspecMarker("llmfw")


class Register(Protocol):
    """Function that a `register_…` hook receives."""

    def __call__(
        self,
        name: str,
        path: str,
        *,
        summary: str = "",
        needs: Sequence[str] = (),
        rank: int = 0,
        prepare: str = "",
        needs_fields: Sequence[str] = (),
        devices: Sequence[str] = (),
        prefill_rank: int | None = None,
    ) -> None:
        """Register a component.

        Args:
            name: name by which users choose the component.
            path: import path, "package.module:Class"; imported when the component is chosen.
            summary: one line for listings.
            needs: names of modules that must be importable for the component to work.
            rank: rank for the choice "auto": the component with the largest rank that supports the model is
                chosen.
            prepare: import path, "package.module:function", of a function that does slow work which needs no
                model, such as compiling. If the component is or may be chosen, the function is called with
                the `EngineConfig`, in a thread of the process that starts the engine process, while the
                engine process imports torch. The function must not import anything heavy, and the component
                must not rely on the call.
            needs_fields: names of request fields that become active when the component is chosen, as if
                `--request-fields` named them. For policies, drafters, observers and logits processors.
            devices: types of the devices that the component is for, such as "cuda"; empty: any. On other
                devices, "auto" skips the component without importing it. For attention backends, module
                passes and token samplers.
            prefill_rank: rank for the choice of the backend that computes prompts; `rank` is then for single
                tokens only. For attention backends.
        """


class RegisterRoute(Protocol):
    """Function that `register_routes` receives."""

    def __call__(self, path: str) -> None:
        """Register a Litestar route handler, router or controller by its import path
        "package.module:name"."""


class HookSpecs:
    """The hooks. An implementation declares only the arguments that it needs.

    New versions of llmfw may add arguments to a hook, but never remove any.
    """

    @hookspec
    def register_attention_backends(self, register: Register) -> None:
        """Register classes that implement `llmfw.core.AttentionBackend` (`--attention NAME`)."""

    @hookspec
    def register_module_passes(self, register: Register) -> None:
        """Register classes that implement `llmfw.core.ModulePass` (`--module-passes NAME,NAME`)."""

    @hookspec
    def register_schedule_policies(self, register: Register) -> None:
        """Register classes that implement `llmfw.core.SchedulePolicy` (`--policy NAME`)."""

    @hookspec
    def register_chat_templates(self, register: Register) -> None:
        """Register classes that implement `llmfw.core.ChatTemplate` (`--chat-template NAME`)."""

    @hookspec
    def register_file_stores(self, register: Register) -> None:
        """Register classes that implement `llmfw.core.FileStore`."""

    @hookspec
    def register_batch_stores(self, register: Register) -> None:
        """Register classes that implement `llmfw.core.BatchStore`."""

    @hookspec
    def register_response_stores(self, register: Register) -> None:
        """Register classes that implement `llmfw.core.ResponseStore` (`--response-store NAME`)."""

    @hookspec
    def register_grammar_backends(self, register: Register) -> None:
        """Register classes that implement `llmfw.core.GrammarBackend`."""

    @hookspec
    def register_drafters(self, register: Register) -> None:
        """Register classes that implement `llmfw.core.Drafter` (`--drafter NAME`)."""

    @hookspec
    def register_tool_parsers(self, register: Register) -> None:
        """Register classes that implement `llmfw.core.ToolParser` (`--tool-parser NAME`)."""

    @hookspec
    def register_reasoning_parsers(self, register: Register) -> None:
        """Register classes that implement `llmfw.core.ReasoningParser` (`--reasoning-parser NAME`)."""

    @hookspec
    def register_models(self, register: Register) -> None:
        """Register classes that implement `llmfw.core.ModelSource` (`llmfw serve NAME`)."""

    @hookspec
    def register_observers(self, register: Register) -> None:
        """Register classes that implement `llmfw.core.RequestObserver` (`--observers NAME,NAME`)."""

    @hookspec
    def register_middleware(self, register: Register) -> None:
        """Register classes that implement `llmfw.core.HTTPMiddleware` (`--middleware NAME,NAME`)."""

    @hookspec
    def register_authenticators(self, register: Register) -> None:
        """Register classes that implement `llmfw.core.Authenticator` (`--authenticators NAME,NAME`)."""

    @hookspec
    def register_request_fields(self, register: Register) -> None:
        """Register classes that implement `llmfw.core.RequestField` (`--request-fields NAME,NAME`)."""

    @hookspec
    def register_eviction_rules(self, register: Register) -> None:
        """Register classes that implement `llmfw.core.EvictionRule` (`--eviction NAME`)."""

    @hookspec
    def register_logits_processors(self, register: Register) -> None:
        """Register classes that implement `llmfw.core.LogitsProcessor` (`--logits-processors NAME,NAME`)."""

    @hookspec
    def register_weight_loaders(self, register: Register) -> None:
        """Register classes that implement `llmfw.core.WeightLoader` (`--weight-loader NAME`)."""

    @hookspec
    def register_quantization_schemes(self, register: Register) -> None:
        """Register classes that implement `llmfw.core.QuantizationScheme` (`--quantization NAME`)."""

    @hookspec
    def register_quantized_formats(self, register: Register) -> None:
        """Register classes that implement `llmfw.core.QuantizedFormat`, by the `quant_method` of `config.json`."""

    @hookspec
    def register_model_adapters(self, register: Register) -> None:
        """Register classes that implement `llmfw.core.ModelAdapter` (`--model-adapter NAME`)."""

    @hookspec
    def register_media_processors(self, register: Register) -> None:
        """Register classes that implement `llmfw.core.MediaProcessor`, which prepare images for models."""

    @hookspec
    def register_token_samplers(self, register: Register) -> None:
        """Register classes that implement `llmfw.core.TokenSampler` (`--token-sampler NAME`)."""

    @hookspec
    def register_routers(self, register: Register) -> None:
        """Register classes that implement `llmfw.core.Router` (`--router NAME`)."""

    @hookspec
    def register_adapter_sources(self, register: Register) -> None:
        """Register classes that implement `llmfw.core.AdapterSource` (`--adapter-source NAME`)."""

    @hookspec
    def register_commands(self, cli: click.Group) -> None:
        """Add commands to the `llmfw` command line, with click's own decorators: `@cli.command()`."""

    @hookspec
    def register_routes(self, register: RegisterRoute) -> None:
        """Register HTTP routes, served in addition to the API's own."""


HOOK_NAMES: dict[str, str] = {
    "attention": "register_attention_backends",
    "module_pass": "register_module_passes",
    "policy": "register_schedule_policies",
    "chat_template": "register_chat_templates",
    "file_store": "register_file_stores",
    "batch_store": "register_batch_stores",
    "response_store": "register_response_stores",
    "grammar": "register_grammar_backends",
    "drafter": "register_drafters",
    "tool_parser": "register_tool_parsers",
    "reasoning_parser": "register_reasoning_parsers",
    "model": "register_models",
    "observer": "register_observers",
    "middleware": "register_middleware",
    "authenticator": "register_authenticators",
    "request_field": "register_request_fields",
    "eviction": "register_eviction_rules",
    "logits_processor": "register_logits_processors",
    "weight_loader": "register_weight_loaders",
    "quantization_scheme": "register_quantization_schemes",
    "quantized_format": "register_quantized_formats",
    "model_adapter": "register_model_adapters",
    "media_processor": "register_media_processors",
    "token_sampler": "register_token_samplers",
    "router": "register_routers",
    "adapter_source": "register_adapter_sources",
}
"""Kind of component → the hook that registers it. The kind is also the prefix of the component's options."""

__all__ = ["HOOK_NAMES", "HookSpecs", "Register", "RegisterRoute", "hookspec"]
