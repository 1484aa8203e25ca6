"""The settings and kinds of components that an embedding engine does not use."""

from __future__ import annotations

MEANINGLESS = {
    "tp": "--tp",
    "attention": "--attention",
    "prefill_attention": "--prefill-attention",
    "model_adapter": "--model-adapter",
    "module_passes": "--module-passes",
    "adapters": "--adapter",
    "max_adapters": "--max-adapters",
    "max_loaded_adapters": "--max-loaded-adapters",
    "max_adapter_rank": "--max-adapter-rank",
    "token_sampler": "--token-sampler",
    "policy": "--policy",
    "grammar": "--grammar",
    "drafter": "--drafter",
    "draft_tokens": "--draft-tokens",
    "draft_batch_tokens": "--draft-batch-tokens",
    "logits_processors": "--logits-processors",
    "page_size": "--page-size",
    "max_total_tokens": "--max-total-tokens",
    "mem_fraction_static": "--mem-fraction-static",
    "schedule_conservativeness": "--schedule-conservativeness",
    "disable_radix_cache": "--disable-radix-cache",
    "max_state_snapshots": "--max-state-snapshots",
    "state_snapshot_dtype": "--state-snapshot-dtype",
    "eviction": "--eviction",
    "record_requests": "--record-requests",
    "record_steps": "--record-steps",
    "max_pinned_fraction": "--max-pinned-fraction",
    "trace_requests": "--trace-requests",
}
"""Settings without a meaning for an embedding engine, such as KV cache settings, and their flags."""

UNUSED_KINDS = frozenset(
    {
        "attention",
        "module_pass",
        "policy",
        "grammar",
        "drafter",
        "eviction",
        "logits_processor",
        "token_sampler",
    }
)
"""Kinds of components that an embedding engine does not use. Their options would have no effect."""
