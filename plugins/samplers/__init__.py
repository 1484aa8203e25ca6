"""The bundled logits processors `dry` and `xtc`, and their request fields."""

from __future__ import annotations

from llmfw.core import Register, hookimpl


@hookimpl
def register_logits_processors(register: Register) -> None:
    register(
        "dry",
        "llmfw.plugins.samplers.dry:DRY",
        summary="makes tokens less likely that would repeat what came before; for requests with dry_multiplier",
        needs_fields=(
            "dry_multiplier",
            "dry_base",
            "dry_allowed_length",
            "dry_penalty_last_n",
            "dry_sequence_breakers",
        ),
    )
    register(
        "xtc",
        "llmfw.plugins.samplers.xtc:XTC",
        summary="leaves out all of the likely tokens but the last, at random; for requests with xtc_probability",
        needs_fields=("xtc_probability", "xtc_threshold"),
    )


@hookimpl
def register_request_fields(register: Register) -> None:
    register(
        "xtc_probability",
        "llmfw.plugins.samplers.fields:XTCProbability",
        summary="probability with which xtc leaves out tokens at a position",
    )
    register(
        "xtc_threshold",
        "llmfw.plugins.samplers.fields:XTCThreshold",
        summary="least probability of the tokens that xtc may leave out",
    )
    register(
        "dry_multiplier",
        "llmfw.plugins.samplers.fields:DRYMultiplier",
        summary="penalty of dry for a repetition of dry_allowed_length tokens",
    )
    register(
        "dry_base",
        "llmfw.plugins.samplers.fields:DRYBase",
        summary="factor by which the penalty of dry grows with each further token",
    )
    register(
        "dry_allowed_length",
        "llmfw.plugins.samplers.fields:DRYAllowedLength",
        summary="number of repeated tokens from which dry applies a penalty to the next one",
    )
    register(
        "dry_penalty_last_n",
        "llmfw.plugins.samplers.fields:DRYPenaltyLastN",
        summary="number of last tokens in which dry looks for repetitions",
    )
    register(
        "dry_sequence_breakers",
        "llmfw.plugins.samplers.fields:DRYSequenceBreakers",
        summary="texts at which a repetition that dry penalizes starts again",
    )
