"""Well-known options of other servers, and what to use here, for users who come from these servers.

The last text of each row completes the sentence "here it is …". Options that have the same name and meaning
here are not in the table.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator

PROGRAMS = ("vLLM", "SGLang", "llama-server")
_ONE_GPU = "not supported: an engine uses one GPU"
_TP_ALONE = "not supported: --tp, on the CPUs of one machine, is the only way to divide a model"
_ADAPTERS = "not needed: --adapter, or --max-adapters, makes room for them"
_FOLDER = "not supported: edit a copy of the model's folder"
_REQUEST = "a field of each request, or of the model's generation_config.json"
_DRAFTER = "--drafter prompt-lookup; draft models are not supported"
_ALWAYS = "not needed: it is always on"

# Server, options (separated by spaces, all with the same advice), what to use here.
_ROWS = (
    ("vLLM", "--max-model-len", "--context-length"),
    ("vLLM", "--gpu-memory-utilization", "--mem-fraction-static, for weights and KV cache alone (default 0.88): choose a smaller number"),
    ("vLLM", "--max-num-seqs", "--max-running-requests"),
    ("vLLM", "--max-num-batched-tokens", "--chunked-prefill-size, which counts prompt tokens alone"),
    ("vLLM", "--block-size", "--page-size"),
    ("vLLM", "--enable-prefix-caching", "not needed: the prefix cache is on, unless --disable-radix-cache"),
    ("vLLM", "--no-enable-prefix-caching", "--disable-radix-cache"),
    ("vLLM", "--enable-chunked-prefill", "not needed: prompts are split, unless --chunked-prefill-size -1"),
    ("vLLM", "--no-enable-chunked-prefill", "--chunked-prefill-size -1"),
    ("vLLM", "--enforce-eager", "--cuda-graph off"),
    ("vLLM", "--scheduling-policy", "--policy; with --policy priority, larger numbers go first"),
    ("vLLM", "--num-scheduler-steps --async-scheduling", "not needed: steps overlap, unless --disable-overlap-schedule"),
    ("vLLM", "--speculative-config --speculative-model", _DRAFTER),
    ("vLLM", "--num-speculative-tokens", "--draft-tokens"),
    ("vLLM", "--enable-auto-tool-choice", "not needed: --tool-parser is enough"),
    ("vLLM", "--guided-decoding-backend --structured-outputs-config", "--grammar"),
    ("vLLM", "--generation-config", "--sampling-defaults"),
    ("vLLM", "--seed", "--random-seed"),
    ("vLLM", "--runner --convert", "--task, usually found by itself"),
    ("vLLM", "-tp", "--tp, on CPUs so far"),
    ("vLLM", "--pipeline-parallel-size -pp", _TP_ALONE),
    ("vLLM", "--data-parallel-size -dp", "--replicas"),
    ("vLLM", "--enable-expert-parallel --distributed-executor-backend", _TP_ALONE),
    ("vLLM", "--enable-lora", _ADAPTERS),
    ("vLLM", "--trust-remote-code", "not supported: llmfw never runs code of a checkpoint"),
    ("vLLM", "--tokenizer --tokenizer-mode --revision --hf-overrides", _FOLDER),
    ("vLLM", "--download-dir", "the environment variable HF_HOME"),
    ("vLLM", "--swap-space --cpu-offload-gb", "not supported: lower --max-total-tokens, or use --quantization"),
    ("vLLM", "--limit-mm-per-prompt", "--max-images, a number for all models"),
    ("vLLM", "--mm-processor-kwargs", "not supported: images are prepared as the checkpoint says"),
    ("vLLM", "--allowed-media-domains", "--allow-media-host"),
    ("vLLM", "--allowed-local-media-path", "not supported: send the data, or upload a file of purpose vision"),
    ("vLLM", "--chat-template-content-format", "not needed: the template decides"),
    ("vLLM", "--allowed-origins", "--allow-origin; a proxy sets CORS headers"),
    ("vLLM", "--disable-log-requests --disable-log-stats", "--log-level warning"),
    ("vLLM", "--enable-log-requests", "--trace-requests N for decisions; prompts are never logged"),
    ("vLLM", "--otlp-traces-endpoint", "--otlp-endpoint, of a collector that takes OTLP over HTTP"),
    ("vLLM", "--num-gpu-blocks-override", "--max-total-tokens, which counts tokens, not blocks"),
    ("vLLM", "--uvicorn-log-level", "--log-level"),
    ("TabbyAPI", "--max-seq-len", "--context-length"),
    ("SGLang", "--disable-cuda-graph", "--cuda-graph off"),
    ("SGLang", "--cuda-graph-bs", "--cuda-graph-max-bs"),
    ("SGLang", "--radix-eviction-policy", "--eviction"),
    ("SGLang", "--enable-priority-scheduling", "--policy priority"),
    ("SGLang", "--speculative-algorithm --speculative-draft-model-path", _DRAFTER),
    ("SGLang", "--speculative-num-draft-tokens", "--draft-tokens"),
    ("SGLang", "--is-embedding", "--task embed, usually found by itself"),
    ("SGLang", "--pp-size --pp --ep-size --ep --nnodes", _TP_ALONE),
    ("SGLang", "--dp --data-parallel-size", "--replicas"),
    ("SGLang", "--enable-lora", _ADAPTERS),
    ("SGLang", "--trust-remote-code", "not supported: llmfw never runs code of a checkpoint"),
    ("SGLang", "--tokenizer-path --tokenizer-mode --revision --json-model-override-args", _FOLDER),
    ("SGLang", "--enable-multimodal", "not needed: the checkpoint decides"),
    ("SGLang", "--enable-hierarchical-cache", "not supported: the prefix cache is in the memory of the device"),
    ("SGLang", "--enable-metrics --enable-cache-report", _ALWAYS),
    ("SGLang", "--enable-trace", "--otlp-endpoint"),
    ("SGLang", "--log-requests", "--trace-requests N for decisions; prompts are never logged"),
    ("SGLang", "--skip-server-warmup", "not needed: there is no warm-up request"),
    ("SGLang", "--enable-torch-compile", "not supported: --module-passes brings faster modules"),
    ("llama-server", "--ctx-size -c", "--context-length for one request, --max-total-tokens for all together"),
    ("llama-server", "--parallel -np", "--max-running-requests"),
    ("llama-server", "--cont-batching -cb --metrics --slots --jinja", _ALWAYS),
    ("llama-server", "--n-gpu-layers --gpu-layers -ngl", "--device cuda, or cpu: the whole model is on one of them"),
    ("llama-server", "--batch-size -b --ubatch-size -ub", "--chunked-prefill-size"),
    ("llama-server", "--cache-type-k -ctk --cache-type-v -ctv", "--kv-cache-dtype, one for both"),
    ("llama-server", "--flash-attn -fa", "not needed: --attention chooses the backend"),
    ("llama-server", "--mlock --no-mmap", "not needed"),
    ("llama-server", "-m", "the argument MODEL: a GGUF file, or a folder with safetensors"),
    ("llama-server", "--hf-repo -hf", "the argument MODEL, the id of a repository with safetensors"),
    ("llama-server", "--alias -a", "--served-model-name"),
    ("llama-server", "-t", "--threads"),
    ("llama-server", "--seed", "--random-seed"),
    ("llama-server", "--chat-template-file", "--chat-template"),
    ("llama-server", "--reasoning-format", "--reasoning-parser and --reasoning-field"),
    ("llama-server", "--reasoning-budget", '"thinking_budget" of each request'),
    ("llama-server", "--temp --top-k --top-p --min-p --repeat-penalty", _REQUEST),
    ("llama-server", "--n-predict --predict -n", '"max_tokens" of each request'),
    ("llama-server", "--grammar-file --json-schema", '"response_format" of each request'),
    ("llama-server", "--model-draft -md", _DRAFTER),
    ("llama-server", "--embedding --embeddings", "--task embed, usually found by itself"),
    ("llama-server", "--lora --lora-scaled", "--adapter NAME=PATH, with a folder that PEFT has saved"),
    ("llama-server", "--mmproj", "not supported: serve the original checkpoint, which has both parts"),
    ("llama-server", "--context-shift", "not supported: a sequence ends at --context-length"),
    ("llama-server", "--reranking --rerank", "not needed: /rerank works, except with a classifier of several labels"),
    ("llama-server", "--tensor-split --split-mode", _ONE_GPU),
    ("llama-server", "--ssl-key-file", "--tls-key"),
    ("llama-server", "--ssl-cert-file", "--tls-cert"),
)  # fmt: skip


_OPPOSITES = ("no-", "disable-")


def foreign_flags(program: str | None = None) -> Iterator[tuple[list[str], str]]:
    """Yield pairs: options of another server with the same advice, and the advice.

    Args:
        program: name of the server; None: all servers.
    """
    for owner, flags, here in _ROWS:
        if program in (None, owner):
            yield flags.split(), here


def advice(flag: str) -> str | None:
    """Return one line of advice on what to use instead of another server's option; None for other options."""
    rows = [(owner, here) for owner, flags, here in _ROWS if flag in flags.split()]
    if not rows:
        return None
    return f"{flag} is an option of {' and '.join(owner for owner, _ in rows)}; here it is {rows[0][1]}"


def nearest(flag: str, own: Iterable[str]) -> str | None:
    """Return the known option whose spelling is closest to `flag`; None if no spelling is close.

    Known options are those of llmfw and of other servers. An option that turns something off is never
    returned for an option that turns something on, nor the reverse.

    Args:
        own: names of our options.
    """
    foreign = [name for names, _ in foreign_flags() for name in names]
    known = [
        name
        for name in dict.fromkeys([*own, *foreign])
        if name.startswith("--") and _turns_off(name) == _turns_off(flag)
    ]
    found = difflib.get_close_matches(flag, known, n=1, cutoff=0.8)
    return found[0] if found else None


def _turns_off(flag: str) -> bool:
    return flag.removeprefix("--").startswith(_OPPOSITES)
