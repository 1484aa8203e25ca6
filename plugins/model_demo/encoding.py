"""Encodes samples as tokens and labels, and groups them into batches."""

import random
from collections.abc import Iterable, Iterator
from itertools import islice

import torch
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from .corpus import Sample
from .tokenization import END_OF_TEXT, TURN_END, TURN_START

IGNORED = -100  # the label that cross_entropy ignores


def text_of(tokenizer: PreTrainedTokenizerBase, sample: Sample) -> str:
    """Return the text of a whole sample, as the model sees it."""
    if sample.is_document:
        return sample.reply["content"] + END_OF_TEXT
    return tokenizer.apply_chat_template(
        list(sample.messages),
        tools=list(sample.tools) or None,
        tokenize=False,
        enable_thinking=sample.thinking,
    )


def prompt_of(tokenizer: PreTrainedTokenizerBase, sample: Sample) -> str:
    """Return the text of a sample up to the start of the reply."""
    return tokenizer.apply_chat_template(
        sample.prompt,
        tools=list(sample.tools) or None,
        tokenize=False,
        enable_thinking=sample.thinking,
        add_generation_prompt=True,
    )


class Encoder:
    """Converts samples to tokens and labels.

    The model learns only text that it has to generate itself: whole documents, and the assistant's turns. In
    a sample with thinking, it learns only the last of these turns.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase) -> None:
        self._tokenizer = tokenizer
        self._header = tokenizer(f"{TURN_START}assistant\n", add_special_tokens=False).input_ids
        self._turn_end = tokenizer.convert_tokens_to_ids(TURN_END)

    def __call__(self, sample: Sample) -> tuple[list[int], list[int]]:
        """Return a sample's tokens, and their labels: the token itself if it is learned, else `IGNORED`."""
        tokens = self._tokenizer(text_of(self._tokenizer, sample), add_special_tokens=False).input_ids
        if sample.is_document:
            return tokens, list(tokens)
        turns = list(self._turns(tokens))
        labels = [IGNORED] * len(tokens)
        # In a thinking sample, earlier turns have no reasoning, so only the last one is learned.
        for start, end in turns[-1:] if sample.thinking else turns:
            labels[start:end] = tokens[start:end]
        return tokens, labels

    def _turns(self, tokens: list[int]) -> Iterator[tuple[int, int]]:
        """Yield the (start, end) of each assistant turn's content, including its end-of-turn token."""
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
    """Yield batches of samples of similar length, in random order.

    Each sample is one row and starts at position 0, as in serving.

    Args:
        samples: samples to encode.
        encoder: encoder of the samples.
        tokens_per_batch: maximum size of a batch: number of rows, times the length of the longest row.
        longest: maximum number of tokens in a sample; longer samples are skipped.
        seed: seed of the order.
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
    """Right-pad rows to one length. With causal attention, real tokens never see the padding."""
    length = len(rows[-1][0])
    tokens = torch.tensor([row + [0] * (length - len(row)) for row, _ in rows])
    labels = torch.tensor([row + [IGNORED] * (length - len(row)) for _, row in rows])
    return tokens, labels
