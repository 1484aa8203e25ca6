"""Random models that read images, a few thousand weights each, with tokenizers and processors of transformers."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import tokenizers
import torch
import transformers
from transformers import AutoModelForMultimodalLM, PreTrainedTokenizerFast

from llmfw.core.base.image import Image

from ....models.tiny_config import tiny_config

VOCAB_SIZE = 400
FIRST_BYTE = 3
FIRST_SPECIAL = 300
TEXT: dict[str, Any] = {
    "vocab_size": VOCAB_SIZE,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "max_position_embeddings": 1024,
    "bos_token_id": 0,
    "eos_token_id": 1,
    "pad_token_id": 2,
}
MROPE = {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [2, 3, 3]}
CLIP = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 2,
    "image_size": 32,
    "patch_size": 8,
}
SIGLIP = CLIP | {"model_type": "siglip_vision_model"}


def save_vision_model(folder: Path, family: str) -> Path:
    """Write a random float32 model of a family with its processor; return its folder."""
    _FAMILIES[family](folder)
    return folder


def picture(seed: int, width: int = 40, height: int = 32) -> Image:
    """Return a picture with coarse random blocks, so that resized pictures differ, too."""
    rng = random.Random(seed)
    blocks = [
        [bytes(rng.randrange(256) for _ in range(3)) for _ in range(width // 8 + 1)]
        for _ in range(height // 8 + 1)
    ]
    pixels = b"".join(blocks[y // 8][x // 8] for y in range(height) for x in range(width))
    size = width.to_bytes(4, "little") + height.to_bytes(4, "little")
    return Image(width, height, pixels, hashlib.sha256(size + pixels).digest())


def _save(
    folder: Path,
    config: Any,
    image_processor: Any,
    processor: str,
    special: Mapping[str, int],
    named: Mapping[str, str] | None = None,
    **settings: Any,
) -> None:
    torch.manual_seed(1)
    model = AutoModelForMultimodalLM.from_config(config, dtype=torch.float32)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() >= 2:
                parameter.normal_(0, 0.15)
            else:
                parameter.add_(torch.randn_like(parameter), alpha=0.1)
    model.save_pretrained(folder)
    tokenizer = _tokenizer(special, named or {})
    tokenizer.save_pretrained(folder)
    image_processor.save_pretrained(folder)
    import json

    (folder / "processor_config.json").write_text(json.dumps({"processor_class": processor} | settings))


def _tokenizer(special: Mapping[str, int], named: Mapping[str, str]) -> PreTrainedTokenizerFast:
    """Return a tokenizer with a token for each byte, and special tokens at given ids."""
    alphabet = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
    vocab = {token: FIRST_BYTE + i for i, token in enumerate(alphabet)}
    vocab |= {"<s>": 0, "</s>": 1, "<pad>": 2} | dict(special)
    made = tokenizers.Tokenizer(tokenizers.models.BPE(vocab=vocab, merges=[]))
    made.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    made.decoder = tokenizers.decoders.ByteLevel()
    made.add_special_tokens(["<s>", "</s>", "<pad>", *special])
    return PreTrainedTokenizerFast(
        tokenizer_object=made,
        bos_token="<s>",
        eos_token="</s>",
        pad_token="<pad>",
        **({"extra_special_tokens": dict(named)} if named else {}),
    )


def _qwen(
    folder: Path,
    model_type: str,
    vision: Mapping[str, Any],
    processor: str,
    patch: int,
    text: Mapping[str, Any] | None = None,
) -> None:
    special = {
        name: FIRST_SPECIAL + i
        for i, name in enumerate(("<|vision_start|>", "<|vision_end|>", "<|image_pad|>", "<|video_pad|>"))
    }
    config = tiny_config(
        model_type,
        text_config=TEXT | {"rope_parameters": dict(MROPE)} | dict(text or {}),
        vision_config={
            "depth": 3,
            "num_heads": 2,
            "patch_size": patch,
            "spatial_merge_size": 2,
            "temporal_patch_size": 2,
            "in_channels": 3,
        }
        | dict(vision),
        vision_start_token_id=300,
        vision_end_token_id=301,
        image_token_id=302,
        video_token_id=303,
        tie_word_embeddings=False,
    )
    images = transformers.Qwen2VLImageProcessorPil(
        patch_size=patch,
        merge_size=2,
        temporal_patch_size=2,
        size={"shortest_edge": 16 * patch * patch, "longest_edge": 256 * patch * patch},
    )
    _save(folder, config, images, processor, special)


def _qwen2_vl(folder: Path) -> None:
    _qwen(folder, "qwen2_vl", {"embed_dim": 32, "hidden_size": 64, "mlp_ratio": 2}, "Qwen2VLProcessor", 8)


def _qwen2_5_vl(folder: Path) -> None:
    vision = {
        "hidden_size": 32,
        "intermediate_size": 48,
        "out_hidden_size": 64,
        "window_size": 32,
        "fullatt_block_indexes": [1],
        "tokens_per_second": 2,
    }
    _qwen(folder, "qwen2_5_vl", vision, "Qwen2_5_VLProcessor", 8)


def _qwen3_vl(folder: Path) -> None:
    vision = {
        "hidden_size": 32,
        "intermediate_size": 48,
        "out_hidden_size": 64,
        "deepstack_visual_indexes": [0, 1],
        "num_position_embeddings": 64,
    }
    _qwen(folder, "qwen3_vl", vision, "Qwen3VLProcessor", 8)


def _qwen3_5(folder: Path) -> None:
    vision = {
        "hidden_size": 32,
        "intermediate_size": 48,
        "out_hidden_size": 64,
        "num_position_embeddings": 64,
    }
    text = {
        "layer_types": ["linear_attention", "full_attention"] * 2,
        "linear_num_key_heads": 2,
        "linear_num_value_heads": 4,
        "linear_key_head_dim": 16,
        "linear_value_head_dim": 16,
        "rope_parameters": MROPE | {"partial_rotary_factor": 1.0},
    }
    _qwen(folder, "qwen3_5", vision, "Qwen3VLProcessor", 8, text)


def _llava(folder: Path) -> None:
    config = tiny_config(
        "llava",
        text_config=TEXT | {"model_type": "llama"},
        vision_config=CLIP | {"model_type": "clip_vision_model"},
        image_token_id=300,
        image_seq_length=16,
        vision_feature_layer=-2,
        vision_feature_select_strategy="default",
        tie_word_embeddings=False,
    )
    images = transformers.CLIPImageProcessorPil(
        size={"shortest_edge": 32}, crop_size={"height": 32, "width": 32}
    )
    _save(
        folder,
        config,
        images,
        "LlavaProcessor",
        {"<image>": 300},
        patch_size=8,
        vision_feature_select_strategy="default",
        num_additional_image_tokens=1,
    )


def _idefics(folder: Path, model_type: str, images: Any, processor: str, vision: str) -> None:
    names = ["<fake_token_around_image>", "<image>", "<end_of_utterance>", "<global-img>"]
    names += [f"<row_{i + 1}_col_{j + 1}>" for i in range(6) for j in range(6)]
    special = {name: FIRST_SPECIAL + i for i, name in enumerate(names)}
    config = tiny_config(
        model_type,
        text_config=TEXT | {"model_type": "llama"},
        vision_config=CLIP | {"model_type": vision},
        image_token_id=301,
        scale_factor=2,
        tie_word_embeddings=False,
    )
    _save(folder, config, images, processor, special, image_seq_len=4)


def _idefics3(folder: Path) -> None:
    images = transformers.Idefics3ImageProcessorPil(
        size={"longest_edge": 64}, max_image_size={"longest_edge": 32}
    )
    _idefics(folder, "idefics3", images, "Idefics3Processor", "idefics3_vision")


def _internvl(folder: Path) -> None:
    special = {"<img>": 300, "</img>": 301, "<IMG_CONTEXT>": 302, "<video>": 303}
    named = {
        "start_image_token": "<img>",
        "end_image_token": "</img>",
        "context_image_token": "<IMG_CONTEXT>",
        "video_token": "<video>",
    }
    vision = {
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 3,
        "num_attention_heads": 2,
        "image_size": [32, 32],
        "patch_size": [8, 8],
    }
    config = tiny_config(
        "internvl",
        text_config=TEXT | {"model_type": "qwen2"},
        vision_config=vision,
        image_token_id=302,
        image_seq_length=4,
        downsample_ratio=0.5,
        vision_feature_layer=-1,
        tie_word_embeddings=False,
    )
    images = transformers.GotOcr2ImageProcessorPil(
        size={"height": 32, "width": 32}, crop_to_patches=True, max_patches=4
    )
    _save(folder, config, images, "InternVLProcessor", special, named, image_seq_length=4)


def _llava_next(folder: Path) -> None:
    grid = [[32, 64], [64, 32], [64, 64]]
    config = tiny_config(
        "llava_next",
        text_config=TEXT | {"model_type": "llama"},
        vision_config=CLIP | {"model_type": "clip_vision_model"},
        image_token_id=300,
        image_grid_pinpoints=grid,
        vision_feature_layer=-2,
        vision_feature_select_strategy="default",
        tie_word_embeddings=False,
    )
    crop = {"height": 32, "width": 32}
    images = transformers.LlavaNextImageProcessorPil(
        size={"shortest_edge": 32}, crop_size=crop, image_grid_pinpoints=grid
    )
    settings = {
        "patch_size": 8,
        "vision_feature_select_strategy": "default",
        "num_additional_image_tokens": 1,
    }
    _save(folder, config, images, "LlavaNextProcessor", {"<image>": 300}, **settings)


def _llava_onevision(folder: Path) -> None:
    grid = [[32, 32], [32, 64], [64, 32]]
    config = tiny_config(
        "llava_onevision",
        text_config=TEXT | {"model_type": "qwen2"},
        vision_config=SIGLIP,
        image_token_id=300,
        video_token_id=301,
        image_grid_pinpoints=grid,
        vision_feature_layer=-1,
        vision_feature_select_strategy="full",
        tie_word_embeddings=False,
    )
    images = transformers.LlavaOnevisionImageProcessorPil(
        size={"height": 32, "width": 32}, image_grid_pinpoints=grid
    )
    special = {"<image>": 300, "<video>": 301}
    settings = {"num_image_tokens": 16, "vision_feature_select_strategy": "full"}
    _save(folder, config, images, "LlavaOnevisionProcessor", special, **settings)


def _glm4v(folder: Path) -> None:
    names = ("begin_of_image", "end_of_image", "image", "begin_of_video", "end_of_video", "video")
    config = tiny_config(
        "glm4v",
        text_config=TEXT | {"rope_parameters": MROPE | {"partial_rotary_factor": 1.0}},
        vision_config={
            "depth": 2,
            "hidden_size": 32,
            "num_heads": 2,
            "patch_size": 8,
            "image_size": 32,
            "out_hidden_size": 64,
            "intermediate_size": 48,
            "spatial_merge_size": 2,
            "temporal_patch_size": 2,
        },
        image_start_token_id=300,
        image_end_token_id=301,
        image_token_id=302,
        video_start_token_id=303,
        video_end_token_id=304,
        video_token_id=305,
        tie_word_embeddings=False,
    )
    images = transformers.Glm4vImageProcessorPil(
        patch_size=8, merge_size=2, temporal_patch_size=2, size={"shortest_edge": 1024, "longest_edge": 65536}
    )
    special = {f"<|{name}|>": FIRST_SPECIAL + i for i, name in enumerate(names)}
    _save(folder, config, images, "Glm4vProcessor", special)


def _gemma3(folder: Path) -> None:
    special = {"<image_soft_token>": 300, "<start_of_image>": 301, "<end_of_image>": 302}
    named = {
        "image_token": "<image_soft_token>",
        "boi_token": "<start_of_image>",
        "eoi_token": "<end_of_image>",
    }
    config = tiny_config(
        "gemma3",
        text_config=TEXT | {"sliding_window": 24},
        vision_config=CLIP | {"model_type": "siglip_vision_model"},
        image_token_index=300,
        boi_token_index=301,
        eoi_token_index=302,
        mm_tokens_per_image=16,
    )
    images = transformers.Gemma3ImageProcessorPil(size={"height": 32, "width": 32})
    _save(folder, config, images, "Gemma3Processor", special, named, image_seq_length=16)


def _paligemma(folder: Path) -> None:
    config = tiny_config(
        "paligemma",
        text_config=TEXT | {"model_type": "gemma"},
        vision_config=CLIP | {"model_type": "siglip_vision_model", "projection_dim": 64},
        projection_dim=64,
        image_token_index=300,
    )
    images = transformers.SiglipImageProcessorPil(size={"height": 32, "width": 32})
    images.image_seq_length = 16
    _save(folder, config, images, "PaliGemmaProcessor", {"<image>": 300})


def _smolvlm(folder: Path) -> None:
    special = {
        "<image>": 300,
        "<fake_token_around_image>": 301,
        "<global-img>": 302,
        "<end_of_utterance>": 303,
        "<video>": 304,
    } | {f"<row_{row}_col_{column}>": 300 + 4 * row + column for row in (1, 2) for column in (1, 2)}
    config = tiny_config(
        "smolvlm",
        text_config=TEXT | {"model_type": "llama"},
        vision_config=CLIP | {"image_size": 32, "patch_size": 8},
        image_token_id=300,
        scale_factor=2,
        tie_word_embeddings=False,
    )
    images = transformers.SmolVLMImageProcessorPil(
        size={"longest_edge": 64}, max_image_size={"longest_edge": 32}
    )
    _save(folder, config, images, "SmolVLMProcessor", special, image_seq_len=4)


def _mistral3(folder: Path) -> None:
    config = tiny_config(
        "mistral3",
        text_config=TEXT | {"model_type": "mistral"},
        vision_config=CLIP | {"model_type": "pixtral", "head_dim": 16, "image_size": 64},
        image_token_index=300,
        spatial_merge_size=2,
        vision_feature_layer=-1,
        tie_word_embeddings=False,
    )
    images = transformers.PixtralImageProcessorPil(
        patch_size={"height": 8, "width": 8}, size={"longest_edge": 64}
    )
    special = {"[IMG]": 300, "[IMG_BREAK]": 301, "[IMG_END]": 302}
    _save(folder, config, images, "PixtralProcessor", special, patch_size=8, spatial_merge_size=2)


def _pixtral(folder: Path) -> None:
    config = tiny_config(
        "llava",
        text_config=TEXT | {"model_type": "mistral"},
        vision_config=CLIP | {"model_type": "pixtral", "head_dim": 16, "image_size": 64},
        image_token_index=300,
        vision_feature_layer=-1,
        vision_feature_select_strategy="full",
        tie_word_embeddings=False,
    )
    images = transformers.PixtralImageProcessorPil(
        patch_size={"height": 8, "width": 8}, size={"longest_edge": 64}
    )
    special = {"[IMG]": 300, "[IMG_BREAK]": 301, "[IMG_END]": 302}
    _save(folder, config, images, "PixtralProcessor", special, patch_size=8)


_FAMILIES: dict[str, Callable[[Path], None]] = {
    "qwen2-vl": _qwen2_vl,
    "qwen2.5-vl": _qwen2_5_vl,
    "qwen3-vl": _qwen3_vl,
    "qwen3.5": _qwen3_5,
    "llava": _llava,
    "idefics3": _idefics3,
    "internvl": _internvl,
    "llava-next": _llava_next,
    "llava-onevision": _llava_onevision,
    "glm4v": _glm4v,
    "gemma3": _gemma3,
    "paligemma": _paligemma,
    "smolvlm": _smolvlm,
    "mistral3": _mistral3,
    "pixtral": _pixtral,
}
DIFFERENT = ("qwen3-vl", "llava", "idefics3", "gemma3")
"""Families whose images differ most; `make test` runs most tests with these alone."""
OTHERS = tuple(name for name in _FAMILIES if name not in (*DIFFERENT, "paligemma"))
"""Further families whose images are served."""
