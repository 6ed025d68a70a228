import json
import random
import re
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sweep import lab
from sweep.commands import lab_text
from sweep.errors import InputError

GOLDEN = json.loads((Path(__file__).parent / "golden" / "lab.json").read_text())
SEEDS = [0, 37, 3712, 5917, 9293, 2**63 - 1]  # of 0 to 9999: the smallest and largest multiple, and the fewest long
ROUNDS_UP_TO_5 = 88
NUMBER = re.compile(r"\d+(?:,\d{3})+(?!\d)|\d+(?:\.\d+)?")


def leaves(value: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[tuple[str | int, ...], Any]]:
    """Each number and text in nested dicts and lists, with the way to it."""
    if not isinstance(value, dict | list):
        yield path, value
        return
    for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
        yield from leaves(inner, (*path, key))


def numbers(text: str) -> set[str]:
    """The numbers in a text, without thousands separators."""
    return {found.replace(",", "") for found in NUMBER.findall(text)}


def drawn(seed: int) -> list[int]:
    rng = random.Random(seed)
    return [rng.randint(400, 700) if rng.random() < 0.10 else rng.randint(8, 40) for _ in range(200)]


def plain(seed: int, predictions: tuple[float, float, float, float] | None = None) -> str:
    """The lesson with its line breaks taken out."""
    return " ".join(lab_text.text(seed, predictions, 80).split())


def teach(monkeypatch: pytest.MonkeyPatch, lengths: list[int]) -> str:
    """The lesson on a workload that no seed at hand draws."""
    monkeypatch.setattr(lab, "lab_lengths", lambda *_: np.array([lengths]))
    return plain(0)


@pytest.fixture(scope="module")
def figures() -> dict[str, Any]:
    return lab.figures(37)


@pytest.mark.parametrize(
    ("path", "expected"), [pytest.param(*leaf, id=".".join(map(str, leaf[0]))) for leaf in leaves(GOLDEN)]
)
def test_every_figure_of_the_lab_agrees_to_the_digit(
    figures: dict[str, Any], path: tuple[str | int, ...], expected: Any
) -> None:
    found: Any = figures
    for key in path:
        found = found[key]
    assert type(found) is type(expected)
    if isinstance(expected, str) and " " in expected:  # a sentence: ours has other words around the same numbers
        assert {float(number) for number in numbers(found)} == {float(number) for number in numbers(expected)}
    else:
        assert found == expected


def test_the_figures_have_the_entries_of_the_lab_and_no_others(figures: dict[str, Any]) -> None:
    assert [path for path, _ in leaves(figures)] == [path for path, _ in leaves(GOLDEN)]
    assert json.loads(json.dumps(figures)) == figures


def test_the_first_five_seeds_have_the_figures_that_are_listed_for_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lab, "OTHER_SEEDS", 5)  # the sums over 10,000 are not looked at here
    for seed, (static, continuous, tokens) in enumerate(GOLDEN["other_seeds"]["first_five"]):
        figures = lab.figures(seed)
        assert (figures["static"]["steps"], figures["continuous"]["steps"]) == (static, continuous)
        assert figures["workload"]["output_tokens"] == tokens


def test_the_count_of_seeds_is_named_for_the_seed_it_is_measured_by() -> None:
    assert lab.figures(3712)["other_seeds"]["seeds_with_multiple_at_least_that_of_3712"] == 10_000
    assert lab.figures(5917)["other_seeds"]["seeds_with_multiple_at_least_that_of_5917"] == 1


def test_the_lesson_shows_every_figure_but_those_of_the_other_seeds() -> None:
    shown = numbers(plain(37))
    lesson = {key: part for key, part in GOLDEN.items() if key != "other_seeds"}
    for path, value in leaves(lesson):
        assert numbers(str(value)) <= shown, path
    for printed in ("115.9", "23.0", "1.7", "8.7", "14.3%", "72.3%", "5797/1148 = 5.0", "multiple of 1.00"):
        assert printed in plain(37)


def test_the_lesson_sends_to_the_study_of_other_seeds_and_does_not_give_its_results_away() -> None:
    assert "sweep run studies/lab_seeds.toml" in plain(37)
    assert not numbers(plain(37)) & {"2318", "2004", "4.67", "4.7"}


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("predictions", [None, (64, 16, 5, 14.3), (1e308, 1e-308, 12345.678, 0.001)])
def test_the_lesson_is_ascii_in_at_most_80_columns(
    seed: int, predictions: tuple[float, float, float, float] | None
) -> None:
    lesson = lab_text.text(seed, predictions, 200)
    assert lesson.isascii()
    assert lesson.replace("\n", "").isprintable()
    assert max(map(len, lesson.splitlines())) <= 80
    assert not any(line.endswith(" ") for line in lesson.splitlines())


def test_prose_keeps_to_a_narrow_terminal() -> None:
    prose = [line for line in lab_text.text(37, None, 50).splitlines() if not line.startswith(" ")]
    assert max(map(len, prose)) <= 50
    assert " ".join(lab_text.text(37, None, 50).split()) == plain(37)


@pytest.mark.parametrize("seed", SEEDS)
def test_what_it_means_is_told_from_the_workload_of_the_seed(seed: int) -> None:
    lengths, lesson = drawn(seed), plain(seed)
    longest = [max(lengths[first : first + 16]) for first in range(0, 200, 16)]
    waiting = [steps for steps in longest if steps >= 400]
    idle = 1 - sum(lengths) / (16 * sum(longest))
    assert f"({sum(length >= 400 for length in lengths)} of 200)" in lesson
    assert f"but {len(waiting)} of the 13 groups of static batching have a long member" in lesson
    assert f"{sum(waiting):,} of the {sum(longest):,} steps" in lesson
    assert f"{idle:.1%} of all slot-steps are idle" in lesson
    assert f"fewer than {max(-(-sum(lengths) // 16), max(lengths)):,} steps" in lesson


@pytest.mark.parametrize("seed", SEEDS)
def test_under_continuous_batching_slots_idle_only_once_the_queue_is_empty(seed: int) -> None:
    waiting, running, steps, idle = deque(drawn(seed)), [], 0, 0
    while waiting or running:
        while waiting and len(running) < 16:
            running.append(waiting.popleft())
        assert not waiting or len(running) == 16
        idle += 16 - len(running)
        steps += 1
        running = [left - 1 for left in running if left > 1]
    assert f"Its idle slot-steps, {idle / (16 * steps):.1%} of them" in plain(seed)


def test_a_seed_reaches_5x_only_if_it_does_so_without_rounding() -> None:
    told = {seed: plain(seed) for seed in (37, 3712, 5917)}
    assert [seed for seed, lesson in told.items() if "so this seed reaches 5x" in lesson] == [37, 5917]
    assert "multiple is 2.4653, so this seed does not reach 5x" in told[3712]


def test_a_multiple_that_is_5_only_when_rounded_does_not_reach_5x() -> None:
    lesson = plain(ROUNDS_UP_TO_5)
    assert "= 5.0:" in lesson
    assert re.search(r"multiple is 4\.99\d+, so this seed does not reach 5x", lesson)


def test_a_workload_without_long_requests_is_not_said_to_wait_for_any(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(1)
    lesson = teach(monkeypatch, [rng.randint(8, 39) for _ in range(199)] + [40])
    assert "200 short and 0 long requests" in lesson
    assert "none of the 13 groups waits more than 40 steps" in lesson
    assert "does not reach 5x" in lesson
    assert "have a long member" not in lesson


def test_one_long_request_is_told_in_the_singular(monkeypatch: pytest.MonkeyPatch) -> None:
    lesson = teach(monkeypatch, [8] * 199 + [700])
    assert "0.5% of the requests is long (1 of 200), but 1 of the 13 groups of static batching has a long" in lesson
    assert "fewer than 700 steps, which is the length of the longest request" in lesson


def test_long_requests_of_one_length_leave_nothing_to_gain(monkeypatch: pytest.MonkeyPatch) -> None:
    lesson = teach(monkeypatch, [700] * 200)
    assert "13 of the 13 groups" in lesson
    assert "multiple is 1.0000" in lesson


def test_predictions_are_scored_beside_the_actual_values() -> None:
    lines = {line.split()[0]: line for line in lab_text.text(37, (64, 17, 8, 1e-9), 80).splitlines() if line.strip()}
    assert re.search(r" 64 +64\.0 +spot on$", lines["P1"])
    assert re.search(r" 17 +16\.0 +within 10% \(\+6\.2%\)$", lines["P2"])
    assert re.search(r" 8 +5\.0 +1\.58x too high$", lines["P3"])
    assert re.search(r" 1e-09 +14\.3 +over 1000x too low$", lines["P4"])
    assert "2 of 4 within 10%." in lines["2"]


def test_a_prediction_as_printed_is_spot_on_and_10_percent_off_is_still_close() -> None:
    lesson = plain(37, (70.4, 14.4, 5.0, 14.3))
    assert "within 10% (+10.0%)" in lesson
    assert "within 10% (-10.0%)" in lesson
    assert lesson.count("spot on") == 2
    assert "4 of 4 within 10%." in lesson


def test_unusable_seeds_and_predictions_are_refused_with_a_line_each() -> None:
    with pytest.raises(InputError) as caught:
        lab_text.text(-1, (64, float("nan"), 0, float("inf")), 80)
    assert caught.value.lines == (
        "--seed: must be an integer from 0 to 2^63 - 1, got -1",
        "--predict: P2 must be a number above 0, got nan",
        "--predict: P3 must be a number above 0, got 0",
        "--predict: P4 must be a number above 0, got inf",
    )
    for seed in (2**63, True, 3.0):
        with pytest.raises(InputError, match="seed: must be an integer"):
            lab.figures(seed)  # type: ignore[arg-type]


def test_the_drills_follow_from_a_step_loop() -> None:
    drills = GOLDEN["drills"]
    waiting, running, step, emitted = deque([*drills["D3"]["lengths"], *[20] * 1000]), [], 0, 0
    passed = -len(drills["D3"]["lengths"])  # those of the batch itself do not count
    while step < drills["D3"]["static_steps"]:
        while len(running) < drills["D3"]["slots"]:
            running.append(waiting.popleft())
        step, emitted = step + 1, emitted + len(running)
        running = [left - 1 for left in running]
        passed += running.count(0)
        running = [left for left in running if left]
    assert emitted == drills["D3"]["slot_steps"]
    assert f"By step {step}, when the long one ends, {passed} more requests of 20 tokens" in plain(37)
