"""Images in prompts: how they cross, and by which numbers the prefix cache knows them."""

from __future__ import annotations

import hashlib
import random

import msgspec
import numpy as np
import pytest

from llmfw.core.base.media import (
    LEAST_SHARED,
    MediaArray,
    MediaSpan,
    blocks_of,
    cache_ids,
    ends_of,
    shared_length,
)
from llmfw.core.base.request import Request, SamplingParams
from llmfw.core.ipc.request_decoder import RequestDecoder

PROMPT = np.arange(40, dtype=np.int32)


def span(offset: int, length: int, seed: int = 0) -> MediaSpan:
    pixels = MediaArray.of(np.arange(6, dtype=np.float32).reshape(2, 3))
    key = hashlib.sha256(b"%d" % seed).digest()
    return MediaSpan(offset=offset, length=length, key=key, token_id=5, tensors={"pixels": pixels})


def test_request_crosses_with_its_images() -> None:
    request = Request(id="a", prompt=[1, 2], sampling=SamplingParams(), media=(span(0, 2), span(2, 1)))
    found = RequestDecoder().decode(msgspec.msgpack.encode(request))
    assert found == request
    assert isinstance(found, Request)
    assert np.array_equal(found.media[0].tensors["pixels"].numpy(), [[0, 1, 2], [3, 4, 5]])


@pytest.mark.parametrize(
    "array",
    [MediaArray("<f2", (1,), b"12"), MediaArray("<f4", (3,), b"1234"), MediaArray("O", (1,), b"12345678")],
)
def test_wrong_arrays_are_refused(array: MediaArray) -> None:
    with pytest.raises(ValueError, match=r"dtype|buffer|reshape"):
        array.numpy()


def test_images_have_numbers_of_their_own() -> None:
    """Text keeps its ids; images have numbers that no token has, the same for the same key."""
    found = cache_ids(PROMPT, [span(3, 12), span(20, 12), span(35, 3, seed=1)])
    assert np.array_equal(found[:3], PROMPT[:3])
    assert np.array_equal(found[15:20], PROMPT[15:20])
    assert (found[3:15] < 0).all()
    assert np.array_equal(found[3:15], found[20:32])
    assert (found[35:38] != found[3:6]).all()


def test_every_bit_of_a_key_counts() -> None:
    """Keys that differ in any one bit have other numbers among the first LEAST_SHARED."""
    key = bytes(32)
    first = cache_ids(PROMPT, [msgspec.structs.replace(span(0, 20), key=key)])[:LEAST_SHARED]
    for bit in range(256):
        other = (1 << bit).to_bytes(32, "little")
        found = cache_ids(PROMPT, [msgspec.structs.replace(span(0, 20), key=other)])[:LEAST_SHARED]
        assert not np.array_equal(first, found)


def test_prefixes_do_not_end_in_image_starts() -> None:
    """Against the rule, position by position: whole pages, and 0 or at least LEAST_SHARED positions of each image."""
    rng = random.Random(1)
    for _ in range(300):
        offsets = sorted(rng.sample(range(60), 3))
        spans = [
            span(offset, rng.randrange(1, end - offset + 1))
            for offset, end in zip(offsets, [*offsets[1:], 80], strict=True)
        ]
        page_size, length = rng.choice([1, 3, 16]), rng.randrange(90)
        allowed = [
            n
            for n in range(0, length + 1, page_size)
            if all(n <= each.offset or min(n, each.end) - each.offset >= LEAST_SHARED for each in spans)
        ]
        assert shared_length(spans, length, page_size) == max(allowed)


def test_blocks_are_runs_of_rows() -> None:
    """Tokens of text within an image's span divide it, as crops of a picture have text between them."""
    prompt = np.array([1, 5, 5, 2, 5, 3, 3, 5, 5, 5], dtype=np.int32)
    blocks = blocks_of(prompt, [span(1, 4), span(7, 3)])
    assert blocks.tolist() == [[1, 3], [4, 5], [7, 10]]
    assert ends_of(blocks, 0, 10).tolist() == [1, 3, 3, 4, 5, 6, 7, 10, 10, 10]
    assert ends_of(blocks, 2, 8).tolist() == [3, 4, 5, 6, 7, 10]
    assert blocks_of(prompt, []).tolist() == []
