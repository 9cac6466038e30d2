"""Windows over long documents."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyro_chmm.data.windows import Window, cut_windows, longest_word


def test_a_document_that_fits_is_one_window() -> None:
    assert cut_windows(np.array([0, 2, 5, 10]), 10) == [Window(0, 10, 0, 3)]
    assert cut_windows(np.array([0]), 10) == [Window(0, 0, 0, 0)]


def test_windows_of_a_long_document_by_hand() -> None:
    # 14 words of one sub-token, windows of 8: (0..8) and (6..14), handing over in the middle of 6..8
    assert cut_windows(np.arange(15), 8) == [Window(0, 8, 0, 7), Window(6, 14, 7, 14)]


def test_hand_over_is_at_the_nearest_word_boundary() -> None:
    # 16 sub-tokens, windows 0..12 and 4..16: the middle of their overlap, 8, is nearer to the boundary 9 than to 6
    assert cut_windows(np.array([0, 3, 6, 9, 12, 15, 16]), 12) == [Window(0, 12, 0, 3), Window(4, 16, 3, 6)]


@given(st.data())
@settings(max_examples=200, deadline=None)
def test_every_word_is_whole_in_one_window_with_context(data: st.DataObject) -> None:
    capacity = data.draw(st.integers(2, 60))
    lengths = data.draw(st.lists(st.integers(1, longest_word(capacity)), max_size=150))
    boundaries = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)]).astype(np.int64)
    windows = cut_windows(boundaries, capacity)
    owned = [word for window in windows for word in range(window.first_word, window.last_word)]
    assert owned == list(range(len(lengths)))
    assert all(window.end - window.start <= capacity for window in windows)
    for window in windows:
        for word in range(window.first_word, window.last_word):
            assert window.start <= boundaries[word] < boundaries[word + 1] <= window.end


@pytest.mark.parametrize("length", [511, 600, 1000, 5000])
def test_each_single_piece_word_has_the_most_context_that_any_window_gives(length: int) -> None:
    capacity = 510
    windows = cut_windows(np.arange(length + 1), capacity)

    def context(window: Window, piece: int) -> float:
        before = np.inf if window.start == 0 else piece - window.start
        after = np.inf if window.end == length else window.end - 1 - piece
        return min(before, after)

    for window in windows:
        for piece in range(window.first_word, window.last_word):
            best = max(context(other, piece) for other in windows if other.start <= piece < other.end)
            assert context(window, piece) >= best - 1
            assert best >= capacity // 8 - 1
