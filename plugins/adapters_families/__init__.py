"""Model adapters for families whose layers do not call transformers' attention interface as llmfw needs it.

An engine imports all adapters to find the one for its model. So they import a family's classes only in `adapt`.
"""

from __future__ import annotations

from llmfw.core import Register, hookimpl

_HERE = "llmfw.plugins.adapters_families"
RANK = -10
"""Lower than the default rank, so that adapters from other packages take precedence."""


@hookimpl
def register_model_adapters(register: Register) -> None:
    """Register one adapter for each family."""
    adapters = (
        ("falcon", "falcon:FalconAdapter", "Falcon with rotary embeddings, in all its architectures"),
        ("stablelm", "passed_on:StableLMAdapter", "StableLM"),
        ("nemotron", "passed_on:NemotronAdapter", "Nemotron, without the hybrid ones"),
        ("gptj", "attention_method:GPTJAdapter", "GPT-J"),
        ("codegen", "attention_method:CodeGenAdapter", "CodeGen"),
        ("gpt_neo", "gpt_neo:GPTNeoAdapter", "GPT-Neo, with its local windows"),
        ("llama4", "llama4:Llama4Adapter", "Llama 4, up to the length of a chunk"),
        ("diffllama", "diffllama:DiffLlamaAdapter", "DiffLlama"),
        ("doge", "doge:DogeAdapter", "Doge, up to the length at which it drops tokens"),
        ("gpt_neox_japanese", "attention_method:GPTNeoXJapaneseAdapter", "GPT-NeoX Japanese"),
        ("bart", "row_positions:RowPositionsAdapter", "BART, Marian, MBart, Pegasus, Blenderbot, PLBart"),
        ("mvp", "projected:BartLikeAdapter", "MVP, TrOCR and XGLM"),
        ("megatron_bert", "projected:BertLikeAdapter", "Megatron-BERT, RemBERT, BigBird with full attention"),
        ("roformer", "projected:RoFormerAdapter", "RoFormer"),
        ("git", "projected:GitAdapter", "GIT, without images"),
        ("openai_gpt", "openai_gpt:OpenAIGPTAdapter", "the first GPT"),
        ("bloom", "bloom:BloomAdapter", "BLOOM, with its linear biases"),
        ("mpt", "mpt:MptAdapter", "MPT, with its linear biases"),
    )
    for name, path, summary in adapters:
        register(name, f"{_HERE}.{path}", summary=summary, needs=("torch",), rank=RANK)
