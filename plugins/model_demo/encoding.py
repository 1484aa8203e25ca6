"""Converts samples to tokens, and groups them into batches."""

import random
from collections.abc import Iterable, Iterator
from itertools import islice

import torch
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from .corpus import Sample
from .tokenization import END_OF_TEXT, TURN_END, TURN_START

IGNORED = -100  # the label that cross_entropy leaves out


def text_of(tokenizer: PreTrainedTokenizerBase, sample: Sample) -> str:
    """Return the whole sample as the model sees it."""
    if sample.is_document:
        return sample.reply["content"] + END_OF_TEXT
    return tokenizer.apply_chat_template(
        list(sample.messages),
        tools=list(sample.tools) or None,
        tokenize=False,
        enable_thinking=sample.thinking,
    )


def prompt_of(tokenizer: PreTrainedTokenizerBase, sample: Sample) -> str:
    """Return the sample up to the point where the model continues."""
    return tokenizer.apply_chat_template(
        sample.prompt,
        tools=list(sample.tools) or None,
        tokenize=False,
        enable_thinking=sample.thinking,
        add_generation_prompt=True,
    )


class Encoder:
    """Converts samples to tokens and labels. Only the model's own output is learned: the assistant's turns, and whole
    documents.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase) -> None:
        self._tokenizer = tokenizer
        self._header = tokenizer(f"{TURN_START}assistant\n", add_special_tokens=False).input_ids
        self._turn_end = tokenizer.convert_tokens_to_ids(TURN_END)

    def __call__(self, sample: Sample) -> tuple[list[int], list[int]]:
        """Return the tokens, and for each its label: the token itself if it is learned."""
        tokens = self._tokenizer(text_of(self._tokenizer, sample), add_special_tokens=False).input_ids
        if sample.is_document:
            return tokens, list(tokens)
        turns = list(self._turns(tokens))
        labels = [IGNORED] * len(tokens)
        # Before a thinking turn, earlier turns stand as if they had not been thought about.
        for start, end in turns[-1:] if sample.thinking else turns:
            labels[start:end] = tokens[start:end]
        return tokens, labels

    def _turns(self, tokens: list[int]) -> Iterator[tuple[int, int]]:
        """Return start and end of the assistant's turns, including the end-of-turn tokens."""
        width = len(self._header)
        at = 0
        while at < len(tokens):
            if tokens[at : at + width] == self._header:
                end = tokens.index(self._turn_end, at + width) + 1
                yield at + width, end
                at = end
            else:
                at += 1


Batch = tuple[Tensor, Tensor]


def batches(
    samples: Iterable[Sample], encoder: Encoder, tokens_per_batch: int, longest: int, seed: int
) -> Iterator[Batch]:
    """Yield batches of samples of similar length, in mixed order.

    Each sample is a row of its own that starts at position 0, as in serving. Samples longer than `longest` are left
    out. `tokens_per_batch` limits rows times length.
    """
    shuffler = random.Random(seed)
    source = iter(samples)
    while chunk := list(islice(source, 1024)):
        encoded = [row for row in map(encoder, chunk) if len(row[0]) <= longest]
        encoded.sort(key=lambda row: len(row[0]))
        groups = list(_groups(encoded, tokens_per_batch))
        shuffler.shuffle(groups)
        for group in groups:
            yield _padded(group)


def _groups(
    rows: list[tuple[list[int], list[int]]], limit: int
) -> Iterator[list[tuple[list[int], list[int]]]]:
    group: list[tuple[list[int], list[int]]] = []
    for row in rows:
        if group and (len(group) + 1) * len(row[0]) > limit:
            yield group
            group = []
        group.append(row)
    if group:
        yield group


def _padded(rows: list[tuple[list[int], list[int]]]) -> Batch:
    """Pad rows on the right to one length; with causal attention, tokens never see the padding."""
    length = len(rows[-1][0])
    tokens = torch.tensor([row + [0] * (length - len(row)) for row, _ in rows])
    labels = torch.tensor([row + [IGNORED] * (length - len(row)) for _, row in rows])
    return tokens, labels
