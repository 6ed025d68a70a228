"""What a server of a study comes to for the kernel: its rules in numbers, or why no request ever fits in its memory."""

from sweep.model.rules import NO_LIMIT, Rules
from sweep.study.schema import Setting, WorkloadSpec, longest, shortest, slots_of
from sweep.study.server_cache import DEFAULT_BUDGET, KvSpec

__all__ = ["Rules", "rules_of", "why_none_fits"]


def rules_of(setting: Setting) -> Rules:
    """The rules of a server that has slots, with what is left out filled in."""
    server = setting.server
    kv = server.kv or KvSpec(policy="slots")
    slots = slots_of(server)
    cache = NO_LIMIT if kv.policy == "slots" else _cache_tokens(setting, kv)
    return Rules(
        kind=kv.policy,
        reserve=kv.reserve,
        slots=slots,
        static_slots=server.static_slots or slots,
        block_size=kv.block_size,
        blocks=NO_LIMIT if kv.policy == "slots" else cache // kv.block_size,
        cache_tokens=cache // kv.block_size * kv.block_size if kv.policy == "paged" else cache,
        static_cache_tokens=cache if server.static_slots is None else NO_LIMIT,
        token_budget=kv.token_budget or max(DEFAULT_BUDGET, slots),
        prefix_caching=kv.prefix_caching,
        chunked_prefill=kv.chunked_prefill,
        refill_delay=server.refill_delay,
        most_tokens=server.context or _prompts(setting.workload)[1] + longest(setting.workload.output),
        most_output=longest(setting.workload.output),
        context=server.context,
    )


def why_none_fits(setting: Setting) -> str | None:
    """Why no request ever fits in the cache of a server that has slots, None if some do."""
    server, workload = setting.server, setting.workload
    if server.kv is None or server.kv.policy == "slots":
        return None
    rules = rules_of(setting)
    least = _prompts(workload)[0] + max(1, shortest(workload.output)) - 1
    if rules.kind == "reserve" and rules.reserve == "maximum":
        least = max(least, rules.most_tokens)
    if least > rules.cache_tokens:
        return f"a request takes at least {least:,} tokens, the cache holds {rules.cache_tokens:,}"
    return None


def _cache_tokens(setting: Setting, kv: KvSpec) -> int:
    """Tokens that the cache holds."""
    if kv.tokens is not None:
        return kv.tokens
    if kv.blocks is not None:
        return kv.blocks * kv.block_size
    assert setting.server.memory is not None
    return setting.server.memory.requests(kv.block_size) * kv.block_size


def _prompts(workload: WorkloadSpec) -> tuple[int, int]:
    """The shortest and the longest prompt there can be, with the prefix."""
    prefix = workload.shared_prefix.tokens if workload.shared_prefix is not None else 0
    if workload.trace is not None:
        prompts = workload.trace.lengths("prompt")
        return prefix + max(1, shortest(prompts)), prefix + max(1, longest(prompts))
    if workload.prompt is None:
        return prefix + 1, prefix + 1
    return prefix + shortest(workload.prompt), prefix + longest(workload.prompt)
