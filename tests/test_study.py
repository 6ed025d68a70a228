import json
import pickle
import re
import tomllib
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sweep.errors import StudyError
from sweep.metrics import EXTRA, METRICS
from sweep.study import cells_of, columns_of, parse_study, plain, read_study, setting, study_hash_parts
from sweep.study import settings as settings_of
from sweep.study.schema import StudyFile

STUDIES = Path(__file__).parents[1] / "studies"
FIVE_X = (STUDIES / "five_x.toml").read_text()
SMALL = """
title = "small"
replicates = 10
[workload]
requests = 20
output = { distribution = "lognormal", mean = 100, cv = 1 }
[server]
slots = 4
"""
MEMORY = """
[server.memory]
budget = "64 GiB"
kv_per_token = "512 KiB"
"""


@pytest.fixture
def read(tmp_path):
    """Reads a study's text, or bytes, from a file of its own."""

    def from_text(text, **changes):
        path = tmp_path / "x.toml"
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return read_study(path, **changes)

    return from_text


@pytest.fixture
def faults(read, tmp_path):
    """The lines that a study is refused with, without the folder of its file."""

    def from_text(text, **changes):
        with pytest.raises(StudyError) as refused:
            read(text, **changes)
        return [line.replace(f"{tmp_path}/", "") for line in refused.value.lines]

    return from_text


def changed(old, new, text=SMALL):
    assert old in text
    return text.replace(old, new)


def with_grid(grid, text=SMALL):
    return f"{text}\n[grid]\n{grid}\n"


def with_claim(claim, text=SMALL):
    return f'{text}\n[[claims]]\ntext = "a claim"\n{claim}\n'


AT_LEAST = 'metric = "multiple"\nat_least = 1\n'

ALL_METRICS = f"the {len(METRICS)} metrics of `sweep list metrics`"
ONE_FAULT = {
    "misspelt key": (changed("slots =", "slot ="), ['server.slot: unknown key; did you mean "slots"?']),
    "misspelt key of the file": (
        changed("replicates", "replicate"),
        ['replicate: unknown key; did you mean "replicates"?'],
    ),
    "misspelt key that others hang on": (
        changed("distribution", "distributon"),
        ['workload.output.distributon: unknown key; did you mean "distribution"?'],
    ),
    "missing key": (changed("slots = 4", ""), ["server.slots: missing"]),
    "misspelt parameter": (
        changed("cv = 1", "cv = 1, max_token = 9"),
        ['workload.output.max_token: unknown key; did you mean "max_tokens"?'],
    ),
    "quoted number": (changed("= 20", '= "20"'), ['workload.requests: must be a whole number, got "20"']),
    "quoted slots": (
        changed("slots = 4", 'slots = "4"'),
        ['server.slots: must be a whole number from 1 to 1,000,000, or "memory", got "4"'],
    ),
    "nan": (changed("cv = 1", "cv = nan"), ["workload.output.cv: must be a finite number, got nan"]),
    "infinity": (
        changed("slots = 4", "slots = 4\nstep_ms = inf"),
        ["server.step_ms: must be a finite number, got inf"],
    ),
    "true for a number": (changed("= 20", "= true"), ["workload.requests: must be a whole number, got true"]),
    "a date": (changed('"small"', "2020-01-01"), ["title: must be text, got a date"]),
    "slots 0": (
        changed("slots = 4", "slots = 0"),
        ['server.slots: must be a whole number from 1 to 1,000,000, or "memory", got 0'],
    ),
    "slots 10^13": (
        changed("slots = 4", "slots = 10_000_000_000_000"),
        ['server.slots: must be a whole number from 1 to 1,000,000, or "memory", got 10,000,000,000,000'],
    ),
    "2^63": (
        changed("replicates", "seed = 9223372036854775808\nreplicates"),
        ["seed: must be at most 9,223,372,036,854,775,807 (2^63 - 1) in size, got 9,223,372,036,854,775,808"],
    ),
    "a hexadecimal number of thousands of digits": (
        changed("= 20", f"= 0x{'f' * 6000}"),
        [
            "workload.requests: must be at most 9,223,372,036,854,775,807 (2^63 - 1) in size, "
            "got a number of 24,000 bits"
        ],
    ),
    "empty axis": (with_grid('"server.slots" = []'), ['grid."server.slots": an axis needs at least one value']),
    "duplicate axis value": (
        with_grid('"server.slots" = [1, 2, 1.0]'),
        ['grid."server.slots": value 1.0 stands twice'],
    ),
    "unknown axis path": (
        with_grid('"server.slot" = [1, 2]'),
        ['grid."server.slot": unknown path; did you mean "slots"?'],
    ),
    "axis path without its first part": (
        with_grid('"slots" = [1, 2]'),
        ['grid.slots: a path starts with workload. or server.; did you mean "server.slots"?'],
    ),
    "axis path without quotes": (
        with_grid("server.slots = [1, 2]"),
        ['grid.server: a path stands in quotes, such as "server.slots" = [...]'],
    ),
    "axis through a number": (
        with_grid('"workload.requests.x" = [1]'),
        ['grid."workload.requests.x": workload.requests is no table'],
    ),
    "axis past the end of a list": (
        with_grid(
            '"workload.output.parts.2.weight" = [0.1]', FIVE_X.replace("[grid]\n", "").replace('"server.slots" =', "#")
        ),
        ['grid."workload.output.parts.2.weight": workload.output.parts is a list of 2, numbered from 0; there is no'],
    ),
    "memory as an axis value": (
        with_grid('"server.slots" = [4, "memory"]'),
        ['grid."server.slots": "memory" is no axis value; let slots = "memory" and make context an axis'],
    ),
    "tables without names": (
        with_grid('"workload.output" = [{ distribution = "constant", value = 1 }]'),
        ['grid."workload.output": values that are tables or lists need names: { values = [...], names = [...] }'],
    ),
    "one path twice": (
        with_grid('"server.slots" = [4]\n[[grid.paired]]\n"server.slots" = [8]'),
        ['grid."server.slots": is an axis twice'],
    ),
    "colliding columns": (
        with_grid('"server.slots" = { values = [4], name = "a" }\n"server.step_ms" = { values = [5], name = "a" }'),
        ['grid."server.step_ms": the column "a" is also that of server.slots; give another name'],
    ),
    "a column of the results": (
        with_grid('"workload.requests" = { values = [4], name = "slots" }'),
        ['grid."workload.requests": the column "slots" is one of the results; give another name'],
    ),
    "a column of a metric": (
        with_grid('"workload.requests" = { values = [4], name = "multiple_mean" }'),
        ['grid."workload.requests": the column "multiple_mean" is one of the results; give another name'],
    ),
    "paired lists of unequal length": (
        with_grid('[[grid.paired]]\n"server.slots" = [1, 2]\n"server.step_ms" = [1, 2, 3]'),
        ["grid.paired.0: axes that move together need equally many values; there are server.slots 2, server.step_ms 3"],
    ),
    "a factor that misses stop": (
        with_grid('"server.slots" = { start = 1, stop = 10, factor = 3 }'),
        ['grid."server.slots": no number of factors 3 leads from 1 to 10'],
    ),
    "half a rule": (
        with_grid('"server.slots" = { start = 1, stop = 10 }'),
        ['grid."server.slots": needs values, or start, stop and num, or start, stop and factor; given: st'],
    ),
    "a factor of 1": (
        with_grid('"server.slots" = { start = 1, stop = 10, factor = 1 }'),
        ['grid."server.slots": start and stop need the same sign and may not be 0; factor must be above 0 and not 1'],
    ),
    "a column's name with a space": (
        with_grid('"server.slots" = { values = [1], name = "a b" }'),
        ['grid."server.slots".name: must be made of letters, digits and underscores, got "a b"'],
    ),
    "too many cells": (
        with_grid(
            '"server.slots" = { start = 1, stop = 1000, num = 1000 }\n'
            '"server.context" = { start = 1, stop = 101, num = 101 }'
        ),
        ["grid: 101,000 cells; there may be at most 100,000"],
    ),
    "unknown distribution": (
        changed('"lognormal"', '"lognormale"'),
        ["workload.output.distribution: must be one of constant, uniform"],
    ),
    "low above high": (
        changed("low = 8", "low = 80", FIVE_X),
        ["workload.output.parts.0: low 80 is above high 40"],
    ),
    "weights that do not sum to 1": (
        changed("weight = 0.9", "weight = 0.8", FIVE_X),
        ["workload.output: weights sum to 0.9, not 1"],
    ),
    "cv of 0": (changed("cv = 1", "cv = 0"), ["workload.output.cv: must be above 0, got 0"]),
    "negative cv": (changed("cv = 1", "cv = -0.5"), ["workload.output.cv: must be above 0, got -0.5"]),
    "unknown metric": (
        with_claim('metric = "multipel"\nat_least = 1'),
        [f'claims.0.metric: must be one of {ALL_METRICS}, got "multipel"; did you mean "multiple"'],
    ),
    "unknown metric to measure": (
        changed("title", 'measure = ["static_sx"]\ntitle'),
        [f'measure.0: must be one of the {len(EXTRA)} metrics of `sweep list metrics`, got "static_sx"; did you'],
    ),
    "a metric to measure that is no text": (
        changed("title", "measure = [3]\ntitle"),
        [f"measure.0: must be one of the {len(EXTRA)} metrics of `sweep list metrics`, got 3"],
    ),
    "a metric to measure that is in every study": (
        changed("title", 'measure = ["multiple"]\ntitle'),
        ['measure.0: is a metric of every study, got "multiple"; leave it out'],
    ),
    "a claim without a bound": (
        with_claim('metric = "multiple"'),
        ["claims.0: needs one of at_least, at_most, between, equals; got none"],
    ),
    "a claim with two bounds": (
        with_claim(AT_LEAST + "at_most = 3"),
        ["claims.0: needs one of at_least, at_most, between, equals; got at_least and at_most"],
    ),
    "equals of a mean without within": (
        with_claim('metric = "multiple"\nequals = 5'),
        ['claims.0: equals needs within here; only of = "every" can be exact'],
    ),
    "within without equals": (with_claim(AT_LEAST + "within = 1"), ["claims.0: within goes with equals only"]),
    "between from high to low": (
        with_claim('metric = "multiple"\nbetween = [5, 4]'),
        ["claims.0: between goes from low to high, got 5 to 4"],
    ),
    "a share of 1": (with_claim(AT_LEAST + "of = { share = 1 }"), ["claims.0.of.share: must be below 1, got 1"]),
    "percentile 0": (
        with_claim(AT_LEAST + "of = { percentile = 0 }"),
        ["claims.0.of.percentile: must be above 0, got 0"],
    ),
    "an unknown of": (
        with_claim(AT_LEAST + 'of = "evry"'),
        ['claims.0.of: must be one of mean, every, got "evry"; did you mean "every"?'],
    ),
    "an unknown column": (
        with_claim(AT_LEAST + "where = { slot = 4 }"),
        ['claims.0.where.slot: unknown column; did you mean "slots"?'],
    ),
    "a value that no cell has": (
        with_claim(AT_LEAST + "where = { slots = [4, 5] }"),
        ["claims.0.where.slots: no cell has 5; there are 4"],
    ),
    "values that no cell has together": (
        with_claim(
            AT_LEAST + "where = { slots = 4, requests = 20 }",
            with_grid('[[grid.paired]]\n"server.slots" = [4, 8]\n"workload.requests" = [10, 20]'),
        ),
        ["claims.0.where: no cell has all of these values"],
    ),
    "a difference to a cell that is not there": (
        with_claim(AT_LEAST + "minus = { slots = 5 }", with_grid('"server.slots" = [4, 8]')),
        ["claims.0.minus.slots: no cell has 5; there are 4, 8"],
    ),
    "a difference to several cells": (
        with_claim(AT_LEAST + "minus = { slots = [4, 8] }", with_grid('"server.slots" = [4, 8]')),
        ["claims.0.minus.slots: takes one value of a column, got a list"],
    ),
    "a difference of a cell to itself": (
        with_claim(AT_LEAST + "where = { slots = 8 }\nminus = { slots = 8 }", with_grid('"server.slots" = [4, 8]')),
        ["claims.0.minus: takes a cell from itself; name values that where does not have"],
    ),
    "a difference by a column that is no axis": (
        with_claim(AT_LEAST + "minus = { slots = 4 }"),
        ["claims.0.minus.slots: is no axis of the grid; name the axis that it follows from"],
    ),
    "a limit of slots that are given": (
        changed("slots = 4", "slots = 4\nmax_slots = 8"),
        ['server: max_slots goes with slots = "memory" only'],
    ),
    "a chart of an unknown column": (
        f'{SMALL}[[charts]]\nkind = "lines"\nx = "slot"',
        [f'charts.0.x: must be one of slots or {ALL_METRICS}, got "'],
    ),
    "seconds without a step time": (
        changed("replicates", 'measure = ["multiple_s"]\nreplicates'),
        ['measure.0: needs a step time in every cell, got "multiple_s"; set server.step_ms'],
    ),
    "a claim of seconds without a step time": (
        with_claim('metric = "static_s"\nat_least = 1'),
        ['claims.0.metric: needs a step time in every cell, got "static_s"; set server.step_ms'],
    ),
    "precision and replicates": (
        changed("replicates", 'precision = { metric = "multiple", half_width = 1 }\nreplicates'),
        ["precision: replicates is given too; keep one of them"],
    ),
    "a half width of nothing": (
        changed("replicates = 10", 'precision = { metric = "multiple", half_width = "0 %" }'),
        ['precision.half_width: must be a number above 0, or a share of the mean such as "1 %", got "0 %"'],
    ),
    "memory slots without memory": (
        changed("slots = 4", 'slots = "memory"'),
        ['server: slots = "memory" needs context and memory here'],
    ),
    "memory without a unit": (
        SMALL + MEMORY.replace("64 GiB", "64"),
        ['server.memory.budget: the unit is missing in "64"'],
    ),
    "memory as a number": (
        SMALL + MEMORY.replace('"64 GiB"', "64"),
        ['server.memory.budget: must be text with a unit, such as "64 GiB", got 64'],
    ),
    "no memory": (
        SMALL + MEMORY.replace("512 KiB", "0 B"),
        ['server.memory.kv_per_token: must be at least 1 B and less than 2^63 B, got "0 B"'],
    ),
    "endless memory": (
        SMALL + MEMORY.replace("64 GiB", "1e300 TiB"),
        ['server.memory.budget: "1e300 TiB" is more than 8 EiB; give what there is, such as "64 GiB"'],
    ),
    "memory that not one request fits": (
        changed("slots = 4", 'slots = "memory"\ncontext = 2048') + MEMORY.replace("64 GiB", "1023 MiB"),
        ["server.slots: no cell can run: a request of 2,048 tokens needs 1 GiB, the budget is 1023 MiB"],
    ),
    "an empty file": ("", [" is empty; a study has a [workload] and a [server], see sweep new"]),
    "comments alone": ("# soon\n", [" is empty; a study has a [workload] and a [server], see sweep new"]),
    "no TOML": ("title =\n", [" is no TOML: Invalid value (at line 1, column 8)"]),
    "UTF-16": (SMALL.encode("utf-16"), [" is UTF-16 text; save it as UTF-8"]),
    "Latin-1": ("title = 'é'".encode("latin-1"), [" is no UTF-8 text (byte 0xe9 at 9)"]),
    "binary": (b"\x7fELF\x00\xff", [" is no UTF-8 text (byte 0xff at 5)"]),
    "lists without end": (f"a = {'[' * 3000}", [" cannot be read: lists nest too deep"]),
    "tables without end": (f"[{'.'.join('a' * 3000)}]\n", ["a.a.a.a: nests deeper than 32 levels"]),
    "a grid without end": (f"[grid.{'.'.join('a' * 3000)}]\n", ["grid.a.a.a: nests deeper than 32 levels"]),
    "a key that a terminal would obey": (
        SMALL + '"\\u001b[31m" = 1',
        ['server."\\u001b[31m": unknown key; allowed: slots, '],
    ),
}


@pytest.mark.parametrize("kind", ONE_FAULT)
def test_a_bad_study_is_refused_with_its_lines_and_no_others(kind, faults):
    text, expected = ONE_FAULT[kind]
    lines = faults(text)
    assert len(lines) == len(expected)
    for line, start in zip(lines, expected, strict=True):
        assert line.startswith(f"x.toml:{start}" if start.startswith(" ") else f"x.toml: {start}")


def test_what_is_not_there_or_a_folder_is_refused(tmp_path):
    for path, words in ((tmp_path / "none.toml", "there is no such file"), (tmp_path, "is a folder")):
        with pytest.raises(StudyError, match=f"^{re.escape(str(path))}: {words}[^\n]*$"):
            read_study(path)


def test_all_faults_of_a_file_are_reported_at_once(faults):
    lines = faults("""
titel = "x"
seed = -1
[workload]
requests = "5"
output = { distribution = "lognormal", mean = -5, cv = 0, max_token = 4 }
[server]
slots = 4
step = 1
[grid]
"server.slots" = []
"server.step_ms" = [0, 1, -1]
[[claims]]
metric = "multipel"
[[claims]]
text = "x"
metric = "multiple"
between = [2, 1]
""")
    keys = [line.removeprefix("x.toml: ").split(": ")[0] for line in lines]
    assert sorted(keys) == sorted(
        [
            "titel",
            "seed",
            "workload.requests",
            "workload.output.mean",
            "workload.output.cv",
            "workload.output.max_token",
            "server.step",
            'grid."server.slots"',
            'grid."server.step_ms"',
            'grid."server.step_ms"',
            "claims.0.text",
            "claims.0.metric",
            "claims.1",
        ]
    )


@pytest.mark.parametrize(
    ("grid", "expected"),
    [
        (
            '"workload.output.cv" = [-1, 0.5, 0]',
            ['"workload.output.cv": -1: must be above 0', '"workload.output.cv": 0: must be above 0'],
        ),
        (
            '"server.slots" = [true, 2.5]',
            ['"server.slots": true: must be a whole', '"server.slots": 2.5: must be a whole'],
        ),
        (
            '"workload.output" = { values = [{ distribution = "uniform", low = 2, high = 1 }, '
            '{ distribution = "constant", value = -1 }], names = ["a", "b"] }',
            [
                '"workload.output": "a": low 2 is above high 1',
                '"workload.output": "b": value: must be at least 0, got -1',
            ],
        ),
        (
            '"workload.output.distribution" = ["gamma", "geometric"]',
            ['"workload.output.distribution": "geometric": workload.output.cv: unknown key'],
        ),
    ],
)
def test_a_fault_that_an_axis_value_brings_names_axis_and_value(grid, expected, faults):
    lines = faults(with_grid(grid))
    assert len(lines) == len(expected)
    assert all(line.startswith(f"x.toml: grid.{start}") for line, start in zip(lines, expected, strict=True))


@pytest.mark.parametrize(
    ("grid", "expected"),
    [
        (
            '"server.slots" = [4, "memory", 0, 4, nan, 4, 0, "x"]',
            [
                '"server.slots": 0: must be a whole number',
                '"server.slots": "x": must be a whole number',
                '"server.slots".4: must be a finite number, got nan',
                '"server.slots": "memory" is no axis value',
                '"server.slots": value 4 stands twice',
                '"server.slots": value 0 stands twice',
            ],
        ),
        (
            '"server.slots" = { values = [4, 4], name = "a b", names = ["a", "a"], step = 3 }',
            [
                '"server.slots".name: must be made of letters',
                '"server.slots".step: unknown key',
                '"server.slots": value 4 stands twice',
                '"server.slots": name "a" stands twice',
            ],
        ),
        (
            '"server.slots" = { values = 3, start = nan, num = 1 }',
            [
                '"server.slots".values: must be a list, got 3',
                '"server.slots".num: must be at least 2, got 1',
                '"server.slots".start: must be a finite number, got nan',
            ],
        ),
        ("slots = [inf]", ["slots: a path starts with workload. or server.", "slots.0: must be a finite number"]),
        (
            '[[grid.paired]]\n"server.slots" = [1, 1, 0, "memory"]\n"server.step_ms" = [2, 2, -1, nan]',
            [
                '"server.slots": 0: must be a whole number',
                '"server.step_ms": -1: must be above 0',
                'paired.0."server.slots": "memory" is no axis value',
                'paired.0."server.step_ms".3: must be a finite number, got nan',
                "paired.0: value 1, 2 stands twice",
            ],
        ),
    ],
    ids=["values", "table", "rule", "path", "paired"],
)
def test_all_faults_of_an_axis_are_reported_at_once(grid, expected, faults):
    lines = faults(with_grid(grid))
    assert len(lines) == len(expected), lines
    assert all(line.startswith(f"x.toml: grid.{start}") for line, start in zip(lines, expected, strict=True))


def test_a_fault_of_two_axes_names_both_values(faults):
    grid = '"workload.output.parts.1.low" = [10, 800]\n"workload.output.parts.1.high" = [500, 900]\n'
    (line,) = faults(changed("[grid]", f"[grid]\n{grid}", FIVE_X))
    assert line == (
        'x.toml: grid."workload.output.parts.1.low": 800, grid."workload.output.parts.1.high": 500: '
        "workload.output.parts.1: low 800 is above high 500"
    )


def test_a_byte_order_mark_is_accepted(read):
    assert read(b"\xef\xbb\xbf" + SMALL.encode()).title == "small"


def test_a_thousand_faults_are_a_hundred_lines_and_a_count(faults):
    lines = faults(with_grid('"server.slots" = { start = -999, stop = 0, num = 1000 }'))
    assert len(lines) == 101
    assert lines[-1] == "x.toml: 900 more faults"


def test_axes_multiply_row_major_with_paired_ones_last(read):
    study = read(
        with_grid("""
"server.slots" = [4, 8]
"workload.output.cv" = { start = 0.1, stop = 0.3, num = 3 }
[[grid.paired]]
"workload.requests" = [10, 20]
"server.step_ms" = [1.5, 2.5]
""")
    )
    cells = [
        (cell.server.slots, cell.workload.output.cv, cell.workload.requests, cell.server.step_ms)
        for cell in settings_of(study)
    ]
    pairs = [(10, 1.5), (20, 2.5)]
    assert cells == [(slots, cv, *pair) for slots in (4, 8) for cv in (0.1, 0.2, 0.3) for pair in pairs]
    assert [axis.columns for axis in study.axes] == [("slots",), ("output_cv",), ("requests", "step_ms")]


@pytest.mark.parametrize(
    ("rule", "values"),
    [
        ("[4, 8, 16]", [4, 8, 16]),
        ("{ values = [4, 8] }", [4, 8]),
        ("{ start = 4, stop = 16, num = 4 }", [4, 8, 12, 16]),
        ("{ start = 16, stop = 4, num = 3 }", [16, 10, 4]),
        ("{ start = 4, stop = 64, factor = 2 }", [4, 8, 16, 32, 64]),
        ("{ start = 64, stop = 4, factor = 0.25 }", [64, 16, 4]),
    ],
)
def test_an_axis_is_a_list_or_a_rule_with_both_ends(rule, values, read):
    (axis,) = read(with_grid(f'"server.slots" = {rule}')).axes
    assert [value for (value,) in axis.values] == values
    assert all(type(value) is int for (value,) in axis.values)


def test_a_rule_in_tenths_gives_tenths(read):
    (axis,) = read(with_grid('"workload.output.cv" = { start = 0.1, stop = 0.7, num = 7 }')).axes
    assert axis.values == ((0.1,), (0.2,), (0.3,), (0.4,), (0.5,), (0.6,), (0.7,))


def test_names_stand_for_values_in_the_column(read):
    study = read(
        with_grid(
            '"workload.output" = { values = [{ distribution = "constant", value = 3 }, '
            '{ distribution = "geometric", mean = 3 }], names = ["equal", "memoryless"], name = "lengths" }'
        )
    )
    (axis,) = study.axes
    assert axis.columns == ("lengths",)
    assert axis.labels == (("equal",), ("memoryless",))
    assert [cell.workload.output.distribution for cell in settings_of(study)] == ["constant", "geometric"]


def test_a_path_goes_through_a_list(read):
    text = FIVE_X.replace("weight = 0.1, ", "").replace("weight = 0.9", "weight = 0")
    study = read(changed("[grid]", '[grid]\n"workload.output.parts.0.weight" = [0, 0.5, 1]', text))
    assert study.axes[0].columns == ("output_parts_0_weight",)
    assert [cell.workload.output.parts[0].weight for cell in settings_of(study)[::5]] == [0, 0.5, 1]


def test_an_axis_gives_what_the_tables_leave_out(read):
    study = read(
        'title = "x"\n[grid]\n"workload.output.distribution" = ["constant"]\n"workload.output.value" = [1, 2]\n'
        '"workload.requests" = [5]\n"server.slots" = [1]\n'
    )
    assert [cell.workload.output.value for cell in settings_of(study)] == [1, 2]


def test_an_axis_inside_another_one_sets_its_value_in_each_table(read):
    study = read(
        with_grid(
            '"workload.output.max_tokens" = [50, 60]\n"workload.output" = { names = ["a", "b"], values = ['
            '{ distribution = "geometric", mean = 3 }, { distribution = "exponential", mean = 3 }] }'
        )
    )
    seen = [(cell.workload.output.distribution, cell.workload.output.max_tokens) for cell in settings_of(study)]
    assert seen == [("geometric", 50), ("exponential", 50), ("geometric", 60), ("exponential", 60)]


def test_replicates_are_1000_unless_a_number_or_a_precision_is_given(read):
    bare = read(SMALL.replace("replicates = 10\n", ""))
    precise = read(changed("replicates = 10", 'precision = { metric = "multiple", half_width = "2 %" }'))
    assert (bare.replicates, bare.precision) == (1000, None)
    assert precise.replicates is None
    assert precise.precision.half_width_of(-5.0) == pytest.approx(0.1)


@pytest.mark.parametrize("half_width", ["1", "0.5", '"1 %"', '"0.5%"'])
def test_a_half_width_stays_as_it_was_given(half_width, read):
    text = changed("replicates = 10", f'precision = {{ metric = "multiple", half_width = {half_width} }}')
    assert plain(read(text))["precision"]["half_width"] == tomllib.loads(f"x = {half_width}")["x"]


def test_measure_includes_the_seconds_that_are_claimed(read):
    text = changed("slots = 4", "slots = 4\nstep_ms = 20")
    assert read(with_claim('metric = "multiple_s"\nat_least = 1', text)).measure == ("multiple_s",)


def test_claims_know_their_cells(read):
    study = read(
        with_claim(
            AT_LEAST + "where = { slots = [8, 16.0], requests = 10 }",
            with_grid('"server.slots" = [4, 8, 16]\n"workload.requests" = [10, 20]'),
        )
    )
    assert cells_of(study, study.claims[0]) == [2, 4]
    assert plain(study)["claims"][0]["cells"] == [2, 4]


def test_a_claim_on_a_difference_knows_the_cell_that_is_taken_from_each(read):
    grid = with_grid('"server.slots" = [4, 8, 16]\n"workload.requests" = [10, 20]')
    (claim,) = plain(read(with_claim(AT_LEAST + "minus = { slots = 8 }", grid)))["claims"]
    assert (claim["cells"], claim["minus_cells"]) == ([0, 1, 4, 5], [2, 3, 2, 3])
    assert "minus" not in plain(read(with_claim(AT_LEAST, grid)))["claims"][0]


def test_columns_of_one_axis_move_together_in_a_difference(read):
    grid = with_grid('[[grid.paired]]\n"server.slots" = [4, 8]\n"workload.requests" = [10, 20]')
    (claim,) = plain(read(with_claim(AT_LEAST + "minus = { requests = 10 }", grid)))["claims"]
    assert (claim["cells"], claim["minus_cells"]) == ([1], [0])


def test_no_more_than_max_slots_run_whatever_fits(read):
    text = changed("slots = 4", 'slots = "memory"\nmax_slots = 48') + MEMORY
    assert columns_of(read(with_grid('"server.context" = [1024, 2048, 4096]', text)))["slots"] == [48, 48, 32]


def test_a_claim_may_name_slots_that_follow_from_memory(read):
    text = changed("slots = 4", 'slots = "memory"') + MEMORY
    study = read(with_claim(AT_LEAST + "where = { slots = 64 }", with_grid('"server.context" = [1024, 2048]', text)))
    assert cells_of(study, study.claims[0]) == [1]


@pytest.mark.parametrize(
    ("change", "path", "value"),
    [
        ("server.slots=8", ("server", "slots"), 8),
        (" server . slots = 8 ", ("server", "slots"), 8),
        ("workload.output.cv=0.5", ("workload", "output", "cv"), 0.5),
        ("title=another title", ("title",), "another title"),
        ('title="a = b"', ("title",), "a = b"),
        ("grid.server.slots=[4, 8]", ("grid", "server.slots"), [4, 8]),
        ('grid."server.slots"=[4, 8]', ("grid", "server.slots"), [4, 8]),
        ('grid."server.slots".values=[4, 8]', ("grid", "server.slots", "values"), [4, 8]),
        ("server.memory={ budget = '1 GB', kv_per_token = '1 kB' }", ("server", "memory", "budget"), "1 GB"),
    ],
)
def test_a_change_sets_one_value_and_the_source_gives_the_changed_study(change, path, value, read):
    study = read(SMALL + "# a comment\n", changes=[change])
    given = tomllib.loads(study.source)
    for part in path:
        given = given[part]
    assert given == value
    assert "# a comment" in study.source
    again = read(study.source)
    assert plain(again) == plain(study)


def test_changes_reach_into_lists_and_keep_comments(read):
    study = read(FIVE_X, changes=["workload.output.parts.0.high=50", "claims.1.at_least=4"], seed=5, replicates=20)
    assert settings_of(study)[0].workload.output.parts[0].high == 50
    assert (study.claims[1].at_least, study.seed, study.replicates) == (4, 5, 20)
    assert [line for line in FIVE_X.splitlines() if line.startswith("#")] == [
        line for line in study.source.splitlines() if line.startswith("#")
    ]
    assert "# in 95 % of workloads" in study.source
    assert plain(read(study.source)) == plain(study)


def test_a_change_is_made_in_a_file_without_headers_too(read):
    text = (
        'title = "x" # a comment\nserver.slots = 4\nworkload.requests = 5\n'
        "workload.output = { distribution = 'constant', value = 3 }\n"
    )
    study = read(text, changes=["server.memory.budget='1 GB'", "server.memory.kv_per_token='1 B'"])
    assert settings_of(study)[0].server.memory.budget == "1 GB"
    assert plain(read(study.source)) == plain(study)


def test_the_source_of_an_unchanged_study_is_its_text(read):
    assert read(FIVE_X).source == FIVE_X


def test_replicates_given_replace_a_precision_and_say_so(read):
    text = changed("replicates = 10", 'precision = { metric = "multiple", half_width = 0.1 }')
    study = read(text, replicates=50)
    assert (study.replicates, study.precision) == (50, None)
    assert study.notes[0].endswith("x.toml: 50 replicates of each cell, instead of the precision asked for")
    assert plain(read(study.source)) == plain(study)


@pytest.mark.parametrize(
    ("change", "line"),
    [
        ("server.slot=8", 'x.toml: server.slot: unknown key; did you mean "slots"?'),
        ("server.slots=", "--set server.slots=: the value is neither TOML nor a bare word"),
        ("server.slots=[8", "--set server.slots=[8: the value is neither TOML nor a bare word"),
        (
            "server.slots=8\nstep_ms = 4",
            "--set server.slots=8\\nstep_ms = 4: the value is neither TOML nor a bare word",
        ),
        ("server.slots", "--set server.slots: write it as PATH=VALUE, such as server.slots=8"),
        ("replicates.x=8", "--set replicates.x: replicates is no table"),
        ("workload.output.cv=-1", "x.toml: workload.output.cv: must be above 0, got -1"),
    ],
)
def test_a_change_that_cannot_be_made_is_refused(change, line, faults):
    assert faults(SMALL, changes=[change]) == [line]


def test_a_change_of_what_the_grid_sets_is_refused_since_it_would_do_nothing(faults):
    assert faults(FIVE_X, changes=["server.slots=8"]) == [
        'x.toml: --set server.slots: has no effect, the grid sets it; change grid."server.slots" instead'
    ]


def test_a_study_survives_pickling(read):
    study = read(FIVE_X)
    again = pickle.loads(pickle.dumps(study))
    assert again == study
    assert settings_of(again) == settings_of(study)


def test_plain_data_gives_the_study_back_through_its_own_toml():
    document = tomllib.loads(FIVE_X)
    study = parse_study(document, "five_x")
    assert tomllib.loads(study.source) == document
    assert json.loads(json.dumps(plain(study))) == plain(study)


def test_text_of_any_kind_survives_in_a_written_study():
    title = 'quotes " and \\ and \x7f\x00\n\t é 😀'
    document = {**tomllib.loads(SMALL), "title": title}
    assert tomllib.loads(parse_study(document, "x").source)["title"] == title


def test_rows_depend_on_neither_words_nor_claims_nor_replicates(read):
    study = read(FIVE_X)
    others = [
        changed("10_000\n", "20_000\n", FIVE_X),
        changed("Is it really", "Really", FIVE_X),
        FIVE_X[: FIVE_X.index("[[claims]]")],
    ]
    assert all(study_hash_parts(read(text)) == study_hash_parts(study) for text in others)
    assert study_hash_parts(read(FIVE_X, seed=38)) != study_hash_parts(study)
    assert study_hash_parts(read(FIVE_X, changes=["workload.requests=201"])) != study_hash_parts(study)


def test_a_setting_takes_values_that_the_grid_does_not_have(read):
    study = read(FIVE_X)
    assert setting(study, [(7,)]).server.slots == 7
    with pytest.raises(StudyError, match=r'grid\."server\.slots": 0: must be a whole number'):
        setting(study, [(0,)])


def test_every_field_of_a_study_file_says_what_it_means():
    schema = StudyFile.model_json_schema()
    tables = [schema, *schema["$defs"].values()]
    fields = [
        field for table in tables for name, field in table.get("properties", {}).items() if name != "distribution"
    ]
    assert all(field.get("description") for field in fields)


@pytest.mark.parametrize("path", sorted(STUDIES.glob("*.toml")), ids=lambda path: path.stem)
def test_every_study_of_the_project_opens_with_its_question_and_has_claims(path):
    study = read_study(path)
    head = next(line for line in study.source.splitlines() if not line.startswith("#:schema"))
    assert head.startswith("# ")
    assert head.endswith("?")
    assert study.question
    assert study.claims


WORDS = [
    "[",
    "]",
    "{",
    "}",
    "=",
    ",",
    ".",
    '"',
    "'",
    "\n",
    "-1",
    "0",
    "nan",
    "1e400",
    "true",
    "2020-01-01",
    "[[claims]]",
]
WORDS += [
    "parts",
    "slots",
    '"memory"',
    "[grid]",
    "[[grid.paired]]",
    "values",
    "0x" + "f" * 20,
    "\u202e",
    "\x00",
    "[[claims]]",
]
TOKENS = re.findall(r"[\w.]+|\s+|.", FIVE_X[FIVE_X.index("title") :])


@given(
    st.lists(
        st.tuples(st.integers(0, len(TOKENS) - 1), st.integers(0, 2), st.sampled_from(WORDS + TOKENS)),
        min_size=1,
        max_size=3,
    )
)
@settings(deadline=None, derandomize=True, max_examples=300)
def test_a_study_file_of_any_text_is_read_or_refused(tmp_path_factory, edits):
    tokens = list(TOKENS)
    for place, keep, word in edits:
        tokens[place] = [word, tokens[place] + word, ""][keep]
    path = tmp_path_factory.getbasetemp() / "edited.toml"
    path.write_text("".join(tokens))
    lines = ()
    try:
        read_study(path)
    except StudyError as refused:
        lines = refused.lines
    assert all(line.startswith(f"{path}: ") and line.isprintable() for line in lines)


@pytest.mark.parametrize(
    ("chart", "fault"),
    [
        (
            {"kind": "lines", "metric": ["static_steps", "multiple"]},
            "metrics of one chart have one unit, got static_steps",
        ),
        ({"kind": "heatmap", "metric": ["static_steps"]}, 'a list of metrics goes with kind = "lines" only'),
        (
            {"kind": "lines", "metric": ["static_steps", "static_steps"]},
            "must be a metric, or a list of metrics, each once",
        ),
        ({"kind": "lines", "metric": []}, "must be a metric, or a list of metrics, each once"),
        ({"kind": "lines", "metric": ["static_steps", "static_stops"]}, "charts.0.metric.1: must be one of"),
        (
            {"kind": "lines", "metric": ["static_s", "continuous_s"]},
            "charts.0.metric.0: needs a step time",
        ),
    ],
    ids=str,
)
def test_a_chart_of_several_metrics_is_refused_unless_they_share_an_axis(chart, fault):
    document = {
        "workload": {"requests": 20, "output": {"distribution": "geometric", "mean": 9}},
        "server": {"slots": 4},
        "charts": [chart],
    }
    with pytest.raises(StudyError) as refused:
        parse_study(document, "x")
    assert fault in str(refused.value)


def test_every_metric_of_a_chart_is_kept():
    document = {
        "workload": {"requests": 20, "output": {"distribution": "geometric", "mean": 9}},
        "server": {"slots": 4, "step_ms": 20},
        "charts": [{"kind": "lines", "metric": ["static_s", "continuous_s"]}],
    }
    study = parse_study(document, "x")
    assert set(study.measure) >= {"static_s", "continuous_s"}
    assert plain(study)["charts"][0]["metric"] == ["static_s", "continuous_s"]
