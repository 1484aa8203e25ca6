"""Embeddings: request and reply."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

import msgspec

from .common import Body, SmallInt, Timeout
from .refusals import Refusal, absent, of_prompt, renamed

_NEVER_CUT = "an input that is too long is refused, never cut"
_NORMALIZED = "the model's files say whether vectors are normalized"
_POOLING = "the model's files say how its vectors are pooled"
_FORMAT = "use encoding_format: float or base64"
_NO_PREFIX = "this server adds no prefix; write it into the input"


class EmbeddingRequest(Body, kw_only=True):
    """Body of POST /v1/embeddings. `input` is a text, a list of token ids, or a list of either.

    If the request has `messages` instead, the template renders them as one text, which is embedded.
    """

    input: str | list[str | SmallInt | list[SmallInt]] | None = None
    messages: list[dict[str, Any]] | None = None
    model: str | None = None
    encoding_format: Literal["float", "base64"] | None = None
    dimensions: SmallInt | None = None
    add_special_tokens: bool | None = None
    add_generation_prompt: bool | None = None
    continue_final_message: bool | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    timeout: Timeout | None = None
    user: str | None = None

    refused: ClassVar[Mapping[str, Refusal]] = {
        **dict.fromkeys(("auto_truncate", "truncate"), of_prompt(_NEVER_CUT, False, "NONE")),
        "truncate_prompt_tokens": of_prompt(_NEVER_CUT),
        "chat_template": of_prompt("--chat-template chooses it for the server"),
        "documents": renamed("input", neutral=([],)),
        "images": of_prompt("this server reads text only", []),
        "input_type": of_prompt(_NO_PREFIX),
        "instruction": of_prompt(_NO_PREFIX, ""),
        "late_chunking": absent(False, why="each input has a vector of its own"),
        "tools": of_prompt("this route takes none", []),
        "normalize": absent(why=_NORMALIZED),
        "normalize_embeddings": absent(why=_NORMALIZED),
        **dict.fromkeys(
            ("embed_dtype", "output_dtype"), absent("float", "float32", why="vectors are of float32")
        ),
        "embedding_type": absent("float", why=_FORMAT),
        "embedding_types": absent(["float"], why=_FORMAT),
        "output_dimension": renamed("dimensions"),
        **dict.fromkeys(("embed_dim", "output_dimensionality", "truncate_dim"), renamed("dimensions")),
        **dict.fromkeys(("pooling", "pooling_method", "pooling_type"), absent(why=_POOLING)),
        "multi_vector": absent(False, why="each input has one vector"),
        "return_multivector": absent(False, why="each input has one vector"),
        **dict.fromkeys(("normalized", "activation", "use_activation"), absent(why=_NORMALIZED)),
        "embd_normalize": absent(why=_NORMALIZED),
        "endianness": absent("native", "little", why="vectors in base64 are little-endian"),
        "dtype": absent("float", "float32", why="vectors are of float32"),
        "quantization": absent(why="vectors are of float32"),
        "lora_request": absent({}, why="embeddings are those of the model without an adapter"),
        "task_type": of_prompt(_NO_PREFIX),
        "title": of_prompt(_NO_PREFIX, ""),
        "query_instruction": of_prompt(_NO_PREFIX, ""),
        "text_type": of_prompt(_NO_PREFIX),
        "input_text": renamed("input"),
        "inputs": renamed("input", neutral=([],)),
        "texts": renamed("input", neutral=([],)),
        "content": renamed("input", neutral=("",)),
        "prompt": of_prompt(_NO_PREFIX, ""),
        "prompt_name": of_prompt(_NO_PREFIX, ""),
        "task": of_prompt(_NO_PREFIX, ""),
        "options": absent({}, why="send the fields in it themselves"),
        "extra_body": absent({}, why="send the fields in it themselves"),
    }


class Embedding(msgspec.Struct, kw_only=True):
    """One vector: a list of numbers, or little-endian float32 values as base64."""

    object: str = "embedding"
    index: int
    embedding: list[float] | str


class EmbeddingUsage(msgspec.Struct, kw_only=True):
    """Token counts. The two counts are equal, because nothing is generated."""

    prompt_tokens: int
    total_tokens: int


class EmbeddingList(msgspec.Struct, kw_only=True):
    """Reply of POST /v1/embeddings."""

    object: str = "list"
    data: list[Embedding]
    model: str
    usage: EmbeddingUsage
