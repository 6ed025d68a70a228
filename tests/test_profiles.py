import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sweep.errors import InputError
from sweep.model.lengths import integer_lengths, moments
from sweep.model.listed import Empirical, Profile
from sweep.model.profiles import NEAR, TAIL, built_in_profiles, cdf, profile, table_of
from sweep.model.theory import limit_multiple
from sweep.model.traces import read_trace

SHARED = Path(__file__).parents[2] / "shared" / "data" / "traces"
needs_shared = pytest.mark.skipif(not SHARED.exists(), reason="the shared traces are not here")
FILES = {
    "azure-2023-code": "azure-llm-2023-code.csv",
    "azure-2023-conv": "azure-llm-2023-conv.csv",
    "burstgpt-first400": "burstgpt-1-first400.csv",
    "mooncake-conversation": "mooncake-fast25-conversation-first4000.jsonl",
    "arxiv-summarization": "vidur-arxiv-summarization.csv.gz",
    "sharegpt-llama-3.1-8b": "llmservingsim-sharegpt-llama31-300.jsonl",
    "llmservingsim-mixed": "llmservingsim-mixed.jsonl",
}
STATED = 0.005  # of the mean, the cv and the limit of the multiple, in docs/traces.md
each_side = pytest.mark.parametrize("side", ["prompt", "output"])
each_profile = pytest.mark.parametrize("name", FILES)


def lengths_of(name, side):
    return getattr(read_trace(SHARED / FILES[name]), f"{side}_tokens")


def exact(tokens):
    values, counts = np.unique(tokens, return_counts=True)
    return integer_lengths(Empirical(values=tuple(values.tolist()), weights=tuple(counts.tolist())))


def check_bounds(tokens, table):
    at = np.arange(tokens.max() + 1)
    own = np.searchsorted(np.sort(tokens), at, side="right") / len(tokens)
    off = np.abs(cdf(table, at) - own)
    assert off.max() <= NEAR + 1e-12
    longer = 1 - own
    assert (off[longer > 0] <= TAIL * longer[longer > 0] + 1e-12).all()
    assert off[-1] == 0


def test_there_is_a_file_for_every_profile():
    assert [found.name for found in built_in_profiles()] == list(FILES)


@needs_shared
@each_profile
@each_side
def test_a_profile_is_the_table_of_its_file(name, side):
    found, table = getattr(profile(name), side), table_of(lengths_of(name, side))
    assert found.tokens.tolist() == table.tokens.tolist()
    assert found.at_most.tolist() == table.at_most.tolist()


@needs_shared
@each_profile
@each_side
def test_a_profile_is_nowhere_off_by_more_than_is_said(name, side):
    check_bounds(lengths_of(name, side), getattr(profile(name), side))


@needs_shared
@each_profile
@each_side
def test_the_facts_of_a_profile_are_those_of_its_file(name, side):
    own, facts = moments(exact(lengths_of(name, side))), getattr(profile(name), f"{side}_facts")
    assert (facts.mean, facts.cv) == (pytest.approx(own.mean, abs=5e-4), pytest.approx(own.cv, abs=5e-5))


@needs_shared
@each_profile
@each_side
def test_mean_cv_and_multiple_of_a_profile_are_within_half_a_per_cent_of_its_file(name, side):
    own, drawn = exact(lengths_of(name, side)), integer_lengths(Profile(name=name, of=side))
    assert moments(drawn).mean == pytest.approx(moments(own).mean, rel=STATED)
    assert moments(drawn).cv == pytest.approx(moments(own).cv, rel=STATED)
    for slots in (4, 16, 64, 256):
        assert limit_multiple(drawn, slots) == pytest.approx(limit_multiple(own, slots), rel=STATED)
    assert drawn.values[-1] == own.values[-1]


@settings(deadline=None, derandomize=True, max_examples=200)
@given(st.lists(st.integers(0, 60) | st.integers(0, 3000), min_size=1, max_size=80))
def test_a_table_of_any_lengths_keeps_its_bounds(lengths):
    check_bounds(np.array(lengths), table_of(np.array(lengths)))


def test_a_table_is_much_smaller_than_a_large_file():
    tokens = np.random.default_rng(1).lognormal(5, 1, 50_000).astype(np.int64)
    assert len(table_of(tokens).tokens) < 100


def test_a_cap_cuts_a_profile():
    capped = integer_lengths(Profile(name="azure-2023-code", max_tokens=100))
    assert capped.values[-1] == 100
    assert 0 < capped.at_cap < 0.05


def test_prompts_and_outputs_of_a_profile_differ():
    prompts, outputs = (integer_lengths(Profile(name="azure-2023-code", of=side)) for side in ("prompt", "output"))
    assert moments(prompts).mean > 50 * moments(outputs).mean


def test_an_unknown_profile_is_refused_with_the_nearest_name():
    with pytest.raises(InputError, match='no profile "azure-2023-cod"; did you mean "azure-2023-code"'):
        profile("azure-2023-cod")
    with pytest.raises(InputError, match="there are azure-2023-code, "):
        profile("x")


def test_every_profile_names_its_source_and_licence():
    assert all(found.source and found.licence for found in built_in_profiles())
    path = Path(__file__).parents[1] / "sweep" / "model" / "data" / "profiles.json"
    assert path.stat().st_size < 32_000
    assert "units" in json.loads(path.read_text())
