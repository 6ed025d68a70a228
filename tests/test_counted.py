import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sweep.model import counted as module
from sweep.model.counted import Counter, counted, cv, percentiles, product_sum

numbers = st.lists(st.one_of(st.integers(0, 30), st.integers(0, 2**32)), min_size=1, max_size=60)


@settings(deadline=None, derandomize=True)
@given(st.lists(numbers, min_size=1, max_size=5), st.sampled_from([1, 16, 2**22]))
def test_numbers_are_counted_the_same_in_parts_and_at_once(parts, dense):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "DENSE", dense)
        counter = Counter()
        for part in parts:
            counter.add(np.array(part))
        found = counter.counted()
    whole = [number for part in parts for number in part]
    assert dict(zip(found.values.tolist(), found.counts.tolist(), strict=True)) == {n: whole.count(n) for n in whole}
    assert (np.diff(found.values) > 0).all()
    assert (found.n, found.total) == (len(whole), sum(whole))


@settings(deadline=None, derandomize=True)
@given(numbers, st.lists(st.floats(0, 100), min_size=1, max_size=9))
def test_percentiles_are_those_of_numpy_to_the_last_digit(whole, shares):
    assert percentiles(counted(np.array(whole)), shares) == np.percentile(np.array(whole), shares).tolist()


@settings(deadline=None, derandomize=True)
@given(st.lists(st.tuples(st.integers(0, 2**63 - 1), st.integers(0, 2**63 - 1)), max_size=40))
def test_sums_of_products_are_exact_beyond_64_bits(pairs):
    a, b = np.array(pairs, np.int64).reshape(-1, 2).T
    assert product_sum(a, b) == sum(x * y for x, y in pairs)


def test_the_deviation_of_equal_numbers_is_nothing_and_of_no_tokens_undefined():
    assert cv(3, 3 * 10**17, 3 * 10**34) == 0
    assert cv(2, 0, 0) is None
    assert cv(2, 4, 10) == 0.5  # of 1 and 3
