"""Computes embeddings of prompts with a transformers encoder. Independent of requests."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from torch import nn
from transformers.modeling_utils import PreTrainedModel
from transformers.models.auto.modeling_auto import AutoModel

from llmfw.core.base.config import EngineConfig
from llmfw.core.base.errors import ConfigError, ModelError
from llmfw.core.model.changes.pack import pack_linears
from llmfw.core.model.config.context_length import choose_context_length
from llmfw.core.model.config.model_kind import inputs_of
from llmfw.core.model.failure.refusal import not_finite, refused, refusing
from llmfw.core.model.loading import Loading, load_module, log_loaded, quiet_transformers, weight_bytes
from llmfw.core.model.quantization.chosen_scheme import ChosenScheme
from llmfw.core.plugin.registry import Registry

from .batch import padded
from .batch_check import check_batches, check_long_texts
from .pooling import Pooling, load_pooling
from .served_weights import served_differences

logger = logging.getLogger(__name__)

TRIAL = (2, 3, 2)
"""Token ids for a trial run of a model."""


class Encoder:
    """Computes the vectors of prompts in padded batches.

    Batches are padded on the right and have a mask, as in the code of the models' authors, so that each
    family's own rules for positions and masks apply. The alternative, packing all tokens into one row with
    attention within each sequence, was as fast as batches of similar lengths, within the noise (MiniLM, 200
    sentences of 4 to 250 tokens, CPU), and would need special code for each family.

    Args:
        module: transformers' model without a head, in evaluation mode, on its device.
        pooling: turns the model's outputs into vectors.
        max_length: length of the longest sequence in tokens.
    """

    def __init__(self, module: PreTrainedModel, pooling: Pooling, max_length: int) -> None:
        self.module = module
        self.pooling = pooling
        self.max_length = max_length

    @classmethod
    def load(
        cls,
        config: EngineConfig,
        device: torch.device,
        registry: Registry,
        scheme: ChosenScheme | None = None,
    ) -> Encoder:
        """Load a model and the pooling that its files specify, and quantize the model if a scheme is given.

        Raises:
            ModelError: the model cannot be found or served; the message gives the reason.
            ConfigError: the dtype, context length, load format, weight loader or scheme does not fit the model.
            ComponentError: the weight loader or the scheme is faulty.
        """
        pooling = load_pooling(config.model)
        started = time.perf_counter()
        quiet_transformers()
        loading = Loading.of(config, device, registry, scheme, partial(_class_for, config.model))
        module, differences = load_module(loading)
        with refusing(module, "running it on a few tokens"):
            differences = served_differences(module, differences)
        differences.refuse_any(config.model)
        if not pooling.is_given:
            _check_guess(config.model, module)
        quantized = loading.quantize(module)
        with loading.blaming_scheme():
            size = _check_outputs(module)
        if pooling.size not in (None, size):
            raise ModelError(
                f"model {config.model!r}: its pooling is for vectors of {pooling.size} dimensions, and its weights give {size}; "
                "correct word_embedding_dimension, or take the files of one model"
            )
        log_loaded(loading, module, weight_bytes(module, quantized), started)
        pack_linears(module)
        encoder = cls(module, pooling, max_length(config, module, pooling.max_length))
        check_batches(module, lambda texts: encoder.encode(texts, [None] * len(texts)))
        check_long_texts(module, encoder.max_length)
        return encoder

    @torch.inference_mode()
    def encode(
        self,
        prompts: Sequence[Sequence[int]],
        dimensions: Sequence[int | None],
        types: Sequence[Sequence[int]] = (),
    ) -> list[torch.Tensor]:
        """Return a float32 vector on the CPU for each prompt, in one forward pass.

        Args:
            prompts: token ids of each prompt, at least one; similar lengths need the least padding.
            dimensions: number of dimensions of each prompt's vector; None: all.
            types: not used: texts that are embedded are not pairs.
        """
        ids, mask = padded(prompts)
        device = self.module.device
        mask = mask.to(device)
        output = self.module(input_ids=ids.to(device), attention_mask=mask, return_dict=True)
        return [v.cpu() for v in self.pooling(output.last_hidden_state, mask, list(dimensions))]


def _class_for(model: str, hf_config: Any) -> Any:
    """Return transformers' class for a model without a head; raise ModelError if it is not an encoder of text."""
    if getattr(hf_config, "is_encoder_decoder", False):
        raise ModelError(f"model {model!r} is an encoder-decoder; llmfw embeds with encoders")
    if (inputs := inputs_of(hf_config)) and "text" not in inputs:
        raise ModelError(
            f"model {model!r} ({hf_config.model_type}) reads {', '.join(inputs)} and no text; llmfw embeds text"
        )
    return AutoModel


def _check_outputs(module: PreTrainedModel) -> int:
    """Run a model on text alone; return the size of its hidden states.

    Raises:
        ModelError: the model does not run on text alone, does not give a hidden state for each token (for
            example a dual encoder or an encoder-decoder), or gives hidden states that are not finite.
    """
    ids = torch.tensor([TRIAL], device=module.device)
    inputs = ", ".join(inputs_of(module.config)) or "text"
    with refusing(module, f"running it on text alone (it reads {inputs})"), torch.inference_mode():
        hidden = getattr(
            module(input_ids=ids, attention_mask=torch.ones_like(ids), return_dict=True),
            "last_hidden_state",
            None,
        )
    if not isinstance(hidden, torch.Tensor) or hidden.dim() != 3 or hidden.shape[:2] != ids.shape:
        raise refused(module, "it does not give a hidden state for each token of a text")
    if not bool(hidden.isfinite().all()):
        raise refused(module, not_finite(module, "its hidden states"))
    return int(hidden.shape[2])


def _check_guess(model: str, module: PreTrainedModel) -> None:
    """Check a model whose files specify no pooling: refuse a decoder, else warn that the mean is used."""
    if any(getattr(child, "is_causal", False) is True for child in module.modules()):
        raise ModelError(
            f"model {model!r} is a decoder, and has no modules.json of sentence-transformers that says how its outputs "
            "become a vector: take a model that has it"
        )
    logger.warning(
        "The model has no modules.json of sentence-transformers: a vector is the mean of its tokens' outputs, "
        "not normalized."
    )


def max_length(config: EngineConfig, module: PreTrainedModel, meant: int | None) -> int:
    """Return the maximum number of tokens of a sequence.

    Args:
        meant: maximum that the model's other files specify; None: none.

    Raises:
        ConfigError: the context length that the user asks for does not fit the model.
    """
    limit = choose_context_length(None, module.config.get_text_config())
    for name, child in module.named_modules():
        # RoBERTa's positions start after the padding index, so the first rows of the table are never used.
        if name.endswith("position_embeddings") and isinstance(child, nn.Embedding):
            unreached = 0 if child.padding_idx is None else child.padding_idx + 1
            limit = min(limit, child.num_embeddings - unreached)
    asked = config.context_length
    if asked is not None and not 1 <= asked <= limit:
        raise ConfigError(f"--context-length is {asked}; this model can be served with 1 to {limit} tokens")
    return asked or min(limit, meant or limit)
