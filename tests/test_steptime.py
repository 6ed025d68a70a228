"""Step times: models, measured tables and lines through them, and what both schedulers take in seconds."""

import gzip
import json
import math
import random
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from sweep.commands.step_text import as_json, text
from sweep.errors import InputError, ModelError, TraceError
from sweep.model import stepseconds
from sweep.model.gpus import Gpu, read_gpu
from sweep.model.layers import LayerGroup
from sweep.model.lockstep import continuous_steps, static_steps
from sweep.model.models import Model, read_model
from sweep.model.roofline import Roofline, roofline
from sweep.model.stepfit import affine, fit_affine, fit_answer, knee_batch, ridge_batch, shares
from sweep.model.stepseconds import continuous_seconds, static_seconds, step_seconds
from sweep.model.steptable import StepTable, read_step_table, step_table
from sweep.model.steptime import Affine, Constant, computes_prompts, largest_batch, packed

MEASURED = Path(__file__).parents[2] / "shared" / "data" / "step_times"
EXPECTED = json.loads((MEASURED / "expected.json").read_text())["tables"] if MEASURED.exists() else {}
CASES = json.loads((MEASURED / "reference_workload.json").read_text())["cases"] if MEASURED.exists() else []
needs_tables = pytest.mark.skipif(not EXPECTED, reason="the measured step times are not here")
quick = settings(deadline=None, derandomize=True, max_examples=60)

HEADER = "batch,kv_tokens,prefill_tokens,ms\n"
PLANE = [(b, b * kv, 0, 5 + 0.5 * b + 0.001 * b * kv) for b in (1, 4, 16) for kv in (100, 1000)]
PROMPTS = [(0, 0, p, 3 + 0.1 * p) for p in (64, 512, 1024)]


def table_of(rows, name="t.csv") -> StepTable:
    return step_table(name, HEADER + "".join(",".join(map(str, row)) + "\n" for row in rows))


def ms(step_time, batch, kv_tokens=0, prefill_tokens=0) -> float:
    return 1000 * float(step_seconds(step_time, batch, kv_tokens, prefill_tokens))


# Models


def test_a_constant_step_takes_its_time_whatever_runs() -> None:
    assert (step_seconds(Constant(0.02), [1, 500], [0, 10**9], [0, 8192]) == 0.02).all()


@quick
@given(st.integers(1, 10**4), st.integers(0, 10**8), st.integers(0, 10**5))
def test_an_affine_step_is_the_sum_of_its_costs(batch: int, kv_tokens: int, prefill_tokens: int) -> None:
    right = 0.01 + 2e-5 * batch + 3e-7 * kv_tokens + 7e-5 * prefill_tokens
    assert step_seconds(Affine(0.01, 2e-5, 3e-7, 7e-5), batch, kv_tokens, prefill_tokens) == pytest.approx(right)


def test_counts_broadcast_against_each_other() -> None:
    seconds = step_seconds(Affine(1.0, 1.0, 0.5), [[1], [2]], [0, 2, 4])
    assert seconds.tolist() == [[2, 3, 4], [3, 4, 5]]


BY_HAND = Model("small", (LayerGroup(2, "full", 4, 8, 8),), parameters=1000)
GPU = Gpu("bench", None, None, bandwidth_gb_per_s=2.0, dense_bf16_tflops=0.01)


def test_a_lone_request_takes_weights_and_cache_over_bandwidth_for_each_token() -> None:
    weights, kv_token = 2 * 1000, 2 * 4 * (8 + 8) * 2
    for kv_tokens in (1, 17, 4000):
        by_hand = (weights + kv_tokens * kv_token) / 2e9
        assert step_seconds(roofline(BY_HAND, GPU), 1, kv_tokens) == pytest.approx(by_hand, rel=1e-14, abs=0)
    model, gpu = read_model("Llama-2-7b-hf"), read_gpu("A100-SXM-80GB")
    by_hand = (6738415616 * 2 + 1000 * 32 * 32 * 256 * 2) / 2039e9
    assert step_seconds(roofline(model, gpu), 1, 1000) == pytest.approx(by_hand, rel=1e-14, abs=0)


def test_a_long_prompt_takes_its_arithmetic_over_the_speed() -> None:
    plain, with_attention = roofline(BY_HAND, GPU), roofline(BY_HAND, GPU, attention_heads=8)
    assert step_seconds(plain, 0, 0, 500) == pytest.approx(2 * 1000 * 500 / 1e10, rel=1e-14, abs=0)
    square = 2 * 8 * (8 + 8) * 2 * 500 * 500 / 2
    assert step_seconds(with_attention, 0, 0, 500) == pytest.approx((2 * 1000 * 500 + square) / 1e10, rel=1e-14, abs=0)


@quick
@given(st.integers(1, 500), st.integers(0, 10**6), st.integers(0, 10**4), st.sampled_from([0.0, 0.003]))
def test_twice_the_gpus_halve_a_step_up_to_overhead(batch: int, kv: int, prefill: int, overhead_s: float) -> None:
    one, two = (roofline(BY_HAND, GPU, gpus, overhead_s=overhead_s) for gpus in (1, 2))
    single, double = (step_seconds(speed, batch, kv, prefill) for speed in (one, two))
    assert double - overhead_s == pytest.approx((single - overhead_s) / 2, rel=1e-9, abs=1e-17)


def test_kv_heads_that_are_copied_to_several_gpus_are_read_by_each() -> None:
    model = BY_HAND._replace(groups=(LayerGroup(2, "full", 1, 8, 8),))
    assert roofline(model, GPU, 4).kv_bytes_per_token == 4 * roofline(model, GPU, 1).kv_bytes_per_token


def test_shares_of_the_peaks_make_bytes_and_arithmetic_slower() -> None:
    full, half = roofline(BY_HAND, GPU), roofline(BY_HAND, GPU, bandwidth_share=0.5, arithmetic_share=0.25)
    assert step_seconds(half, 1, 10) == pytest.approx(2 * step_seconds(full, 1, 10), abs=0)
    assert step_seconds(half, 0, 0, 9000) == pytest.approx(4 * step_seconds(full, 0, 0, 9000), abs=0)


def test_fp8_weights_run_at_the_speed_of_fp8_where_there_is_one() -> None:
    model = read_model("Llama-2-7b-hf")
    h100, a100 = read_gpu("H100-SXM-80GB"), read_gpu("A100-SXM-80GB")
    assert roofline(model, h100, weight_dtype="fp8").flops_per_s == 1978.9e12
    assert roofline(model, a100, weight_dtype="fp8").flops_per_s == 312e12
    assert roofline(model, read_gpu("T4")).flops_per_s == 65e12


def test_attention_with_a_shared_latent_vector_meets_it_twice() -> None:
    model = BY_HAND._replace(groups=(LayerGroup(3, "mla", 1, 512, 64),))
    assert roofline(model, GPU, attention_heads=16).flops_per_kv_token == 2 * 16 * 3 * (512 + 64 + 512)


@pytest.mark.parametrize(
    ("ask", "kind", "words"),
    [
        (lambda: roofline(BY_HAND._replace(parameters=None), GPU), ModelError, "weights are unknown"),
        (lambda: roofline(BY_HAND, read_gpu("80 GiB")), ModelError, "bandwidth is unknown"),
        (lambda: roofline(BY_HAND, GPU._replace(dense_bf16_tflops=None)), ModelError, "arithmetic is unknown"),
        (lambda: roofline(BY_HAND, GPU, weight_dtype="fp32"), ModelError, "fp32"),
        (lambda: roofline(BY_HAND, GPU, 0), InputError, "gpus"),
        (lambda: roofline(BY_HAND, GPU, 3), InputError, "evenly"),
        (lambda: roofline(BY_HAND, GPU, bandwidth_share=1.5), InputError, "bandwidth_share"),
        (lambda: roofline(BY_HAND, GPU, overhead_s=math.nan), InputError, "overhead_s"),
        (lambda: roofline(BY_HAND, GPU, attention_heads=0), InputError, "attention_heads"),
        (lambda: packed(Constant(0.0)), InputError, "above 0 seconds"),
        (lambda: packed(Constant(math.nan)), InputError, "above 0 seconds"),
        (lambda: packed(Affine(0.01, -1e-5)), InputError, "per_request_s"),
        (lambda: packed(Affine(0.0, 0.0, 0.0, 1.0)), InputError, "one request"),
        (lambda: packed(Roofline(1.0, 1.0, 1.0, 0.0, 1.0)), InputError, "bytes_per_s"),
        (lambda: packed(Roofline(1.0, 1.0, 1.0, 1.0, 1.0, math.inf)), InputError, "overhead_s"),
        (lambda: step_seconds(Constant(1.0), -1), InputError, "from 0"),
        (lambda: step_seconds(Constant(1.0), 0.5), InputError, "integers"),
        (lambda: step_seconds(Constant(1.0), [1, 2], [1, 2, 3]), InputError, "shapes"),
        (lambda: static_seconds(Constant(1.0), [1, 2], 0), InputError, "slots"),
        (lambda: static_seconds(Constant(1.0), [1, 2], 4, [1, 2, 3]), InputError, "does not fit"),
        (lambda: continuous_seconds(Constant(1.0), [[[1]]], 4), InputError, "dimensions"),
        (lambda: continuous_seconds(Constant(1.0), [2**35], 4, 2**35), InputError, "too many"),
    ],
)
def test_what_cannot_be_a_step_time_is_refused_in_words(ask, kind, words) -> None:
    with pytest.raises(kind, match=words) as raised:
        ask()
    assert all("\n" not in line for line in raised.value.lines)


# Tables, read


def test_columns_are_found_by_their_names() -> None:
    table = step_table("t.csv", "ms, prefill_tokens ,batch,kv_tokens\r\n 1.5,0,2,30\r\n\r\n2.5e0,64,0,0\r\n")
    assert (table.batch.tolist(), table.kv_tokens.tolist()) == ([2, 0], [30, 0])
    assert (table.prefill_tokens.tolist(), table.ms.tolist()) == ([0, 64], [1.5, 2.5])


def test_a_table_packed_by_gzip_or_with_a_byte_order_mark_reads_the_same(tmp_path: Path) -> None:
    text = "\ufeff" + HEADER + "1,10,0,1.5\n"
    (tmp_path / "a.csv").write_text(text, "utf-8")
    (tmp_path / "b.csv.gz").write_bytes(gzip.compress(text.encode()))
    for name in ("a.csv", "b.csv.gz"):
        assert read_step_table(tmp_path / name).ms.tolist() == [1.5]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "empty"),
        ("\n \n", "blank lines"),
        (HEADER, "no rows"),
        ("batch,kv_tokens,ms\n1,1,1\n", 'column "prefill_tokens" is missing'),
        ("batch,kv_tokens,prefill_tokens,ms,ms\n1,1,0,1,1\n", 'column "ms" stands there 2 times'),
        ("batch,kv_tokens,prefill_tokens,ms,gpu\n1,1,0,1,a\n", 'column "gpu" is not known'),
        (HEADER + "1,10,0\n", "line 2: expected 4 values, got 3"),
        (HEADER + "1,ten,0,1\n", 'line 2: kv_tokens: must be a whole number from 0 to .*, got "ten"'),
        (HEADER + "-1,10,0,1\n", 'line 2: batch: .*, got "-1"'),
        (HEADER + "1.5,10,0,1\n", 'line 2: batch: .*, got "1.5"'),
        (HEADER + "1,10,0,1\n1,10,,1\n", 'line 3: prefill_tokens: .*, got ""'),
        (HEADER + "1,10,0,-3\n", 'line 2: ms: must be a number above 0 .*, got "-3"'),
        (HEADER + "1,10,0,0\n", 'line 2: ms: .*, got "0"'),
        (HEADER + "1,10,0,nan\n", 'line 2: ms: .*, got "nan"'),
        (HEADER + "1,10,0,inf\n", 'line 2: ms: .*, got "inf"'),
        (HEADER + "1,10,0,1_0\n", 'line 2: ms: .*, got "1_0"'),
        (HEADER + f"1,{10**14},0,1\n", "line 2: kv_tokens"),
        (HEADER + "0,0,0,1\n", "line 2: batch and prefill_tokens are both 0"),
        (HEADER + "0,5,64,1\n", "line 2: batch is 0, so nobody reads"),
        (HEADER + '1,"10,0,1\n', "not CSV"),
    ],
)
def test_a_table_that_cannot_be_read_is_refused_in_words(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "t.csv"
    path.write_text(text)
    with pytest.raises(TraceError, match=words) as raised:
        read_step_table(path)
    assert all(line.startswith(str(path)) and "\n" not in line for line in raised.value.lines)


@pytest.mark.parametrize(
    ("data", "words"),
    [(b"PK\x03\x04\0rest", "not text"), (b"batch\0,ms", "not text"), (b"batch,\xff\xfe\n", "not UTF-8")],
)
def test_a_file_that_is_not_text_is_refused_in_words(tmp_path: Path, data: bytes, words: str) -> None:
    path = tmp_path / "t.csv"
    path.write_bytes(data)
    with pytest.raises(TraceError, match=words):
        read_step_table(path)


def test_a_folder_or_a_missing_file_is_refused_in_words(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "none.csv"):
        with pytest.raises(TraceError, match="cannot be opened"):
            read_step_table(path)


def test_all_faults_of_a_table_are_named_at_once_up_to_ten() -> None:
    with pytest.raises(TraceError) as raised:
        table_of([("x", 1, 0, "y")] * 3)
    assert len(raised.value.lines) == 6
    with pytest.raises(TraceError) as raised:
        table_of([("x", 1, 0, 1)] * 30)
    assert raised.value.lines[-1] == "t.csv: 20 more faults"


# Tables, between the rows


def on_line(points: dict[float, float], at: float) -> float:
    """The twin: sorted points, and the two that the place is between, or the two at the end it is past."""
    places = sorted(points)
    upper = next((i for i, place in enumerate(places[1:-1], 1) if at < place), len(places) - 1)
    (x0, x1) = places[upper - 1 : upper + 1]
    return points[x0] + (points[x1] - points[x0]) * (at - x0) / (x1 - x0)


def on_surface(rows: dict[int, dict[float, float]], batch: int, kv_tokens: int) -> float:
    if len(rows) == 1:
        return on_line(next(iter(rows.values())), kv_tokens / batch)
    return on_line({b: on_line(line, kv_tokens / batch) for b, line in rows.items()}, batch)


lengths = st.lists(st.integers(0, 5000), min_size=2, max_size=4, unique=True)
times = st.floats(5, 50)


@st.composite
def surfaces(draw, least: int):
    batches = draw(st.lists(st.integers(1, 200), min_size=least, max_size=4, unique=True))
    return {b: {kv: draw(times) for kv in draw(lengths)} for b in batches}


@quick
@given(surfaces(2), st.integers(1, 250), st.integers(0, 10**6))
def test_decoding_is_linear_in_the_cache_of_a_request_then_in_the_batch(rows, batch: int, kv_tokens: int) -> None:
    table = table_of([(b, b * kv, 0, t) for b, line in rows.items() for kv, t in line.items()])
    right = max(float(table.ms.min()), on_surface(rows, batch, kv_tokens))
    assert ms(table, batch, kv_tokens) == pytest.approx(right, rel=1e-9)


@quick
@given(surfaces(2), st.dictionaries(st.integers(1, 3000), times, min_size=2, max_size=5), st.data())
def test_a_step_of_both_is_a_prompt_of_all_tokens_and_what_was_measured_beyond(rows, prompts, data) -> None:
    levels = data.draw(st.dictionaries(st.integers(1, 2000), surfaces(1), max_size=3))
    table = table_of(
        [(0, 0, p, t) for p, t in prompts.items()]
        + [(b, b * kv, 0, t) for b, line in rows.items() for kv, t in line.items()]
        + [(b, b * kv, p, t) for p, both in levels.items() for b, line in both.items() for kv, t in line.items()]
    )
    batch, kv, prefill = data.draw(st.tuples(st.integers(1, 250), st.integers(0, 10**6), st.integers(1, 4000)))
    shortest = float(table.ms.min())
    beyond = {0: on_surface(rows, batch, kv) - shortest}
    for p, both in levels.items():
        left = {b: {x: t - on_line(prompts, p + b) for x, t in line.items()} for b, line in both.items()}
        beyond[p] = on_surface(left, batch, kv)
    added = beyond[max(beyond)] if prefill >= max(beyond) else on_line(beyond, prefill)
    right = max(shortest, on_line(prompts, prefill + batch) + added)
    assert ms(table, batch, kv, prefill) == pytest.approx(right, rel=1e-9, abs=1e-9)


def test_a_row_of_the_table_takes_its_own_time() -> None:
    both = [(4, 400, 512, 60.0), (4, 4000, 512, 66.0), (16, 1600, 512, 70.0), (16, 16000, 512, 71.0)]
    table = table_of(PLANE + PROMPTS + both)
    seconds = step_seconds(table, table.batch, table.kv_tokens, table.prefill_tokens)
    assert (1000 * seconds).tolist() == pytest.approx(table.ms.tolist())


def test_a_batch_with_one_row_takes_the_cost_of_a_token_from_the_closest_with_several() -> None:
    table = table_of([(1, 100, 0, 10), (1, 200, 0, 11), (4, 400, 0, 12), (30, 300, 0, 20), (30, 3300, 0, 26)])
    assert ms(table, 4, 400) == pytest.approx(12)
    assert ms(table, 4, 500) == pytest.approx(12 + 100 * 0.01)  # batch 1 is closer than 30
    assert ms(table_of([*PLANE, (3, 300, 0, 8.0)]), 3, 1300) == pytest.approx(9.0)


def test_repeated_rows_are_averaged() -> None:
    assert ms(table_of([*PLANE, (1, 100, 0, PLANE[0][3] + 2)]), 1, 100) == pytest.approx(PLANE[0][3] + 1)


def test_no_step_is_shorter_than_the_shortest_row() -> None:
    table = table_of([(1, 100, 0, 10), (1, 200, 0, 9), (2, 200, 0, 10), (2, 400, 0, 9)])
    assert ms(table, 1, 10**6) == pytest.approx(9)


def test_a_table_says_what_it_covers() -> None:
    table = table_of(PLANE)
    assert not computes_prompts(table)
    assert math.isnan(step_seconds(table, 0, 0, 64))
    assert math.isnan(step_seconds(table, 4, 400, 64))
    assert computes_prompts(table_of(PLANE + PROMPTS))
    assert (largest_batch(table), largest_batch(Constant(1.0))) == (16, None)


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        (PROMPTS, "measured at 0 batches"),
        ([(1, 10, 0, 5), (1, 20, 0, 6)], "measured at 1 batches"),
        ([(1, 10, 0, 5), (2, 20, 0, 6)], "two lengths of the KV cache"),
        ([*PLANE, (0, 0, 64, 9)], "one row of a prompt alone"),
        ([*PLANE, (4, 400, 64, 9)], "need rows of prompts alone"),
    ],
)
def test_a_table_with_nothing_to_interpolate_is_refused_in_words(rows, words: str) -> None:
    with pytest.raises(ModelError, match=words):
        step_seconds(table_of(rows), 1, 1)


# Lines through tables


def test_a_plane_is_fitted_without_error() -> None:
    for relative in (False, True):
        fit = fit_affine(table_of(PLANE + PROMPTS), relative=relative)
        assert fit[:3] == pytest.approx((5, 0.5, 0.001))
        assert fit.c3_ms_per_prefill_token is None
        assert (fit.r2, fit.rows) == (pytest.approx(1), 6)
        assert fit.max_relative_error < 1e-12
    assert fit_affine(table_of(PLANE + PROMPTS), "prefill")[:4] == pytest.approx((3, None, None, 0.1))


def test_a_fit_takes_the_time_of_its_formula() -> None:
    table = table_of(PLANE + PROMPTS)
    decode, prompts = fit_affine(table), fit_affine(table, "prefill")
    assert ms(affine(decode), 8, 4000) == pytest.approx(5 + 4 + 4)
    assert ms(affine(decode, prompts), 8, 4000, 100) == pytest.approx(5 + 4 + 4 + 10)
    assert knee_batch(decode, prompts) == pytest.approx(50)


@quick
@given(st.lists(st.tuples(st.integers(1, 64), st.integers(0, 5000), times), min_size=5, max_size=12))
def test_no_other_line_has_smaller_squares(rows) -> None:
    table = table_of([(b, kv, 0, t) for b, kv, t in rows])
    try:
        fit = fit_affine(table)
    except ModelError:
        assume(False)

    def squares(c0: float, c1: float, c2: float) -> float:
        return float(((c0 + c1 * table.batch + c2 * table.kv_tokens - table.ms) ** 2).sum())

    best = squares(fit.c0_ms, fit.c1_ms_per_request, fit.c2_ms_per_kv_token)
    for factor in (0.99, 1.01):
        for moved in range(3):
            other = [c * factor if i == moved else c for i, c in enumerate(fit[:3])]
            assert squares(*other) >= best - 1e-7


@pytest.mark.parametrize("rows", [PROMPTS, PLANE[:2], [(b, 100 * b, 0, 5 + b) for b in (1, 2, 3, 4)]])
def test_rows_that_settle_no_line_are_refused_and_answered_by_none(rows) -> None:
    with pytest.raises(ModelError, match="settle no line"):
        fit_affine(table_of(rows))
    answer = fit_answer(table_of(rows))
    assert answer["fit_decode"] is None
    assert "too few different rows" in text(answer)
    assert json.loads(as_json(answer)) == answer


def test_the_answer_in_words_has_the_formula_and_its_error() -> None:
    shown = text(fit_answer(table_of(PLANE + PROMPTS)))
    assert "t.csv: 6 rows of decoding, 3 of a prompt, 0 of both" in shown
    assert "ms = 5 + 0.5 batch + 0.001 kv_tokens" in shown
    assert "off by 0.0 % on average and 0.0 % at most over 6 rows, R2 1.0000" in shown
    assert "From a batch of 50 on" in shown


def test_the_command_prints_the_fits_and_refuses_what_is_no_table(tmp_path: Path) -> None:
    good, bad = tmp_path / "good.csv", tmp_path / "bad.csv"
    good.write_text(HEADER + "".join(",".join(map(str, row)) + "\n" for row in PLANE))
    bad.write_text("batch,ms\n1,2\n")
    done = sweep_command("fit-step", good, "--json")
    assert (done.returncode, json.loads(done.stdout)) == (0, fit_answer(read_step_table(good)))
    assert sweep_command("fit-step", good).stdout == text(fit_answer(read_step_table(good))) + "\n"
    for path in (bad, tmp_path):
        done = sweep_command("fit-step", path)
        assert (done.returncode, done.stdout) == (2, "")
        assert all(line.startswith(str(path)) for line in done.stderr.splitlines())


def sweep_command(*arguments) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "sweep", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


# Both schedulers in seconds


class Request:
    def __init__(self, prompt: int, output: int) -> None:
        self.prompt, self.left, self.read = prompt, output, prompt


def run_plainly(step_time, requests: list[Request], padded: bool) -> tuple[list[tuple[int, int]], float]:
    """The twin of one group or batch: steps as (batch, KV tokens) until all are done, and their seconds."""
    steps, seconds = [], 0.0
    running = [request for request in requests if request.left > 0]
    while any(request.left > 0 for request in running):
        for request in running:
            request.read += 1
            request.left -= 1
        steps.append((len(running), sum(request.read for request in running)))
        seconds += float(step_seconds(step_time, *steps[-1]))
        if not padded:
            running = [request for request in running if request.left > 0]
    return steps, seconds


def continuous_plainly(step_time, requests: list[Request], slots: int) -> tuple[list[tuple[int, int]], float]:
    queue, running, steps, seconds = [r for r in requests if r.left > 0], [], [], 0.0
    while queue or running:
        while queue and len(running) < slots:
            running.append(queue.pop(0))
        for request in running:
            request.read += 1
            request.left -= 1
        steps.append((len(running), sum(request.read for request in running)))
        seconds += float(step_seconds(step_time, *steps[-1]))
        running = [request for request in running if request.left > 0]
    return steps, seconds


workloads = st.lists(st.tuples(st.integers(0, 300), st.integers(0, 12)), max_size=14)
TABLE = table_of(PLANE + PROMPTS)
STEP_TIMES = [Constant(0.02), Affine(0.01, 1e-4, 1e-6, 1e-5), roofline(BY_HAND, GPU), TABLE]


@settings(quick, max_examples=25)
@given(workloads, st.integers(1, 6), st.sampled_from(STEP_TIMES))
@example([(5, 2), (5, 0)], 1, TABLE)  # a queue that ends with a request of no tokens comes to an end
def test_both_schedulers_take_the_seconds_of_their_steps_one_by_one(work, slots: int, step_time) -> None:
    prompts, outputs = [p for p, _ in work], [o for _, o in work]
    groups = [work[first : first + slots] for first in range(0, len(work), slots)]
    for padded in (True, False):
        runs = [run_plainly(step_time, [Request(*r) for r in group], padded) for group in groups]
        steps, seconds = [step for s, _ in runs for step in s], sum(s for _, s in runs)
        check(static_seconds(step_time, outputs, slots, prompts, padded=padded), steps, seconds)
    right = continuous_plainly(step_time, [Request(*r) for r in work], slots)
    check(continuous_seconds(step_time, outputs, slots, prompts), *right)


def check(result, steps: list[tuple[int, int]], seconds: float) -> None:
    assert result.steps == len(steps)
    assert result.request_steps == sum(batch for batch, _ in steps)
    assert result.kv_token_steps == sum(kv for _, kv in steps)
    assert result.decode_s == pytest.approx(seconds, rel=1e-12)


@settings(quick, max_examples=30)
@given(st.lists(st.integers(0, 40), min_size=1, max_size=40), st.integers(1, 20), st.floats(1e-6, 10))
def test_with_a_constant_step_seconds_are_steps_times_the_step_to_the_last_bit(outputs, slots: int, step_s) -> None:
    static = static_seconds(Constant(step_s), outputs, slots, 100)
    continuous = continuous_seconds(Constant(step_s), outputs, slots, 100)
    assert (static.steps, continuous.steps) == (static_steps(outputs, slots), continuous_steps(outputs, slots))
    assert static.decode_s == static_steps(outputs, slots) * step_s
    assert continuous.decode_s == continuous_steps(outputs, slots) * step_s


@settings(quick, max_examples=30)
@given(workloads, st.integers(1, 6), st.integers(1, 2**10), st.integers(0, 2**10), st.integers(0, 2**10))
def test_when_finished_members_leave_the_time_saved_is_the_steps_saved_times_an_empty_step(
    work, slots: int, c0: int, c1: int, c2: int
) -> None:
    step_time = Affine(c0 / 2**20, c1 / 2**20, c2 / 2**20)  # sums of such costs are exact
    prompts, outputs = [p for p, _ in work], [o for _, o in work]
    static = static_seconds(step_time, outputs, slots, prompts, padded=False)
    continuous = continuous_seconds(step_time, outputs, slots, prompts)
    tokens, read = sum(outputs), sum(o * p + o * (o + 1) // 2 for p, o in work)
    same_work = (c1 * tokens + c2 * read) / 2**20
    assert static.decode_s - continuous.decode_s == (static.steps - continuous.steps) * c0 / 2**20
    if tokens:
        multiple = (c0 / 2**20 * static.steps + same_work) / (c0 / 2**20 * continuous.steps + same_work)
        assert static.decode_s / continuous.decode_s == multiple


@settings(quick, max_examples=30)
@given(workloads, st.integers(1, 6), st.sampled_from(STEP_TIMES))
def test_padding_never_saves_time(work, slots: int, step_time) -> None:
    prompts, outputs = [p for p, _ in work], [o for _, o in work]
    padded, leaving = (static_seconds(step_time, outputs, slots, prompts, padded=pad) for pad in (True, False))
    assert padded.steps == leaving.steps
    assert padded.decode_s >= leaving.decode_s - 1e-12


def test_prompts_are_charged_one_at_a_time_to_requests_that_ask_for_a_token() -> None:
    table = table_of(PLANE + PROMPTS)
    result = continuous_seconds(table, [3, 0, 5], 2, [512, 512, 0])
    assert result.prompt_s == pytest.approx((3 + 51.2) / 1000)
    assert result.total_s() == result.decode_s + result.prompt_s
    assert math.isnan(continuous_seconds(table_of(PLANE), [3], 2, 512).prompt_s)


def test_replicates_side_by_side_take_what_each_takes_alone() -> None:
    rng = np.random.default_rng(1)
    outputs, prompts = rng.integers(0, 30, (5, 23)), rng.integers(0, 500, (5, 23))
    for run in (static_seconds, continuous_seconds):
        together = run(TABLE, outputs, 4, prompts)
        for replicate in range(5):
            alone = run(TABLE, outputs[replicate], 4, prompts[replicate])
            assert alone == tuple(column[replicate] for column in together)


def test_each_kernel_is_compiled_once() -> None:
    static_seconds(TABLE, [[1, 2], [3, 4]], 1)
    static_seconds(Constant(1.0), [1, 2, 3], 2, 5, padded=False)
    continuous_seconds(Affine(1.0), [1, 2, 3], 2, 5)
    step_seconds(TABLE, 1, 2, 3)
    for compiled in (stepseconds._static, stepseconds._continuous, stepseconds._each_step):
        assert len(compiled.signatures) == 1


# Measured tables


FITS = {
    "fit_decode": ("decode", False),
    "fit_decode_relative": ("decode", True),
    "fit_prefill": ("prefill", False),
    "fit_all": ("all", False),
}


@needs_tables
@pytest.mark.parametrize("name", EXPECTED)
def test_lines_through_measured_tables_are_those_found_elsewhere(name: str) -> None:
    table = read_step_table(MEASURED / f"{name}.csv")
    right = EXPECTED[name]
    answer = fit_answer(table)
    assert answer["rows"] == {
        "decode": right["rows"]["decode"],
        "prefill": right["rows"]["prefill"],
        "both": right["rows"]["mixed"],
    }
    for fit, (rows, relative) in FITS.items():
        assert answer[fit] == pytest.approx(right[fit], rel=1e-9)
        assert fit_affine(table, rows, relative=relative).rows == right[fit]["rows"]
    assert answer["knee_batch"] == pytest.approx(right["roofline"]["knee_batch_measured"], rel=1e-9)


@needs_tables
@pytest.mark.parametrize("name", [name for name in EXPECTED if "points" in EXPECTED[name]])
def test_times_between_measured_rows_are_those_found_elsewhere(name: str) -> None:
    table = read_step_table(MEASURED / f"{name}.csv")
    line = affine(fit_affine(table))
    for point in EXPECTED[name]["points"]:
        counts = (point["batch"], point["kv_tokens"], point["prefill_tokens"])
        assert ms(table, *counts) == pytest.approx(point["ms"], abs=6e-7)
        assert ms(line, *counts) == pytest.approx(point["fit_decode_ms"], rel=1e-9)


@needs_tables
@pytest.mark.parametrize("name", EXPECTED)
def test_measured_rows_take_their_own_time(name: str) -> None:
    table = read_step_table(MEASURED / f"{name}.csv")
    seconds = step_seconds(table, table.batch, table.kv_tokens, table.prefill_tokens)
    assert (1000 * seconds).tolist() == pytest.approx(table.ms.tolist(), rel=1e-12)


# Sizes that the tables do not say: layers, heads times their dimension, and weights of the LM head.
SIZES = {
    "llama-2-7b": (32, 4096, 32000 * 4096),
    "llama-3-8b": (32, 4096, 128256 * 4096),
    "llama-3.1-8b": (32, 4096, 128256 * 4096),
    "llama-2-70b": (80, 8192, 32000 * 8192),
    "qwen3-32b": (64, 8192, 151936 * 5120),
    "bloom-176b": (70, 14336, 250880 * 14336),
}


def measured_roofline(right) -> Roofline:
    layers, width, head = SIZES[right["model"]]
    tflops = right["dense_tflops"] or math.inf
    return Roofline(
        weight_bytes=right["weight_bytes_read"],
        kv_bytes_per_token=right["kv_bytes_per_token"],
        flops_per_token=2.0 * (right["weight_bytes_read"] / 2 - head),
        bytes_per_s=right["gpus"] * right["bandwidth_gb_per_s"] * 1e9,
        flops_per_s=right["gpus"] * tflops * 1e12,
        flops_per_output=2.0 * head,
        flops_per_kv_token=4.0 * layers * width,
    )


@needs_tables
@pytest.mark.parametrize("name", EXPECTED)
def test_shares_of_the_peaks_are_those_found_elsewhere(name: str) -> None:
    table, right = read_step_table(MEASURED / f"{name}.csv"), EXPECTED[name]
    peaks, expected = measured_roofline(right), right["roofline"]
    decoding, prompts = table.decoding(), table.prompts()
    over = shares(decoding, peaks).over_roofline
    assert {"min": over.min(), "median": np.median(over), "max": over.max()} == pytest.approx(
        expected["measured_over_roofline"], rel=1e-9
    )
    for row in expected["share_of_bandwidth"]:
        at = (decoding.batch == row["batch"]) & (decoding.kv_tokens == row["kv_tokens"])
        assert shares(decoding.where(at), peaks).bandwidth[0] == pytest.approx(row["mbu"], rel=1e-9)
    for tokens, mfu, row in zip(
        prompts.prefill_tokens, shares(prompts, peaks).arithmetic, expected["prefill"], strict=True
    ):
        assert (tokens, mfu or None) == (row["tokens"], row["mfu"] and pytest.approx(row["mfu"], rel=1e-9))
    fit = fit_affine(table, relative=True)
    assert peaks.weight_bytes / peaks.bytes_per_s / fit.c0_ms * 1000 == pytest.approx(
        expected["share_of_bandwidth_weights"], rel=1e-9
    )
    assert peaks.kv_bytes_per_token / peaks.bytes_per_s / fit.c2_ms_per_kv_token * 1000 == pytest.approx(
        expected["share_of_bandwidth_kv"], rel=1e-9
    )
    if right["dense_tflops"]:
        assert ridge_batch(peaks) == pytest.approx(expected["ridge_batch_at_peaks"], rel=1e-12)


def reference_outputs() -> list[int]:
    rng = random.Random(37)
    return [rng.randint(400, 700) if rng.random() < 0.10 else rng.randint(8, 40) for _ in range(200)]


@needs_tables
@pytest.mark.parametrize("name", EXPECTED)
@pytest.mark.parametrize("case", CASES, ids=lambda case: f"slots{case['slots']}-prompts{case['prompt_tokens']}")
def test_the_reference_workload_takes_the_seconds_found_elsewhere(case, name: str) -> None:
    table, right = read_step_table(MEASURED / f"{name}.csv"), case["seconds"][name]
    work = (reference_outputs(), case["slots"], case["prompt_tokens"])
    for kind, step_time in (("table", table), ("fit", affine(fit_affine(table)))):
        runs = {
            "static_padded": static_seconds(step_time, *work),
            "static": static_seconds(step_time, *work, padded=False),
            "continuous": continuous_seconds(step_time, *work),
        }
        for how, run in runs.items():
            assert run.steps == case["steps"][how]
            assert run.request_steps == case["sum_of_batch"][how]
            assert run.kv_token_steps == case["sum_of_kv_tokens"][how]
            if right[kind] is not None:
                assert run.decode_s == pytest.approx(right[kind][how], abs=6e-7)
            if kind == "table":
                assert run.prompt_s == pytest.approx(right["prompts"], abs=6e-7)
                assert run.total_s() == pytest.approx(run.decode_s + right["prompts"], abs=6e-7)
