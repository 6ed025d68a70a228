"""[server.kv] of a study, and the prefixes that prompts share: what the cache holds, and how a server fills it.

Names and combinations are checked here; what a server makes of them is in `model.policies` and `model.server`.
"""

from typing import Annotated, Self

from pydantic import Field, model_validator

from sweep.model.rules import Kind, Reserve
from sweep.study.strict import Strict

MOST_TOKENS = 2**40  # of a cache, and of a step
MOST_PREFIX = 10_000_000
DEFAULT_BUDGET = 2048  # tokens of a step, or the slots where those are more


class PrefixSpec(Strict):
    """Text that prompts begin with: the same in all requests of a group."""

    tokens: Annotated[int, Field(ge=0, le=MOST_PREFIX)]
    """Tokens in front of each prompt."""
    groups: Annotated[int, Field(ge=1, le=1_000_000)] = 1
    """Different prefixes; each request is of one of them, all equally likely."""


class KvSpec(Strict):
    """The KV cache: how much it holds and which part of it a request takes."""

    policy: Kind = "paged"
    """How it is filled: "paged", in blocks as text fills them; "reserve", with a contiguous piece for each request; or
    "slots": it has no limit."""
    reserve: Reserve = "maximum"
    """The piece of a request under "reserve". "maximum": `context`, or the longest request there can be;
    "power_of_two": its prompt and the next power of two of its output; "oracle": exactly what it will hold; "asked":
    its prompt and its own output."""
    block_size: Annotated[int, Field(ge=1, le=2**24)] = 16
    """Tokens in a block."""
    blocks: Annotated[int, Field(ge=1, le=MOST_TOKENS)] | None = None
    """Blocks there are; left out: `tokens`, or as many as fit in [server.memory]."""
    tokens: Annotated[int, Field(ge=1, le=MOST_TOKENS)] | None = None
    """Tokens that the cache holds, in place of `blocks`."""
    prefix_caching: bool = False
    """Whether full blocks are found again by the text they hold."""
    token_budget: Annotated[int, Field(ge=1, le=MOST_TOKENS)] | None = None
    """Tokens that a step computes at most, at least the slots; left out: 2,048, or the slots where those are more."""
    chunked_prefill: bool = True
    """Whether a prompt may be spread over steps; if not, it waits for a step with room for all of it."""

    @model_validator(mode="after")
    def _adds_up(self) -> Self:
        if self.blocks is not None and self.tokens is not None:
            raise ValueError("blocks and tokens are both given; keep one of them")
        if self.policy == "reserve" and self.prefix_caching:
            raise ValueError('prefix_caching needs policy = "paged" or "slots": contiguous pieces are not shared')
        return self

    @property
    def needs_memory(self) -> bool:
        """Whether nothing here says how much the cache holds, and something must."""
        return self.policy != "slots" and self.blocks is None and self.tokens is None
