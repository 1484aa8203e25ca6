"""Classifies prompts with an encoder that has a classification head, as transformers' own class computes it."""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from transformers.modeling_utils import PreTrainedModel
from transformers.models.auto.modeling_auto import AutoModelForSequenceClassification

from llmfw.core.base.config import EngineConfig
from llmfw.core.base.errors import ModelError
from llmfw.core.model.failure.refusal import not_finite, refused, refusing
from llmfw.core.model.loading import Loading, load_module, log_loaded, quiet_transformers, weight_bytes
from llmfw.core.model.quantization.chosen_scheme import ChosenScheme
from llmfw.core.model.tokenizer.token_types import gives_types
from llmfw.core.plugin.registry import Registry

from .batch import padded
from .batch_check import TRIAL, check_batches, check_long_texts
from .encoder import max_length

ACTIVATIONS = {"Sigmoid": "sigmoid", "Identity": "identity", "Softmax": "softmax"}


class Classifier:
    """Computes the logits of prompts in padded batches.

    Args:
        module: transformers' model with its head, in evaluation mode, on its device.
        longest: length of the longest sequence in tokens.
        has_types: whether the model reads the types of tokens, which tell a pair's texts apart, and its tokenizer
            gives them.

    Attributes:
        labels: name of each logit.
        activation: "sigmoid", "softmax" or "identity": what turns logits into scores.
    """

    def __init__(self, module: PreTrainedModel, longest: int, activation: str, *, has_types: bool) -> None:
        self.module = module
        self.max_length = longest
        self.activation = activation
        self._has_types = has_types
        names: dict[int, str] = module.config.id2label
        self.labels = tuple(str(names[index]) for index in range(module.config.num_labels))

    @classmethod
    def load(
        cls,
        config: EngineConfig,
        device: torch.device,
        registry: Registry,
        scheme: ChosenScheme | None = None,
    ) -> Classifier:
        """Load a model with its head, and quantize it if a scheme is given.

        Raises:
            ModelError: the model cannot be found, or its scores would differ from transformers' scores; the
                message gives the reason.
            ConfigError: the dtype, context length, load format, weight loader or scheme does not fit the model.
            ComponentError: the weight loader or the scheme is faulty.
        """
        started = time.perf_counter()
        quiet_transformers()
        loading = Loading.of(config, device, registry, scheme, partial(_class_for, config.model))
        module, differences = load_module(loading)
        differences.refuse_any(config.model)
        _refuse_decoder(config.model, module)
        quantized = loading.quantize(module)
        types = getattr(module.config, "type_vocab_size", None) or 0
        classifier = cls(
            module,
            max_length(config, module, None),
            activation_of(config.model, module.config),
            has_types=types > 1 and gives_types(config.model),
        )
        with loading.blaming_scheme():
            classifier.check()
        log_loaded(loading, module, weight_bytes(module, quantized), started)
        return classifier

    @torch.inference_mode()
    def encode(
        self,
        prompts: Sequence[Sequence[int]],
        dimensions: Sequence[int | None],
        types: Sequence[Sequence[int]],
    ) -> list[torch.Tensor]:
        """Return the logits of each prompt in float32 on the CPU, in one forward pass.

        Args:
            prompts: token ids of each prompt, at least one.
            dimensions: not used: logits are never cut.
            types: type of each token of each prompt: 0, or 1 in the second text of a pair; empty: all 0.
        """
        ids, mask = padded(prompts)
        device = self.module.device
        inputs: dict[str, Any] = {"input_ids": ids.to(device), "attention_mask": mask.to(device)}
        if self._has_types:
            token_types = torch.zeros_like(ids)
            for row, kinds in enumerate(types):
                token_types[row, : len(kinds)] = torch.tensor(kinds, dtype=torch.long, device="cpu")
            inputs["token_type_ids"] = token_types.to(device)
        logits: torch.Tensor = self.module(**inputs, return_dict=True).logits
        return list(logits.float().cpu())

    def check(self) -> None:
        """Run a trial.

        Raises:
            ModelError: the model has no logit for each label, its logits are not finite, or a prompt's logits
                depend on the other prompts of its batch.
        """
        with refusing(self.module, "classifying a few tokens"):
            logits = self._encode(TRIAL[:1])[0]
        if logits.shape != (len(self.labels),):
            raise refused(self.module, "it does not give a logit for each label")
        if not bool(logits.isfinite().all()):
            raise refused(self.module, not_finite(self.module, "its logits"))
        check_batches(self.module, self._encode)
        check_long_texts(self.module, self.max_length)

    def _encode(self, texts: Sequence[Sequence[int]]) -> list[torch.Tensor]:
        return self.encode(texts, [None] * len(texts), [()] * len(texts))


def activation_of(model: str, config: Any) -> str:
    """Return the name of the function that turns logits into scores, from the model's config.

    sentence-transformers' own setting counts first. Otherwise, a single label and independent labels have
    sigmoid, as in its CrossEncoder; labels that exclude each other have softmax; a regression has no
    function.

    Raises:
        ModelError: the config names another function, or a problem type that does not exist.
    """
    own = getattr(config, "sentence_transformers", None)
    named = own.get("activation_fn") if isinstance(own, dict) else None
    named = named or getattr(config, "sbert_ce_default_activation_function", None)
    if named is not None:
        found = ACTIVATIONS.get(str(named).rpartition(".")[2])
        if found is None:
            raise ModelError(
                f"model {model!r}: its config.json names the activation {named!s:.80}; llmfw has "
                f"{', '.join(ACTIVATIONS)} of torch.nn"
            )
        return found
    kinds = {
        None: "sigmoid" if config.num_labels == 1 else "softmax",
        "regression": "identity",
        "single_label_classification": "softmax",
        "multi_label_classification": "sigmoid",
    }
    if config.problem_type not in kinds:
        raise ModelError(f"model {model!r}: problem_type is {config.problem_type!r:.80} in its config.json")
    return kinds[config.problem_type]


def _class_for(model: str, hf_config: Any) -> Any:
    """Return transformers' class for a model with its head; raise ModelError if it is not an encoder with one."""
    if getattr(hf_config, "is_encoder_decoder", False):
        raise ModelError(f"model {model!r} is an encoder-decoder; llmfw classifies with encoders")
    if type(hf_config) not in AutoModelForSequenceClassification._model_mapping:
        raise ModelError(
            f"model {model!r} ({hf_config.model_type}) has no class for sequence classification in transformers; "
            "use --task embed"
        )
    return AutoModelForSequenceClassification


def _refuse_decoder(model: str, module: PreTrainedModel) -> None:
    if any(getattr(child, "is_causal", False) is True for child in module.modules()):
        raise ModelError(
            f"model {model!r} ({type(module).__name__}) is a decoder with a classification head; llmfw classifies "
            "with encoders, such as BERT's and RoBERTa's"
        )
