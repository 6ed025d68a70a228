import pytest

from sweep.errors import InputError
from sweep.units import format_bytes, parse_bytes, parse_seconds


def test_decimal_and_binary_units_differ():
    assert parse_bytes("80 GB") == 80 * 10**9
    assert parse_bytes("80 GiB") == 80 * 2**30
    assert parse_bytes("1.5kB") == 1500
    assert parse_bytes(" 512 KiB ") == 2**19


def test_seconds_come_in_every_unit():
    assert parse_seconds("20 ms") == pytest.approx(0.02)
    assert parse_seconds("2 min") == 120


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("64", 'the unit is missing in "64"; use one of B, kB'),
        ("64 gib", 'unit "gib" is unknown'),
        ("-1 GiB", "expected a number with a unit"),
        ("nan GiB", "expected a number with a unit"),
        ("1e999 B", "expected a number with a unit"),
        ("1e300 TiB", "more than 8 EiB"),
        ("", "expected a number with a unit"),
    ],
)
def test_a_quantity_without_a_unit_or_sense_is_refused_in_one_line(text, says):
    with pytest.raises(InputError, match=r"^[^\n]*$") as error:
        parse_bytes(text)
    assert says in str(error.value)


@pytest.mark.parametrize(
    ("count", "text"), [(0, "0 B"), (1023, "1023 B"), (2**29, "512 MiB"), (70_272, "68.62 KiB"), (2**40, "1 TiB")]
)
def test_bytes_are_shown_in_the_largest_unit_that_fits(count, text):
    assert format_bytes(count) == text
