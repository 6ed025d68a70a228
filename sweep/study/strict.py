"""What the tables of a study file share: unknown keys and loose types are refused, and bytes are text with a unit.

Left out: the tables themselves, which are in `schema` and `server_memory`.
"""

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, PlainValidator
from pydantic_core import PydanticCustomError

from sweep.units import parse_bytes

LARGEST_INTEGER = 2**63 - 1


class Strict(BaseModel):
    """A table of a study file: unknown keys, quoted numbers, booleans for numbers, nan and inf are refused."""

    model_config = ConfigDict(
        strict=True, frozen=True, extra="forbid", allow_inf_nan=False, use_attribute_docstrings=True
    )


def _bytes_text(value: Any) -> str:
    """The text as given, when it is a quantity of bytes that is at least one and fits 64 bits."""
    return _quantity(value, least=1)


def _bytes_or_none_text(value: Any) -> str:
    """The text as given, when it is a quantity of bytes, possibly 0, that fits 64 bits."""
    return _quantity(value, least=0)


def _quantity(value: Any, least: int) -> str:
    if not isinstance(value, str):
        raise PydanticCustomError("bytes", 'must be text with a unit, such as "64 GiB"')
    try:
        count = parse_bytes(value)  # its InputError, a ValueError, becomes the fault
    except OverflowError:
        count = LARGEST_INTEGER + 1
    if not least <= count <= LARGEST_INTEGER:
        raise PydanticCustomError("bytes", f"must be at least {least} B and less than 2^63 B")
    return value


Bytes = Annotated[str, PlainValidator(_bytes_text, json_schema_input_type=str)]
BytesOrNone = Annotated[str, PlainValidator(_bytes_or_none_text, json_schema_input_type=str)]
