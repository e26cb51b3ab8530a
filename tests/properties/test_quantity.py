"""How many tokens a query sees: numbers and arrays alike."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from cost.quantity import at_most, mean_prompt_span, span

WINDOWS = st.one_of(st.none(), st.integers(1, 5000))


@settings(deadline=None, max_examples=20)
@given(contexts=st.lists(st.integers(0, 10**6), min_size=1, max_size=6), window=WINDOWS)
def test_arrays_are_the_numbers_one_by_one(contexts, window):
    array = np.array(contexts, dtype=np.float64)
    for of in (span, mean_prompt_span):
        assert np.asarray(of(array, window)).tolist() == [of(float(context), window) for context in contexts]
    assert at_most(array, 7.0).tolist() == [min(context, 7.0) for context in contexts]
