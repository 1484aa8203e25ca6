"""Structured output by llguidance: JSON schemas, regular expressions, grammars and structural tags."""

from llmfw.core import Register, hookimpl


@hookimpl
def register_grammar_backends(register: Register) -> None:
    """Register the grammar backend `llguidance`."""
    register(
        "llguidance",
        "llmfw.plugins.grammar_llguidance.backend:LlguidanceBackend",
        summary="JSON schemas, regular expressions, Lark and GBNF grammars, structural tags",
        needs=("llguidance",),
        rank=10,
    )
