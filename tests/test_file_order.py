import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from reference import continuous_finishes, static_finishes

from sweep.model import file_order
from sweep.model.file_order import FileOrder
from sweep.model.lockstep import given_steps

SLOTS = [1, 2, 3, 7, 40, 10**9]


@settings(deadline=None, derandomize=True)
@given(st.lists(st.lists(st.integers(0, 12), max_size=25), min_size=1, max_size=6))
def test_steps_are_those_of_the_twins_however_the_requests_are_cut(parts):
    served = FileOrder(SLOTS)
    for part in parts:
        served.add(np.array(part, np.int32))
    lengths = [number for part in parts for number in part]
    assert served.steps() == [
        (static_finishes(lengths, slots)[0], continuous_finishes(lengths, slots)[0]) for slots in SLOTS
    ]


def test_steps_of_a_long_file_are_those_of_the_kernels_for_many_workloads():
    lengths = np.random.default_rng(2).geometric(1 / 200, 30_000)
    served, slots = FileOrder([4, 61, 5_000]), [4, 61, 5_000]
    for part in np.array_split(lengths, 7):
        served.add(part)
    known = given_steps(lengths[None, :], slots)
    assert served.steps() == list(zip(known.static[:, 0].tolist(), known.continuous[:, 0].tolist(), strict=True))


def test_times_beyond_32_bits_are_kept():
    served = FileOrder([2])
    for _ in range(3):
        served.add(np.full(4, 2**31 - 1))
    assert served.steps() == [(6 * (2**31 - 1), 6 * (2**31 - 1))]


def test_the_kernel_is_compiled_once():
    lengths = np.arange(9)
    lengths.flags.writeable = False
    for given_lengths in (lengths, lengths[::2], lengths.astype(np.int32)):
        FileOrder(np.array([2, 3])).add(given_lengths)
    assert len(file_order.serve.signatures) == 1
