"""What a file's requests come to in one pass, beside the same from arrays, published figures and plain loops."""

import gzip
import io
import json
import sys
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import sweep
from sweep.errors import InputError, TraceError
from sweep.model import trace_files, trace_order, trace_summary
from sweep.model.trace_summary import figures, summarise
from sweep.model.traces import read_trace

SHARED = Path(__file__).parents[2] / "shared" / "data" / "traces"
EXPECTED = json.loads((SHARED / "expected.json").read_text()) if SHARED.exists() else {"files": {}}
needs_shared = pytest.mark.skipif(not SHARED.exists(), reason="the shared traces are not here")

PLAIN = "p,o,t\n"
NAMED = {"prompt_column": "p", "output_column": "o"}
TIMED = {**NAMED, "time_column": "t", "time_unit": "s"}
SLOTS = (1, 2, 3, 5, 64)


@pytest.fixture
def figures_of(tmp_path):
    """The figures of a file from its text."""

    def read(content, slots=(16, 64), **options):
        path = tmp_path / "trace"
        path.write_text(content)
        return figures(summarise(path, slots, **options))

    return read


def text_of(rows):
    return PLAIN + "".join(f"{prompt},{output},{second}\n" for prompt, output, second in rows)


# ---- published traces


@needs_shared
@pytest.mark.parametrize("file", EXPECTED["files"])
def test_the_figures_of_a_published_trace_are_those_made_without_this_code(file):
    expected = EXPECTED["files"][file]
    found, lengths = figures(summarise(SHARED / file)), expected.get("without_zero_outputs", expected)
    for part in ("prompt", "output"):
        keys = {"mean": "mean", "cv": "cv", "p50": "median", "p95": "p95", "p99": "p99", "max": "max", "sum": "total"}
        assert found[part] == pytest.approx({ours: lengths[part][theirs] for ours, theirs in keys.items()}, rel=1e-12)
    if not expected["zero_output_rows"]:
        assert found["correlation"] == pytest.approx(expected["pearson"], rel=1e-9)
    arrivals = expected["arrivals"]
    if arrivals is None:
        assert found["arrivals"] is None
    else:
        assert found["arrivals"]["rate_per_s"] == pytest.approx(arrivals["rate_per_s"], rel=1e-12)
        assert found["arrivals"]["cv"] == pytest.approx(arrivals["interarrival_cv"], rel=1e-12)
        assert found["arrivals"]["longest_gap_s"] == pytest.approx(arrivals["interarrival_max_s"], rel=1e-9)
        assert found["arrivals"]["same_time"] == arrivals["repeated_timestamps"]


@needs_shared
@pytest.mark.parametrize("file", EXPECTED["files"])
@pytest.mark.parametrize(("first", "block"), [(2000, "golden_first_2000"), (None, "golden_all_rows")])
def test_both_schedulers_take_the_steps_that_a_loop_over_steps_takes(file, first, block):
    expected = EXPECTED["files"][file][block]
    found = figures(summarise(SHARED / file, first=first))
    assert (found["requests"], found["dropped"]) == (expected["requests"], expected["dropped_zero_output"])
    assert found["output"]["sum"] == expected["output_tokens"]
    keys = ("slots", "static_steps", "continuous_steps")
    assert [[servers[key] for key in keys] for servers in found["in_file_order"]] == [
        [servers[key] for key in keys] for servers in expected["slots"]
    ]
    multiples = [servers["multiple"] for servers in expected["slots"]]
    assert [servers["multiple"] for servers in found["in_file_order"]] == pytest.approx(multiples, rel=1e-14)


# ---- any file


def figures_of_arrays(trace, all_seconds):
    """The same from arrays that are all in memory, by loops and numpy's own functions."""
    prompt, output, seconds = trace.prompt_tokens.astype(float), trace.output_tokens.astype(float), sorted(all_seconds)
    gaps = np.diff(seconds)
    found = {}
    for name, tokens in (("prompt", prompt), ("output", output)):
        p50, p95, p99 = np.percentile(tokens, (50, 95, 99))
        mean = tokens.mean()
        found[name] = {"mean": mean, "cv": tokens.std() / mean if mean else None, "p50": p50, "p95": p95, "p99": p99}
        found[name] |= {"max": tokens.max(), "sum": tokens.sum()}
    varied = len(set(prompt)) > 1 and len(set(output)) > 1
    found["correlation"] = pytest.approx(np.corrcoef(prompt, output)[0, 1], abs=1e-9) if varied else None
    span = seconds[-1] - seconds[0]
    found["arrivals"] = {
        "rate_per_s": len(gaps) / span if span else None,
        "cv": pytest.approx(gaps.std() / gaps.mean(), rel=1e-9, abs=1e-9) if span else None,
        "span_s": span,
        "longest_gap_s": max(gaps) if len(gaps) else None,
        "same_time": sum(gap == 0 for gap in gaps),
        "busiest_minute": max(sum(start <= second < start + 60 for second in seconds) for start in seconds),
    }
    steps = [
        (sweep.static_steps(trace.output_tokens, n), sweep.continuous_steps(trace.output_tokens, n)) for n in SLOTS
    ]
    found["in_file_order"] = [
        {"slots": n, "static_steps": a, "continuous_steps": b, "multiple": a / b if b else None}
        for n, (a, b) in zip(SLOTS, steps, strict=True)
    ]
    return found


def agree(found, expected):
    for name in ("correlation", "in_file_order"):
        assert found[name] == expected[name]
    for name in ("prompt", "output", "arrivals"):
        for key, value in expected[name].items():
            assert found[name][key] == (pytest.approx(value, rel=1e-12) if isinstance(value, float) else value), key


rows = st.tuples(st.integers(0, 2**31 - 1), st.one_of(st.just(0), st.integers(0, 60)), st.integers(0, 200))


@given(
    st.lists(rows, min_size=1, max_size=120),
    st.sampled_from([0, 1, 30, 500]),
    st.booleans(),
    st.sampled_from([2, 7, 99]),
)
@settings(deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_one_pass_in_blocks_finds_what_arrays_say_whatever_the_order_of_the_times(tmp_path, rows, late, keep, tile):
    # from times that rise, over those that are late by so many seconds, to none in order
    rows = [
        (*row[:2], max(at + row[2] % (late + 1) - late, 0) if late < 500 else row[2]) for at, row in enumerate(rows)
    ]
    if not (keep or any(output for _, output, _ in rows)):
        return
    path = tmp_path / "trace"
    path.write_text(text_of(rows))
    trace = read_trace(path, **TIMED, keep_zero_outputs=keep)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(trace_files, "BLOCK_BYTES", 64)
        patch.setattr(trace_order, "TILE", tile)
        found = figures(summarise(path, SLOTS, **TIMED, keep_zero_outputs=keep))
        patch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(path.read_bytes())))
        assert figures(summarise("-", SLOTS, **TIMED, keep_zero_outputs=keep)) == found
    agree(found, figures_of_arrays(trace, [second for *_, second in rows]))
    assert found["oddities"] == list(trace.notes)
    assert (found["rows"], found["dropped"], found["format"]) == (trace.rows, trace.dropped, trace.format)


def test_figures_can_be_written_as_json_and_what_is_undefined_is_null(figures_of):
    found = figures_of(PLAIN + "0,0,5\n", (4,), **TIMED, keep_zero_outputs=True)
    assert json.loads(json.dumps(found, allow_nan=False)) == found
    assert found["prompt"] == {"mean": 0, "cv": None, "p50": 0, "p95": 0, "p99": 0, "max": 0, "sum": 0}
    assert found["correlation"] is None
    nothing = {"rate_per_s": None, "cv": None, "span_s": 0, "longest_gap_s": None}
    assert found["arrivals"] == {**nothing, "same_time": 0, "busiest_minute": 1}
    assert found["in_file_order"] == [{"slots": 4, "static_steps": 0, "continuous_steps": 0, "multiple": None}]


def test_equal_outputs_make_the_multiple_one_and_spread_makes_it_more(figures_of):
    equal = figures_of("p,o\n" + "1,7\n" * 32, (1, 4, 8), **NAMED)
    assert [servers["multiple"] for servers in equal["in_file_order"]] == [1, 1, 1]
    assert equal["arrivals"] is None
    spread = figures_of("p,o\n" + "1,1\n1,1\n1,1\n1,97\n" * 8, (1, 4), **NAMED)
    one, four = (servers["multiple"] for servers in spread["in_file_order"])
    assert one == 1
    assert four > 2


def test_arrivals_are_those_of_all_rows_and_steps_those_of_the_requests(figures_of):
    found = figures_of(text_of([(9, 0, 0), (1, 3, 10), (2, 0, 20), (3, 4, 40)]), (1,), **TIMED)
    assert found["arrivals"]["rate_per_s"] == 3 / 40
    assert (found["requests"], found["in_file_order"][0]["static_steps"]) == (2, 7)


def test_the_busiest_minute_is_that_of_the_most_arrivals(figures_of, monkeypatch):
    content = text_of([(1, 1, at) for at in (0, 30, 59, 60, 90, 200, 500, 501, 502)])
    for block_bytes in (12, 2**20):
        monkeypatch.setattr(trace_files, "BLOCK_BYTES", block_bytes)
        assert figures_of(content, **TIMED)["arrivals"]["busiest_minute"] == 3


@pytest.mark.parametrize("slots", [0, -1, 2.5, True])
def test_a_slot_count_that_is_none_is_refused(figures_of, slots):
    with pytest.raises(InputError, match="slots: must be integers of at least 1"):
        figures_of("p,o\n1,1\n", (slots,), **NAMED)


def test_a_file_without_requests_is_refused_as_when_it_is_read(figures_of):
    with pytest.raises(TraceError, match="none of the 1 rows has output tokens"):
        figures_of(PLAIN + "5,0,1\n", **TIMED)
    with pytest.raises(TraceError, match="there are columns and no rows"):
        figures_of(PLAIN, **TIMED)


# ---- memory


def test_a_file_is_read_again_only_where_its_times_run_backward(tmp_path):
    path = tmp_path / "trace.gz"
    for second, readings in ((5, 1), (1, 2)):
        path.write_bytes(gzip.compress(text_of([(1, 1, 0), (1, 1, 3), (1, 1, second)]).encode()))
        ends = []
        summarise(path, **TIMED, progress=lambda done, size, ends=ends: ends.append(done == size))
        assert sum(ends) == readings


def test_a_file_that_changes_between_two_readings_is_refused_in_a_line(tmp_path, monkeypatch):
    path, texts = tmp_path / "trace", [text_of([(1, 1, 9), (1, 1, second)]) for second in (8, 0)]
    path.touch()

    def opened(*given):
        path.write_text(texts.pop(0))
        return trace_files.open_source(*given)

    monkeypatch.setattr(trace_summary, "open_source", opened)
    with pytest.raises(TraceError, match="has changed while it was read"):
        summarise(path, **TIMED)
    assert texts == []


def peak_bytes(path, rows, late_s):
    """The most that numpy and Python held while a file of so many rows was summed up."""
    rng = np.random.default_rng(1)
    path.write_text(
        text_of(zip(rng.integers(1, 900, rows), rng.integers(1, 90, rows), _seconds(rows, late_s), strict=True))
    )
    summarise(path, **TIMED, first=9)  # what is imported and compiled counts for neither
    tracemalloc.start()
    summarise(path, **TIMED)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak


def _seconds(rows, late_s):
    return (max(at - (at % 50 == 49) * late_s, 0) for at in range(rows))


@pytest.mark.parametrize("late_s", [0, 200])
def test_memory_does_not_grow_with_the_rows(tmp_path, monkeypatch, late_s):
    monkeypatch.setattr(trace_files, "BLOCK_BYTES", 2**16)
    few, many = (peak_bytes(tmp_path / "trace", rows, late_s) for rows in (60_000, 240_000))
    assert many - few < 180_000  # less than one byte for each more row; a column of lengths has four
