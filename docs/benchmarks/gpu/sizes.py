"""What is measured, and how much of it: on a GPU, and with --dry on a CPU."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

LLAMA_8B: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "vocab_size": 128256,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "max_position_embeddings": 131072,
    "rms_norm_eps": 1e-5,
    "rope_parameters": {
        "rope_type": "llama3",
        "rope_theta": 500000.0,
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
    },
    "initializer_range": 0.02,
    "tie_word_embeddings": False,
    "bos_token_id": 128000,
    "eos_token_id": 128009,
    "dtype": "bfloat16",
}
"""The config of Llama-3.1-8B."""

TINY = LLAMA_8B | {
    "hidden_size": 64,
    "intermediate_size": 128,
    "vocab_size": 512,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "max_position_embeddings": 2048,
    "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0},
    "bos_token_id": 0,
    "eos_token_id": 1,
    "dtype": "float32",
}


@dataclass(frozen=True)
class Sizes:
    """What the stages run on.

    Attributes:
        model: config.json.
        device, dtype: of the model.
        kv_tokens: room for keys and values, in tokens.
        context: longest sequence.
        most_running: sequences in one step.
        copy_bytes: of the copy that gives the bandwidth.
        cube: side of the matrices whose product gives the rate of arithmetic.
        rows: of the products with a layer's matrices.
        few_rows: of the products with each matrix that our kernels are tried on.
        batches: sequences that decode together. One that is twice here is measured twice.
        prompt, output, shared: tokens of each request; `shared` of the prompt stand at the beginning of each in the
            server's stage and in prefill on a prefix.
        window: steps whose median is taken, near the beginning and near the end.
        sampled_batches: sequences that decode together with tokens drawn at random.
        profiled: steps that are watched for what the GPU does, and as many by the profiler.
        chosen_rows: rows of logits from which a token each is chosen, alone.
        prefills: requests, tokens of each, tokens of each that are cached.
        attention: sequences, and tokens of each, of attention alone.
        attention_prefill: tokens of one prompt, for attention alone.
        spread_bytes: keys and values that attention goes through before it comes to the same again: more than any cache
            holds.
        backend_batches: of the whole decode with each backend.
        reference_tokens: with the backend `torch`, cases with more tokens are left out.
        long_contexts: sequences, and tokens of each one's prompt, that are decoded with each dtype of keys and values.
        clients: of the server.
        peer_batches, peer_streams: sequences of transformers' `generate`, and of its continuous batching.
        peer_output: tokens that each makes of a request.
    """

    model: dict[str, Any]
    device: str
    dtype: str
    kv_tokens: int
    context: int
    most_running: int
    copy_bytes: int
    cube: int
    rows: tuple[int, ...]
    few_rows: tuple[int, ...]
    batches: tuple[int, ...]
    prompt: int
    output: int
    shared: int
    window: int
    sampled_batches: tuple[int, ...]
    profiled: int
    chosen_rows: tuple[int, ...]
    prefills: tuple[tuple[int, int, int], ...]
    attention: tuple[tuple[int, int], ...]
    attention_prefill: int
    spread_bytes: int
    backend_batches: tuple[int, ...]
    reference_tokens: int
    long_contexts: tuple[int, int]
    clients: tuple[int, ...]
    peer_batches: tuple[int, ...]
    peer_streams: tuple[int, ...]
    peer_output: int


FULL = Sizes(
    model=LLAMA_8B,
    device="cuda",
    dtype="bfloat16",
    kv_tokens=300_000,
    context=16_384,
    most_running=512,
    copy_bytes=4 << 30,
    cube=8192,
    rows=(1, 100, 500),
    few_rows=(1, 2, 8, 32, 64, 104),
    batches=(1, 100, 500, 8, 64, 256, 100),
    prompt=55,
    output=500,
    shared=25,
    window=100,
    sampled_batches=(100, 500),
    profiled=10,
    chosen_rows=(1, 100, 500),
    prefills=((1, 8192, 0), (8, 1024, 0), (64, 128, 0), (500, 30, 25)),
    attention=tuple((batch, context) for batch in (1, 8, 100, 500) for context in (100, 500, 4000)),
    attention_prefill=8192,
    spread_bytes=256 << 20,
    backend_batches=(1, 100),
    reference_tokens=50_000,
    long_contexts=(100, 2000),
    clients=(100, 500),
    peer_batches=(64,),
    peer_streams=(100,),
    peer_output=100,
)

DRY = Sizes(
    model=TINY,
    device="cpu",
    dtype="float32",
    kv_tokens=2048,
    context=1024,
    most_running=8,
    copy_bytes=4 << 20,
    cube=128,
    rows=(1, 4),
    few_rows=(1, 2),
    batches=(1, 4, 1),
    prompt=11,
    output=12,
    shared=5,
    window=3,
    sampled_batches=(4,),
    profiled=3,
    chosen_rows=(4,),
    prefills=((1, 64, 0), (4, 6, 5)),
    attention=((1, 20), (3, 40)),
    attention_prefill=32,
    spread_bytes=1 << 14,
    backend_batches=(2,),
    reference_tokens=1000,
    long_contexts=(4, 100),
    clients=(4,),
    peer_batches=(2,),
    peer_streams=(4,),
    peer_output=4,
)
