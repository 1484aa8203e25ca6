"""The kinds of packages that `llmfw plugin new` can write: each kind of component, a command, a route."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from llmfw.core.plugin.hookspecs import HOOK_NAMES

KEPT = "the promises of its interface"


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of package, which contains one component, command or route.

    Attributes:
        name: the kind of component as registered, or "command" or "route".
        summary: description of the generated code, for listings.
        use: shell command that uses it; "{name}" stands for the component's name.
        class_suffix: suffix of the class's name.
        promises: description of what the package's test checks, as a phrase.
        check: options that `llmfw check` needs.
        variant: folder of other templates, within the kind's own; "": its own.
    """

    name: str
    summary: str
    use: str
    class_suffix: str = ""
    promises: str = KEPT
    check: str = ""
    variant: str = ""

    @property
    def spoken(self) -> str:
        """Name of the kind in a sentence, such as "scheduling policy"."""
        return {
            "attention": "attention backend",
            "policy": "scheduling policy",
            "eviction": "eviction rule",
            "grammar": "grammar backend",
        }.get(self.name, self.name.replace("_", " "))

    @property
    def with_article(self) -> str:
        """Name of the kind in a sentence with its article, such as "an observer"."""
        return f"{'an' if self.spoken[0] in 'aeiou' else 'a'} {self.spoken}"

    @property
    def hook(self) -> str:
        """Name of the plugin hook that registers this kind of component, command or route."""
        return HOOK_NAMES.get(self.name) or f"register_{self.name}s"

    @property
    def is_component(self) -> bool:
        """Whether this kind is a component, that is, has its own interface."""
        return self.name in HOOK_NAMES


KINDS: Mapping[str, Kind] = {
    kind.name: kind
    for kind in (
        Kind(
            "attention",
            "plain torch, one sequence after the other",
            "llmfw serve --attention {name}",
            "Attention",
        ),
        Kind("module_pass", "torch's own SiLU", "llmfw serve --module-passes {name}", "Pass"),
        Kind(
            "policy",
            "first come, first served, or the most urgent first",
            "llmfw serve --policy {name}",
            "Policy",
        ),
        Kind("chat_template", "one line for each message", "llmfw serve --chat-template {name}", "Template"),
        Kind("file_store", "files in a dictionary", "llmfw serve --file-store {name}", "Files"),
        Kind("batch_store", "batch jobs in dictionaries", "llmfw serve --batch-store {name}", "Batches"),
        Kind(
            "response_store", "responses in dictionaries", "llmfw serve --response-store {name}", "Responses"
        ),
        Kind("grammar", "one of some texts", "llmfw serve --grammar {name}", "Backend"),
        Kind("drafter", "what came after each token last", "llmfw serve --drafter {name}", "Drafter"),
        Kind("tool_parser", "<call:name>{JSON}</call>", "llmfw serve --tool-parser {name}", "Tools"),
        Kind(
            "reasoning_parser",
            "<thought>…</thought> before the answer",
            "llmfw serve --reasoning-parser {name}",
            "Reasoning",
        ),
        Kind("model", "a model of random weights", "llmfw serve {name}", "Model"),
        Kind(
            "middleware",
            "the time until a reply, as a header",
            "llmfw serve --middleware {name}",
            "Middleware",
        ),
        Kind(
            "authenticator",
            "tokens of a file",
            "llmfw serve --authenticators {name}",
            "Authenticator",
            check="""-o authenticator.{name}.path=FILE --set 'valid=[["authorization", "Bearer TOKEN"]]'""",
        ),
        Kind(
            "eviction",
            "prefixes that requests have found stay longest",
            "llmfw serve --eviction {name}",
            "Rule",
        ),
        Kind(
            "logits_processor",
            "answers that end sooner, if a request asks for it",
            "llmfw serve --logits-processors {name}",
            "Processor",
        ),
        Kind(
            "weight_loader",
            "weights in raw bytes with an index in JSON",
            "llmfw serve FOLDER --weight-loader {name}",
            "Weights",
        ),
        Kind(
            "quantization_scheme",
            "weights in floats of 8 bits",
            "llmfw serve --quantization {name}",
            "Scheme",
        ),
        Kind(
            "quantized_format",
            "codes of a byte, with a scale for each output",
            "llmfw serve FOLDER  # quant_method {name} in its config.json",
            "Format",
        ),
        Kind(
            "model_adapter",
            "GPT-J, whose layers do not call transformers' attention interface",
            "llmfw serve --model-adapter {name}",
            "Adapter",
        ),
        Kind(
            "token_sampler",
            "a sort of the whole vocabulary in plain torch",
            "llmfw serve --token-sampler {name}",
            "Sampler",
        ),
        Kind(
            "media_processor",
            "images as nine tokens each, for a model whose tokens are bytes",
            "llmfw serve FOLDER",
            "Processor",
            check="--set folder=FOLDER",
        ),
        Kind(
            "router",
            "each tenant's requests to one engine, unless that engine is much busier",
            "llmfw serve --replicas 2 --router {name}",
            "Router",
        ),
        Kind(
            "adapter_source",
            "adapters that a JSON file names",
            "llmfw serve --max-adapters 4 --adapter-source {name}",
            "Source",
            check="-o adapter_source.index=FILE --set name=NAME",
        ),
        Kind("observer", "how many requests ended, and why", "llmfw serve --observers {name}", "Observer"),
        Kind(
            "request_field",
            "a label of a few words that requests may have",
            "llmfw serve --request-fields {name}",
            "Field",
        ),
        Kind(
            "command",
            "counts the requests of a batch's input file",
            "llmfw {name} input.jsonl",
            promises="what it says",
        ),
        Kind(
            "route",
            "how requests are served, and how many run and wait",
            "llmfw serve, and then in another terminal: curl http://127.0.0.1:30000/{name}",
            promises="what it says",
        ),
    )
}

PAIRED: Mapping[str, str] = {
    "request_field": "a number from 0 to 10",
    "policy": "the largest number of the request field first",
    "logits_processor": "answers that end sooner, by the number of the request field",
}
"""Summaries of the kinds that are written in another way if one package has a field and a kind that reads it."""


def in_one_package(names: Sequence[str]) -> list[Kind]:
    """Return the kinds of a new package, each once. Kinds that can read the package's request field do so."""
    chosen = list(dict.fromkeys(names))
    if "request_field" not in chosen or len(PAIRED.keys() & set(chosen)) < 2:
        return [KINDS[name] for name in chosen]
    return [
        replace(KINDS[name], summary=PAIRED[name], variant="paired") if name in PAIRED else KINDS[name]
        for name in chosen
    ]
