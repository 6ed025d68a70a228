"""How a server admits requests and what it has room for: the rules of the server model as numbers.

The kernels that follow them are in `server` and `static`; what is set aside for a request is in `policies`.
"""

from typing import Literal, NamedTuple

NO_LIMIT = 2**50  # blocks, or tokens, of a server whose memory does not matter
Kind = Literal["slots", "reserve", "paged"]
Reserve = Literal["maximum", "power_of_two", "oracle", "asked"]


class Rules(NamedTuple):
    """A server. Under static batching it has the same memory, unless `static_cache_tokens` says otherwise."""

    kind: Kind
    reserve: Reserve  # how much, where `kind` is "reserve"
    slots: int
    static_slots: int  # places in a group of static batching
    block_size: int
    blocks: int  # NO_LIMIT for "slots"
    cache_tokens: int  # all that the cache holds; NO_LIMIT likewise
    static_cache_tokens: int  # what it holds for static batching
    token_budget: int
    prefix_caching: bool
    chunked_prefill: bool
    refill_delay: int
    most_tokens: int  # prompt and output of a request, what "maximum" reserves
    most_output: int  # what static batching reserves beside the prompt
    context: int | None  # what it reserves in place of both
