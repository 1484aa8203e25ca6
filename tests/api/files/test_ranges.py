"""Which bytes a range header asks for."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmfw.api.files.ranges import UnsatisfiableRangeError, read_range


@given(st.integers(0, 30), st.integers(0, 30), st.integers(1, 20))
def test_a_range_equals_a_slice(first, last, size):
    data = bytes(range(size))
    if last < first:
        assert read_range(f"bytes={first}-{last}", size) is None
    elif first >= size:
        with pytest.raises(UnsatisfiableRangeError):
            read_range(f"bytes={first}-{last}", size)
    else:
        start, end = read_range(f"bytes={first}-{last}", size)
        assert data[start:end] == data[first : last + 1]


@given(st.integers(1, 40), st.integers(1, 20))
def test_a_suffix_is_the_last_bytes(length, size):
    data = bytes(range(size))
    start, end = read_range(f"bytes=-{length}", size)
    assert data[start:end] == data[-length:]


def test_an_open_range_reaches_the_end():
    assert read_range("Bytes= 3-", 10) == (3, 10)


@pytest.mark.parametrize("header", ["bytes=-0", "bytes=10-", "bytes=10-12"])
def test_ranges_past_the_end_are_unsatisfiable(header):
    with pytest.raises(UnsatisfiableRangeError):
        read_range(header, 10)


@pytest.mark.parametrize(
    "header", [None, "", "bytes=", "bytes=-", "bytes=0-1,3-4", "lines=0-1", "bytes=５-", "0-1"]
)
def test_anything_but_one_byte_range_means_all(header):
    assert read_range(header, 10) is None


@given(st.text(), st.integers(0, 20))
def test_no_header_selects_missing_bytes(header, size):
    try:
        found = read_range(f"bytes={header}", size)
    except UnsatisfiableRangeError:
        return
    assert found is None or 0 <= found[0] < found[1] <= size
