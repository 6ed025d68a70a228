"""A chunk's summary from the kernels of `model.tally`, bit for bit that of its literal twin in numpy."""

import io

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from reference_summing import summary_row

from sweep.metrics import ALWAYS
from sweep.model import tally
from sweep.model.tally import counted, measured
from sweep.rows.summing import summary_parquet
from sweep.sums import summary_schema

CELLS = [3, 8]
MEASURE = ("multiple_s", "longest_output_tokens")
COUNTED = ("output_tokens", "static_steps", "continuous_steps", "longest_output_tokens")
# of whole numbers: some of which squares, then sums, go beyond 64 bits
LARGEST = [0, 1, 40, 10_000, 2**31, 3_037_000_499, 2**40, 2**57]


def both(columns):
    """The rows of a summary by the package and by the twin, as frames of one schema."""
    n = len(columns["multiple"]) // len(CELLS)
    data = summary_parquet(columns.__getitem__, CELLS, range(7, 7 + n), MEASURE, {})
    found = pl.read_parquet(io.BytesIO(data))
    parts = [{name: values.reshape(len(CELLS), n)[place] for name, values in columns.items()} for place in range(2)]
    rows = [summary_row(cell, range(7, 7 + n), part, MEASURE) for cell, part in zip(CELLS, parts, strict=True)]
    return found, pl.DataFrame(rows, schema=summary_schema(MEASURE))


def same_bits(one, other):
    """Whether two frames agree, to the sign of a zero."""
    hexed = [frame.with_columns(pl.col(pl.Float64).reinterpret(signed=True)) for frame in (one, other)]
    return hexed[0].equals(hexed[1])


def drawn(generator, n, largest, multiples):
    n *= len(CELLS)
    columns = {name: generator.integers(0, largest, n, endpoint=True) for name in COUNTED}
    for name in (*ALWAYS, *MEASURE):
        if name not in COUNTED:
            columns[name] = multiples(generator, n)
    return columns


def ratios(generator, n):
    return generator.integers(0, 9_000, n) / generator.integers(1, 3_000, n)


def on_lines(generator, n):
    return generator.integers(80, 400, n) / 100


def with_undefined(generator, n):
    return np.where(generator.random(n) < 0.3, np.nan, ratios(generator, n))


def undefined(_, n):
    return np.full(n, np.nan)


def with_zeros(generator, n):
    return np.where(generator.random(n) < 0.5, 0.0, ratios(generator, n))


def far_apart(generator, n):
    return 10.0 ** generator.uniform(-12, 12, n)


def beyond_all_places(generator, n):
    return 10.0 ** generator.uniform(-300, 16, n)


KINDS = [ratios, on_lines, with_undefined, undefined, with_zeros, far_apart, beyond_all_places]


@settings(deadline=None, derandomize=True, max_examples=300)
@given(st.integers(0, 2**32), st.integers(1, 700), st.sampled_from(LARGEST), st.sampled_from(KINDS))
def test_a_summary_is_bit_for_bit_that_of_the_twin(seed, n, largest, multiples):
    assert same_bits(*both(drawn(np.random.default_rng(seed), n, largest, multiples)))


@pytest.mark.parametrize("n", [100_000, 2**18 - 1, 2**18])
def test_so_is_one_of_a_whole_chunk(n):
    columns = drawn(np.random.default_rng(n), n, 10_000, ratios)
    assert same_bits(*both(columns))


@settings(deadline=None, derandomize=True)
@given(st.lists(st.floats(allow_infinity=False, min_value=-1e100, max_value=1e100), min_size=1, max_size=300))
def test_a_mean_and_its_deviations_are_added_in_the_order_of_numpy(values):
    numbers = np.array(values)
    mean = numbers.mean()
    assert measured(numbers, *np.empty((2, 3), np.int64))[1:] == (mean, ((numbers - mean) ** 2).sum())


def test_of_equal_extremes_the_first_come_first():
    values, (lows, highs) = np.array([np.nan, 2.0, 1.0, 3.0, 1.0, 3.0, 0.5 + 0.5]), np.empty((2, 4), np.int64)
    assert measured(values, lows, highs)[0] == 6
    assert (lows.tolist(), highs.tolist()) == ([2, 4, 6, 1], [3, 5, 1, 2])
    counted(np.array([7, 7, 2]), lows, highs)
    assert (lows.tolist(), highs.tolist()) == ([2, 0, 1, -1], [0, 1, 2, -1])
    assert measured(np.array([np.inf, np.nan, -np.inf]), lows, highs)[0] == 2
    assert (lows.tolist(), highs.tolist()) == ([2, 0, -1, -1], [0, 2, -1, -1])


def test_columns_that_are_read_only_or_strided_are_summed_by_the_same_compiled_kernels():
    columns = drawn(np.random.default_rng(1), 300, 50, ratios)
    expected, _ = both(columns)
    strided = {name: np.repeat(values, 2)[::2] for name, values in columns.items()}
    for values in columns.values():
        values.flags.writeable = False
    assert same_bits(both(columns)[0], expected)
    assert same_bits(both(strided)[0], expected)
    for name in ("counted", "product", "measured", "codeviations", "histogram"):
        assert len(getattr(tally, name).signatures) == 1
