"""A model adapter for llmfw: OpenAI GPT, the first one."""

from llmfw.core import hookimpl


@hookimpl
def register_model_adapters(register):
    register(
        "openai-gpt",
        "llmfw_openai_gpt.adapter:OpenAIGPTAdapter",
        summary="OpenAI GPT",
        needs=("torch", "transformers"),
    )
