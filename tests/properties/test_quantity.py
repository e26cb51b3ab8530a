"""How many tokens a query sees: numbers and arrays alike."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cost.quantity import at_most, mean_prompt_span, span

WINDOWS = st.one_of(st.none(), st.integers(1, 5000))


def test_by_hand():
    assert (span(100, None), span(100, 30), span(20, 30)) == (100, 30, 20)
    assert mean_prompt_span(100, None) == 50
    assert mean_prompt_span(20, 30) == 10
    # the first 30 see 15 on average, the other 70 see 30
    assert mean_prompt_span(100, 30) == pytest.approx((30 * 15 + 70 * 30) / 100)
    assert mean_prompt_span(0, 30) == mean_prompt_span(0, None) == 0


@settings(deadline=None, max_examples=20)
@given(contexts=st.lists(st.integers(0, 10**6), min_size=1, max_size=6), window=WINDOWS)
def test_arrays_are_the_numbers_one_by_one(contexts, window):
    array = np.array(contexts, dtype=np.float64)
    for of in (span, mean_prompt_span):
        assert np.asarray(of(array, window)).tolist() == [of(float(context), window) for context in contexts]
    assert at_most(array, 7.0).tolist() == [min(context, 7.0) for context in contexts]


@settings(deadline=None, max_examples=20)
@given(context=st.integers(0, 10**6), window=WINDOWS)
def test_a_prompt_sees_between_half_and_all_of_the_window(context, window):
    assert span(context, window) / 2 <= mean_prompt_span(context, window) <= span(context, window)
