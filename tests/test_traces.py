import ast
import gzip
import io
import json
import subprocess
import sys
from datetime import datetime
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sweep.errors import InputError, TraceError
from sweep.model import trace_files, trace_rows
from sweep.model.trace_times import NUMBER, UNIT_NS, column_ns, kind_of, text_ns
from sweep.model.traces import read_trace

SHARED = Path(__file__).parents[2] / "shared" / "data" / "traces"
EXPECTED = json.loads((SHARED / "expected.json").read_text()) if SHARED.exists() else {"files": {}, "not_traces": {}}
needs_shared = pytest.mark.skipif(not SHARED.exists(), reason="the shared traces are not here")

AZURE = "TIMESTAMP,ContextTokens,GeneratedTokens\r\n"
AZURE_ROWS = (
    "2023-11-16 18:17:03.9799600,4808,10\r\n2023-11-16 18:17:04.0319600,3180,8\r\n2023-11-16 18:17:04.0781490,110,27"
)
MOONCAKE = (
    '{"timestamp": 0, "input_length": 6758, "output_length": 500, "hash_ids": [0, 1]}\n'
    '{"timestamp": 3001, "input_length": 7322, "output_length": 490, "hash_ids": [0, 14]}\n'
)
BURSTGPT_2 = (
    "Timestamp,Session ID,Elapsed time,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
    "19440110.0,,0.5,GPT-4,472,18,490,API log\n19440150.0,7,0.5,GPT-4,0,0,0,Conversation log\n"
)
VIDUR = "arrived_at,num_prefill_tokens,num_decode_tokens\n0.0,4808,10\n199.96150599999999,3180,8\n"
VIDUR_UNTIMED = "num_prefill_tokens,num_decode_tokens,num_total_tokens,pd_ratio\n3772,54,3826,69.85\n1,4056,4057,0.0\n"
SPLITWISE = (
    "request_id,request_type,application_id,arrival_timestamp,batch_size,prompt_size,token_size\n"
    "0,2,0,1,1,4096,32\n1,2,0,3,1,2048,8\n"
)
SERVING_SIM = (
    '{"input_toks": 27369, "output_toks": 1626, "arrival_time_ns": 101537000}\n'
    '{"input_toks": 1390, "output_toks": 527, "arrival_time_ns": 4394370000, "input_tok_ids": [1, 2]}\n'
)
SAMPLES = (AZURE + AZURE_ROWS, MOONCAKE, BURSTGPT_2, VIDUR, VIDUR_UNTIMED, SPLITWISE, SERVING_SIM)
PLAIN = "p,o,t\n"
NAMED = {"prompt_column": "p", "output_column": "o"}
TIMED = {**NAMED, "time_column": "t", "time_unit": "s"}


@pytest.fixture
def trace_of(tmp_path):
    """Reads a trace from the text or the bytes of a file."""

    def read(content, name="trace", **options):
        path = tmp_path / name
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return read_trace(path, **options)

    return read


@pytest.fixture
def refusal_of(trace_of):
    """The message with which a file is refused, without its name."""

    def read(content, **options):
        with pytest.raises(TraceError) as refused:
            trace_of(content, **options)
        assert len(refused.value.lines) == 1
        assert "\n" not in refused.value.lines[0]
        return refused.value.lines[0].split("trace: ", 1)[1]

    return read


def requests(trace):
    return trace.prompt_tokens.tolist(), trace.output_tokens.tolist()


# ---- published traces


def row(trace, index):
    arrival = None if trace.arrival_s is None else trace.arrival_s[index]
    return {
        "arrival_s_from_first": arrival,
        "prompt": trace.prompt_tokens[index],
        "output": trace.output_tokens[index],
    }


@needs_shared
@pytest.mark.parametrize("file", EXPECTED["files"])
def test_a_published_trace_is_recognised_and_its_first_and_last_rows_are_what_the_file_says(file):
    expected, trace = EXPECTED["files"][file], read_trace(SHARED / file)
    assert trace.format == expected["format"]
    assert trace.rows == expected["rows"]
    assert trace.dropped == expected["zero_output_rows"]
    assert [row(trace, index) for index in range(3)] == expected["first_rows"]
    assert row(trace, -1) == expected["last_row"]


@needs_shared
def test_two_publishers_of_one_trace_give_the_same_requests_at_the_same_times():
    azure, vidur = (read_trace(SHARED / file) for file in ("azure-llm-2023-code.csv", "vidur-splitwise-code.csv"))
    assert requests(azure) == requests(vidur)
    assert (azure.arrival_s == vidur.arrival_s).all()


@needs_shared
@pytest.mark.parametrize("file", EXPECTED["not_traces"])
def test_files_of_servegen_are_refused_by_name(file):
    what = "rate file" if file.endswith(".csv") else "data set"
    with pytest.raises(TraceError, match=f"a ServeGen {what}: .* but no requests"):
        read_trace(SHARED / file)


# ---- formats


@pytest.mark.parametrize(
    ("content", "format_name", "rows", "arrivals"),
    [
        (AZURE + AZURE_ROWS, "azure-2023-csv", ([4808, 3180, 110], [10, 8, 27]), [0, 0.052, 0.098189]),
        (
            AZURE + "2024-05-10 00:00:00.009930+00:00,5,6\n2024-05-10 00:00:00.009931+00:00,7,8\n",
            "azure-2024-csv",
            ([5, 7], [6, 8]),
            [0, 1e-6],
        ),
        (
            "TIMESTAMP,NumImages,ContextTokens,GeneratedTokens\n2025-05-10 00:00:00.009930+00:00,3,5,6\n",
            "azure-2025-csv",
            ([5], [6]),
            [0],
        ),
        (BURSTGPT_2, "burstgpt-2-csv", ([472], [18]), [0]),
        (MOONCAKE, "mooncake-jsonl", ([6758, 7322], [500, 490]), [0, 3.001]),
        (VIDUR, "vidur-csv", ([4808, 3180], [10, 8]), [0, 199.961506]),
        (VIDUR_UNTIMED, "vidur-csv", ([3772, 1], [54, 4056]), None),
        (SPLITWISE, "splitwise-sim-csv", ([4096, 2048], [32, 8]), [0, 2]),
        (SERVING_SIM, "llmservingsim-jsonl", ([27369, 1390], [1626, 527]), [0, 4.292833]),
        ("arrival_s,output_tokens,prompt_tokens\n2,3,4\n4.5,5,6\n", "csv", ([4, 6], [3, 5]), [0, 2.5]),
    ],
)
def test_a_format_is_known_by_its_columns(trace_of, content, format_name, rows, arrivals):
    trace = trace_of(content)
    assert trace.format == format_name
    assert requests(trace) == rows
    assert (None if trace.arrival_s is None else trace.arrival_s.tolist()) == arrivals
    assert trace_of(gzip.compress(content.encode())).format == f"{format_name}-gzip"


def test_columns_are_found_by_name_in_any_order(trace_of):
    shuffled = "GeneratedTokens,Note,TIMESTAMP,ContextTokens\n10,x,2023-11-16 18:17:03.9799600,4808\n"
    assert requests(trace_of(shuffled)) == ([4808], [10])


def test_a_plain_file_needs_the_names_of_its_columns(trace_of, refusal_of):
    plain = "when,in,out\n1.5,3,4\n2,5,6\n"
    trace = trace_of(plain, prompt_column="in", output_column="out", time_column="when", time_unit="ms")
    assert trace.format == "csv"
    assert requests(trace) == ([3, 5], [4, 6])
    assert trace.arrival_s.tolist() == [0, 0.0005]
    assert trace_of(plain, prompt_column="in", output_column="out").arrival_s is None
    message = refusal_of(plain)
    assert '"when", "in", "out"' in message
    assert "--prompt-column" in message


@pytest.mark.parametrize(
    ("column", "second_s", "unit"), [("t", 2.0, "s"), ("t_ms", 0.002, "ms"), ("t_ns", 2e-9, "ns"), ("tens", 2.0, "s")]
)
def test_a_unit_that_nobody_states_is_taken_from_the_name_or_as_seconds_and_said(trace_of, column, second_s, unit):
    trace = trace_of(f"p,o,{column}\n1,1,3\n1,1,5\n", **NAMED, time_column=column)
    assert trace.arrival_s.tolist() == [0, second_s]
    assert f"taken to be in {unit};" in trace.notes[0]


@pytest.mark.parametrize("unit", UNIT_NS)
def test_a_unit_against_that_of_the_format_is_taken_and_said(trace_of, unit):
    trace = trace_of(MOONCAKE, time_unit=unit)
    assert trace.arrival_s.tolist() == [0, 3001 * UNIT_NS[unit] / 1e9]
    said = f'times in "timestamp" are read in {unit}, as --time-unit says; the format mooncake says ms'
    assert (said in trace.notes) == (unit != "ms")


def test_a_unit_against_the_name_of_the_column_is_taken_and_said(trace_of):
    notes = {
        unit: trace_of("p,o,t_ms\n1,1,3\n", **{**TIMED, "time_column": "t_ms", "time_unit": unit}).notes
        for unit in UNIT_NS
    }
    assert notes["ms"] == ()
    assert "the column's name says ms" in notes["h"][0]
    assert trace_of(f"{PLAIN}1,1,3\n", **TIMED).notes == ()


def test_parquet_gives_what_the_same_columns_give_as_csv(trace_of):
    frame = pl.read_csv((AZURE + AZURE_ROWS).encode(), try_parse_dates=True)
    assert isinstance(frame["TIMESTAMP"].dtype, pl.Datetime)
    as_csv = trace_of(AZURE + AZURE_ROWS)
    for times in (pl.col("TIMESTAMP"), pl.col("TIMESTAMP").dt.strftime("%Y-%m-%d %H:%M:%S%.9f")):
        packed = io.BytesIO()
        frame.with_columns(times, nested=pl.lit([1, 2])).write_parquet(packed)
        trace = trace_of(packed.getvalue())
        assert trace.format == "azure-2023-parquet"
        assert requests(trace) == requests(as_csv)
        assert trace.arrival_s.tolist() == as_csv.arrival_s.tolist()
        assert trace_of(gzip.compress(packed.getvalue())).format == "azure-2023-parquet-gzip"


def test_a_wrong_value_in_parquet_is_named_by_its_row(refusal_of):
    for values, problem in (
        ([3, None], "o: is blank"),
        ([3.0, 2.5], "o: must be a whole number"),
        ([3, -4], "negative"),
    ):
        packed = io.BytesIO()
        pl.DataFrame({"p": [1, 2], "o": values}).write_parquet(packed)
        message = refusal_of(packed.getvalue(), **NAMED)
        assert message.startswith("row 2: ")
        assert problem in message


def test_the_format_asked_for_is_used_or_the_column_that_it_lacks_is_named(trace_of, refusal_of):
    assert trace_of(AZURE + AZURE_ROWS, format="azure-2024").format == "azure-2024-csv"
    assert trace_of(MOONCAKE, format="mooncake-jsonl").format == "mooncake-jsonl"
    assert refusal_of(MOONCAKE, format="vidur").startswith('no column "num_prefill_tokens", "num_decode_tokens"')
    assert "not JSON" in refusal_of(AZURE + AZURE_ROWS, format="jsonl")
    assert "not Parquet" in refusal_of(AZURE + AZURE_ROWS, format="parquet")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"format": "mooncak"}, 'did you mean "mooncake"'),
        ({"time_unit": "weeks"}, "use one of ns, us, ms, s"),
        ({"first": 0}, "at least 1"),
        ({"prompt_column": "a", "output_column": "a"}, "three different columns"),
    ],
)
def test_arguments_that_mean_nothing_are_refused(trace_of, options, message):
    with pytest.raises(InputError, match=message):
        trace_of(MOONCAKE, **options)


def test_standard_input_is_read_for_a_dash(monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(gzip.compress((AZURE + AZURE_ROWS).encode()))))
    trace = read_trace("-")
    assert trace.format == "azure-2023-csv-gzip"
    assert requests(trace) == ([4808, 3180, 110], [10, 8, 27])
    assert not sys.stdin.buffer.closed


# ---- oddities of users' files


@pytest.mark.parametrize(
    "content",
    [
        AZURE + AZURE_ROWS,
        AZURE + AZURE_ROWS + "\r\n",
        (AZURE + AZURE_ROWS).replace("\r\n", "\n"),
        "\ufeff" + AZURE + AZURE_ROWS,
        "\r\n \r\n" + AZURE + AZURE_ROWS + "\r\n\r\n",
        AZURE + AZURE_ROWS.replace("\r\n", "\r\n\r\n"),
        (AZURE + AZURE_ROWS).replace(",", " , "),
        AZURE + AZURE_ROWS.replace("110", '"110"').replace("4808", "4808.0"),
        AZURE + AZURE_ROWS.replace(" 18:", "T18:"),
    ],
)
def test_line_ends_marks_blank_lines_spaces_and_quotes_change_nothing(trace_of, content):
    trace = trace_of(content)
    assert requests(trace) == ([4808, 3180, 110], [10, 8, 27])
    assert trace.arrival_s.tolist() == [0, 0.052, 0.098189]
    assert trace.notes == ()


def test_times_in_several_zones_are_one_clock(trace_of):
    times = (
        "2024-10-27 02:59:59.5+02:00",
        "2024-10-27 02:00:00+01:00",
        "2024-10-27T01:00:01Z",
        "2024-10-27 01:00:02 UTC",
    )
    trace = trace_of(AZURE + "".join(f"{time},1,1\n" for time in times))
    assert trace.arrival_s.tolist() == [0, 0.5, 1.5, 2.5]


def test_times_out_of_order_are_sorted_stably_and_said(trace_of):
    trace = trace_of(PLAIN + "1,1,5\n2,1,3\n3,1,5\n4,1,3\n5,1,9\n", **TIMED)
    assert trace.prompt_tokens.tolist() == [2, 4, 1, 3, 5]
    assert trace.arrival_s.tolist() == [0, 0, 2, 2, 6]
    assert trace.notes[0].startswith("2 requests come at an earlier time")
    assert trace.notes[1].startswith("2 requests have the same time")


def test_rows_without_output_are_dropped_counted_and_kept_on_request(trace_of):
    content = PLAIN + "9,0,0\n1,3,10\n2,0,20\n3,4,40\n"
    trace = trace_of(content, **TIMED)
    assert (trace.rows, trace.dropped) == (4, 2)
    assert requests(trace) == ([1, 3], [3, 4])
    assert trace.arrival_s.tolist() == [0, 30]
    assert "2 rows without output tokens dropped" in trace.notes[0]
    kept = trace_of(content, **TIMED, keep_zero_outputs=True)
    assert (kept.dropped, requests(kept)) == (0, ([9, 1, 2, 3], [0, 3, 0, 4]))
    assert "2 requests have no output tokens" in kept.notes[0]


def test_first_counts_rows_before_any_is_dropped_and_reads_no_further(trace_of):
    trace = trace_of(PLAIN + "1,0,9\n2,5,3\n3,5,4\nx,y,z\n", **TIMED, first=2)
    assert (trace.rows, trace.dropped) == (2, 1)
    assert requests(trace) == ([2], [5])
    assert requests(trace_of(MOONCAKE + "nonsense\n", first=2))[0] == [6758, 7322]


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ("", "o: is blank"),
        ("  ", "o: is blank"),
        ("-5", 'o: must not be negative, got "-5"'),
        ("10.5", 'o: must be a whole number of tokens, at most 2147483647, got "10.5"'),
        ("many", 'got "many"'),
        ("1e3", 'got "1e3"'),
        ("1_000", "without a separator of thousands"),
        ('"1,000"', 'o: must be a plain number, without a separator of thousands, got "1,000"'),
        ("1,000", "4 fields, but the header has 3; is there a comma within a number"),
        ("1 000", "without a separator of thousands"),
        ("4294967296", "at most 2147483647 tokens"),
        ("9" * 6000, "at most 2147483647 tokens"),
        ("nan", 'got "nan"'),
        ("٣", 'got "٣"'),
    ],
)
def test_a_number_of_tokens_that_is_none_is_named_with_its_line_and_value(refusal_of, value, problem):
    message = refusal_of(PLAIN + f"1,2,3\n4,5,6\n7,{value},9\n", **TIMED)
    assert message.startswith("line 4: ")
    assert problem in message


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ("", "t: is blank"),
        ("-1", 't: must not be negative, got "-1"'),
        ("noon", "t: must be a plain number, or a date and time such as"),
        ("2024-05-10 00:00:00", "t: must be a plain number"),
        ("1e30", "too large for a time in nanoseconds"),
        ("1e99999999999999999999", "too large"),
        ("inf", "must be a plain number"),
    ],
)
def test_a_time_that_is_none_is_named_with_its_line_and_value(refusal_of, value, problem):
    message = refusal_of(PLAIN + f"1,2,3\n4,5,{value}\n", **TIMED)
    assert message.startswith("line 3: ")
    assert problem in message


@pytest.mark.parametrize(
    ("time", "problem"),
    [
        ("2023-11-16 18:17:04+00:00", "must be a date and time, as the first one is"),
        ("16/11/2023 18:17", "must be a date and time"),
        ("2023-02-30 18:17:04", "is no date of the calendar"),
        ("2023-02-03 25:17:04", "is no time of day"),
        ("1066-10-14 09:00:00", "of the years 1970 to 2261"),
        ("7", "must be a date and time"),
    ],
)
def test_a_date_unlike_the_first_one_is_refused(refusal_of, time, problem):
    message = refusal_of(AZURE + f"2023-11-16 18:17:03,1,2\n{time},1,2\n")
    assert message.startswith("line 3: TIMESTAMP: ")
    assert problem in message


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ('{"timestamp": 1, "input_length": 5}', 'no "output_length"; there are "timestamp", "input_length"'),
        ('{"timestamp": 1, "input_length": "5", "output_length": 5}', 'must be a number of tokens, got "5"'),
        ('{"timestamp": 1, "input_length": true, "output_length": 5}', "must be a number of tokens, got true"),
        ('{"timestamp": 1, "input_length": null, "output_length": 5}', "input_length: is blank"),
        (
            '{"timestamp": 1, "input_length": 5.5, "output_length": 5}',
            "whole number of tokens, at most 2147483647, got 5.5",
        ),
        ('{"timestamp": [], "input_length": 5, "output_length": 5}', "timestamp: must be a time, got []"),
        ('{"timestamp": 1, "input_length": NaN, "output_length": 5}', "got NaN"),
        ('{"timestamp": 1, "input_length": 1e999, "output_length": 5}', "got 1E+999"),
        ("[1, 2, 3]", "must be an object"),
        ('{"timestamp": 1, "input_len', "not JSON"),
        ("[" * 100_000, "not JSON"),
    ],
)
def test_a_json_line_unlike_the_others_is_named(refusal_of, line, problem):
    message = refusal_of(MOONCAKE + line + "\n")
    assert message.startswith("line 3: ")
    assert problem in message


def test_whole_numbers_written_with_a_point_or_an_exponent_are_numbers(trace_of):
    assert requests(trace_of(PLAIN + "5.0,6.00,1e-05\n7,8,3.5E1\n", **TIMED)) == ([5, 7], [6, 8])
    line = '{"timestamp": 2.5, "input_length": 5.0, "output_length": 1e1}\n'
    trace = trace_of(MOONCAKE[: MOONCAKE.index("\n") + 1] + line)
    assert requests(trace) == ([6758, 5], [500, 10])
    assert trace.arrival_s.tolist() == [0, 0.0025]


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("", "the file is empty"),
        (gzip.compress(b""), "the file is empty"),
        (" \n\r\n", "nothing but blank lines"),
        ("\ufeff", "nothing but blank lines"),
        (AZURE, "there are columns and no rows"),
        (PLAIN + "5,0,1\n", "none of the 1 rows has output tokens"),
        ("1,2,3\n4,5,6\n", "line 1: must name the columns"),
        ("ContextTokens;GeneratedTokens\n5;6\n", "columns must stand apart by commas"),
        ("TIMESTAMP,ContextTokens\n1,2\n", 'no column "GeneratedTokens"'),
        ("ContextTokens,GeneratedTokens\n1,2\n", 'no column "TIMESTAMP"'),
        ("p,o,o\n1,2,3\n", 'column "o" is there twice'),
        ((AZURE + AZURE_ROWS).replace("\r\n", "\r"), "line 1: lines end in CR alone"),
        (VIDUR + "1,x\ry,3\n", "line 4: not CSV: new-line character"),
        ('[{"p": 1}]', "one JSON value for the whole file"),
        ('{\n "p": 1\n}', "one JSON value for the whole file"),
        ('{"0": {"input_tokens": "{143: 0.1}", "output_tokens": "{}"}}', "a ServeGen data set"),
        ('{"sub_requests": [], "arrival_time_ns": 1}', "agentic format"),
        (bytes(range(256)) * 9, "neither text nor Parquet"),
        ((AZURE + AZURE_ROWS).encode("utf-16"), "text in UTF-16"),
        ((AZURE + AZURE_ROWS).encode() + b"\r\n\xff\xfe,1,2", "line 5: not UTF-8"),
        ((AZURE + AZURE_ROWS).encode() + b"\r\n" + b"a" * 5000 + b"\0,1,2", "line 5: has a NUL byte"),
        (b"PK\x03\x04junk", "a zip archive"),
        (b"PAR1 and no more", "not Parquet, or damaged"),
        (gzip.compress(MOONCAKE.encode() * 50)[:-40], "the gzip data end too early"),
        (gzip.compress(MOONCAKE.encode() * 50)[:-4] + b"xxxx", "the gzip data are damaged"),
        (gzip.compress(gzip.compress(MOONCAKE.encode())), "packed by gzip twice"),
    ],
)
def test_a_file_that_is_no_trace_is_refused_in_one_line(refusal_of, content, problem):
    named = NAMED if content in (PLAIN + "5,0,1\n", "p,o,o\n1,2,3\n") else {}
    assert problem in refusal_of(content, **named)


def test_a_path_that_cannot_be_read_is_refused_in_one_line(tmp_path):
    for path, problem in (
        (tmp_path, "Is a directory"),
        (tmp_path / "absent.csv", "No such file"),
        ("a\0b", "cannot be opened"),
    ):
        with pytest.raises(TraceError, match=problem):
            read_trace(path)


def test_a_unit_for_times_that_need_none_is_refused(refusal_of):
    assert "each a date and time, so there is no unit to give" in refusal_of(AZURE + AZURE_ROWS, time_unit="s")
    assert "there are no times" in refusal_of(VIDUR_UNTIMED, time_unit="s")


def test_what_is_odd_is_said(trace_of):
    assert trace_of(VIDUR_UNTIMED).notes == ("no arrival times: all requests are taken to wait from the start",)
    assert "1 request has no prompt tokens" in trace_of(PLAIN + "0,5,1\n", **TIMED).notes


# ---- large files


@pytest.mark.parametrize("block_bytes", [120, 130, 500])
@pytest.mark.parametrize("content", SAMPLES)
def test_a_file_read_in_many_blocks_gives_the_same_requests(trace_of, monkeypatch, content, block_bytes):
    header, rows = ("", content) if content[0] == "{" else content.split("\n", 1)
    content = f"{header}\n" + f"{rows.strip()}\n" * 40
    want = trace_of(content)
    monkeypatch.setattr(trace_files, "BLOCK_BYTES", block_bytes)
    got = trace_of(content)
    assert requests(got) == requests(want)
    assert str(got.arrival_s) == str(want.arrival_s)
    assert got[:3] == want[:3]


def test_lines_are_counted_across_blocks_and_line_ends_within_quotes(trace_of, refusal_of, monkeypatch):
    monkeypatch.setattr(trace_files, "BLOCK_BYTES", 32)
    rows = "".join(f'{number},{number},"some\ntext, ""quoted"""\n' for number in range(1, 40))
    named = {"prompt_column": "p", "output_column": "o"}
    assert trace_of("p,o,note\n" + rows, **named).prompt_tokens.tolist() == list(range(1, 40))
    message = refusal_of("p,o,note\n" + rows + "5,x,last\n", **named)
    assert message.startswith(f"line {2 + 2 * 39}: o: ")


def test_a_line_without_an_end_is_refused_before_it_fills_the_memory(refusal_of, monkeypatch):
    monkeypatch.setattr(trace_files, "BLOCK_BYTES", 64)
    monkeypatch.setattr(trace_files, "LONGEST_RECORD_BYTES", 500)
    assert "line 2: no end in" in refusal_of(PLAIN + '1,2,"3\n' + "4,5,6\n" * 1000, **TIMED)


def test_progress_tells_the_bytes_of_the_file(trace_of):
    calls, content = [], (AZURE + AZURE_ROWS).encode()
    trace_of(content, progress=lambda done, size: calls.append((done, size)))
    assert calls[-1] == (len(content), len(content))


# ---- the two ways of reading


lengths = st.integers(0, 2**31 - 1)
clocks = st.datetimes(min_value=datetime(1970, 1, 2), max_value=datetime(2261, 1, 1))
times = st.one_of(
    st.lists(st.decimals(0, 10**9, allow_nan=False, places=9), min_size=1, max_size=6).map(
        lambda v: [f"{t:f}" for t in v]
    ),
    st.lists(st.floats(0, 1e9), min_size=1, max_size=6).map(lambda v: [repr(t) for t in v]),
    st.tuples(
        st.lists(clocks, min_size=1, max_size=6),
        st.sampled_from(" T"),
        st.sampled_from(["", "7", "123", "123456", "1234567", "123456789"]),
        st.sampled_from(["", "Z", "+00:00", "-05:30", " UTC"]),
    ).map(lambda c: [f"{t:%Y-%m-%d}{c[1]}{t:%H:%M:%S}{'.' * bool(c[2])}{c[2]}{c[3]}" for t in c[0]]),
)


@given(times)
@settings(deadline=None, derandomize=True, max_examples=200)
def test_a_column_of_times_reads_as_its_times_one_by_one(texts):
    for unit_ns in (1, 1000, 10**9) if kind_of(texts[0]) == NUMBER else (1,):
        kind = kind_of(texts[0])
        together = column_ns(pl.Series(texts), kind, unit_ns)
        if together is not None:
            assert together.tolist() == [text_ns(text, kind, unit_ns) for text in texts]
        else:
            assert kind == NUMBER  # an exponent
            assert any("e" in text for text in texts)


@given(st.lists(st.tuples(lengths, st.integers(1, 2**31 - 1)), min_size=1, max_size=20), st.data())
@settings(deadline=None, derandomize=True, max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_polars_and_the_reading_row_by_row_give_the_same_rows(trace_of, rows, data):
    stamps = data.draw(st.lists(st.integers(0, 10**9), min_size=len(rows), max_size=len(rows)))
    as_csv = PLAIN + "".join(f"{p},{o},{t / 1000}\n" for (p, o), t in zip(rows, stamps, strict=True))
    as_json = "".join(
        json.dumps({"p": p, "o": o, "t": t / 1000}) + "\n" for (p, o), t in zip(rows, stamps, strict=True)
    )
    quick = trace_of(as_csv, **TIMED)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(trace_rows, "_by_columns", lambda *_: None)
        slow = [trace_of(content, **TIMED) for content in (as_csv, as_json)]
    for trace in (*slow, trace_of(as_json, **TIMED)):
        assert requests(trace) == requests(quick)
        assert trace.arrival_s.tolist() == quick.arrival_s.tolist()


# ---- anything at all


def parquet_sample():
    packed = io.BytesIO()
    pl.DataFrame({"p": [1, 2], "o": [3, 4], "t": [0.5, 1.5]}).write_parquet(packed)
    return packed.getvalue()


SEEDS = [sample.encode() for sample in SAMPLES] + [gzip.compress(MOONCAKE.encode())]
edits = st.lists(
    st.tuples(
        st.floats(0, 1),
        st.integers(0, 6),
        st.one_of(
            st.binary(max_size=3),
            st.sampled_from(
                [
                    b",",
                    b'"',
                    b"\n",
                    b"\r",
                    b"-",
                    b".",
                    b"e9",
                    b"{",
                    b"}",
                    b"[",
                    b"\0",
                    b"1e999",
                    b"null",
                    b"T",
                    b"+00:00",
                ]
            ),
        ),
    ),
    max_size=4,
)


def edited(content, changes):
    for where, cut, put in changes:
        at = int(where * len(content))
        content = content[:at] + put + content[at + cut :]
    return content


@given(st.sampled_from(SEEDS), edits, st.sampled_from([1, 2, None]), st.booleans())
@settings(
    deadline=None, derandomize=True, max_examples=400, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_no_edit_of_a_file_raises_anything_but_a_trace_error(trace_of, content, changes, first, keep):
    try:
        trace = trace_of(edited(content, changes), first=first, keep_zero_outputs=keep)
    except TraceError as error:
        "\n".join(error.lines).encode()  # can be printed
        return
    assert trace.rows == len(trace.output_tokens) + trace.dropped > 0
    assert min(trace.prompt_tokens.min(), trace.output_tokens.min()) >= 0
    assert trace.arrival_s is None or (trace.arrival_s[0] == 0 and (np.diff(trace.arrival_s) >= 0).all())


@given(edits)
@settings(deadline=None, derandomize=True, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_no_edit_of_a_parquet_file_raises_anything_but_a_trace_error(trace_of, changes):
    try:
        trace_of(edited(parquet_sample(), changes), **TIMED)
    except TraceError:
        return


# ---- arrays


def test_the_arrays_of_a_trace_cannot_be_written(trace_of):
    trace = trace_of(VIDUR)
    for array in (trace.prompt_tokens, trace.output_tokens, trace.arrival_s):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 1


# ---- imports


def test_reading_traces_loads_no_kernel():
    code = "import sys, sweep.model.traces; sys.exit('numba' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_traces_import_neither_the_report_nor_the_results():
    for file in (Path(trace_rows.__file__).parent).glob("trace*.py"):
        imports = [node for node in ast.walk(ast.parse(file.read_text())) if isinstance(node, ast.ImportFrom)]
        assert not [node.module for node in imports if node.module.startswith(("sweep.report", "sweep.results"))]
