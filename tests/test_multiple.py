"""`sweep multiple` from the outside: what it prints for a distribution, a table and a file, and its faults."""

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from reference import continuous_finishes, static_finishes

from sweep.commands.multiple import lengths_in, text
from sweep.errors import InputError
from sweep.model.lengths import integer_lengths
from sweep.model.tails import Lognormal
from sweep.model.theory import exact_static_steps, limit_multiple

MIXTURE = (
    '{ distribution = "mixture", parts = [{ weight = 0.9, distribution = "uniform", low = 8, high = 40 }, '
    '{ weight = 0.1, distribution = "uniform", low = 400, high = 700 }] }'
)


def sweep_multiple(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "sweep", "multiple", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def rows(printed: str, head: str = "slots") -> list[list[str]]:
    """The entries of each table's rows, without the header; tables end at an empty line."""
    table = next(part for part in printed.split("\n\n") if part.lstrip().startswith(head))
    return [re.split(r" {2,}", line.strip()) for line in table.splitlines()[1:]]


def number(entry: str) -> float:
    return float(entry.split()[0].replace(",", ""))


def test_a_distribution_in_a_few_words_gives_intervals_and_theory() -> None:
    done = sweep_multiple("--output", "lognormal mean=100 cv=1", "--slots", "4,16,64")
    assert (done.returncode, done.stderr) == (0, "")
    assert "lognormal mean=100 cv=1: mean 100 tokens, cv 0.995; 200 requests, 10,000 workloads" in done.stdout
    lengths = integer_lengths(Lognormal(mean=100, cv=1))
    found = rows(done.stdout)
    assert [row[0] for row in found] == ["4", "16", "64"]
    for slots, static, exact, _, multiple, _, limit in found:
        assert number(exact) == pytest.approx(exact_static_steps(lengths, 200, int(slots)), abs=0.5)
        assert number(static) == pytest.approx(number(exact), rel=0.01)  # 10,000 workloads: some 0.2 %
        assert number(limit) == pytest.approx(limit_multiple(lengths, int(slots)), abs=0.0005)
        mean, low, high = (float(part) for part in re.findall(r"[\d.]+", multiple))
        assert 1 < low <= mean <= high < number(limit)


def test_the_lesson_behind_the_five_is_found_without_a_study_file() -> None:
    done = sweep_multiple("--output", MIXTURE, "--slots", "16", "--seed", "37")
    assert done.stdout.startswith("mixture: mean 76.6 tokens, cv 2.09; 200 requests, 10,000 workloads")
    assert rows(done.stdout)[0][4].startswith("4.679 (4.670 to 4.688)")  # as in studies/five_x.toml


def test_a_file_of_lengths_is_also_served_in_its_own_order(tmp_path: Path) -> None:
    lengths = [40, 3, 25, 5, 60, 4, 0, 7]
    path = tmp_path / "lengths.txt"
    path.write_text("40, 3 25\n5\n60,4\n0 7\n", encoding="utf-8")
    done = sweep_multiple("--output", str(path), "--slots", "2,3", "--requests", "50", "--replicates", "200")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("lengths.txt: mean 18 tokens")
    drawn, own = done.stdout.split("The 8 requests of the file in their own order")
    assert [row[0] for row in rows(drawn)] == ["2", "3"]
    for slots, static, continuous, multiple in rows(own):
        expected = static_finishes(lengths, int(slots))[0], continuous_finishes(lengths, int(slots))[0]
        assert (int(static), int(continuous)) == expected
        assert float(multiple) == pytest.approx(expected[0] / expected[1], abs=0.0005)


def test_lengths_that_are_all_0_have_no_multiple(tmp_path: Path) -> None:
    path = tmp_path / "zeros.txt"
    path.write_text("0 0 0", encoding="utf-8")
    done = sweep_multiple("--output", str(path), "--slots", "2", "--replicates", "10")
    assert done.returncode == 0
    assert done.stdout.count("undefined") == 2


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (("--output", "lognorml mean=1 cv=1"), 'got "lognorml"; did you mean "lognormal"?'),
        (("--output", "absent.txt"), '--output: no file "absent.txt", and no distribution such as'),
        (("--output", "geometric mean=9", "--slots", "4,,3"), '--slots: "4,,3" is not a list of whole numbers'),
    ],
)
def test_a_fault_is_one_line_on_stderr_and_status_2(arguments: tuple[str, ...], line: str) -> None:
    done = sweep_multiple(*arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert line in done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("output", "slots", "line"),
    [
        ("lognormal mean=100", [4], "--output: cv: missing"),
        ("lognormal mean=100 cv=-1", [4], "--output: cv: must be above 0, got -1"),
        ("uniform low=5 high=1", [4], "--output: low 5 is above high 1"),
        ("uniform low=5 hgh=9 high=9", [4], '--output: hgh: unknown key; did you mean "high"?'),
        ("uniform low=true high=9", [4], "--output: low: must be a whole number, got true"),
        ("uniform 5 9", [4], '--output: "uniform 5 9" is neither a name and key=value pairs, nor a table, nor a file'),
        ('{ distribution = "uniform", low = 5 }', [4], "--output: high: missing"),
        ("{ distribution = ", [4], "is neither a name and key=value pairs, nor a table, nor a file"),
        ("", [4], '--output: no file "", and no distribution such as "lognormal mean=100 cv=1"'),
        ("geometric mean=9", [0], "--slots: 0: must be a whole number from 1 to 1,000,000"),
        ("geometric mean=9", [4, 4], "--slots: value 4 stands twice"),
    ],
)
def test_a_fault_names_its_option_and_its_key(output: str, slots: list[int], line: str) -> None:
    with pytest.raises(InputError) as error:
        text(output, slots, requests=20, replicates=10, seed=0)
    assert any(line in fault for fault in error.value.lines)


def test_too_many_requests_are_a_fault_of_their_option() -> None:
    with pytest.raises(InputError) as error:
        text("geometric mean=9", [4], requests=10**9, replicates=10, seed=0)
    assert error.value.lines == ("--requests: must be at most 100,000,000, got 1,000,000,000",)


def test_a_value_that_is_a_word_needs_no_quotes() -> None:
    printed = text("uniform low=1 high=9 max_tokens=5 beyond=redraw", [4], requests=20, replicates=10, seed=0)
    assert "mean 3.00 tokens" in printed or "mean 3 tokens" in printed


@pytest.mark.parametrize(
    ("content", "line"),
    [
        (b"", "is empty; whole numbers of tokens are needed"),
        (b"40\n3.5\n", 'entry 2 is "3.5", not a whole number of tokens'),
        (b"40 -3", 'entry 2 is "-3", not a whole number of tokens'),
        (b"output_tokens\n40\n", 'entry 1 is "output_tokens", not a whole number of tokens'),
        (b"40 99999999999", "entry 2 is 99999999999; no request is longer than 16,777,216 tokens"),
        (b"\xff\xfe4\x000\x00", "cannot be read as text"),
    ],
)
def test_a_file_that_holds_no_lengths_is_refused_with_the_entry_at_fault(
    content: bytes, line: str, tmp_path: Path
) -> None:
    path = tmp_path / "lengths.txt"
    path.write_bytes(content)
    with pytest.raises(InputError) as error:
        lengths_in(path)
    assert str(path) in error.value.lines[0]
    assert line in error.value.lines[0]


def test_a_byte_order_mark_before_lengths_is_accepted(tmp_path: Path) -> None:
    path = tmp_path / "lengths.txt"
    path.write_bytes(b"\xef\xbb\xbf40,\r\n3,\r\n")
    assert lengths_in(path) == [40, 3]


def test_the_same_command_prints_the_same_table() -> None:
    printed = [text("geometric mean=50", [2, 8], requests=40, replicates=300, seed=5) for _ in range(2)]
    assert printed[0] == printed[1]
    assert np.isfinite([number(row[4]) for row in rows(printed[0])]).all()
