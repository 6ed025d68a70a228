"""The server, told as literally as possible: requests and blocks as objects, queues as deques, one step at a time.

It is written from the rules and shares nothing with the kernel, which must give the same run. Slow on purpose.
"""

from collections import deque
from dataclasses import dataclass, field


@dataclass(eq=False)
class Block:
    name: int | None = None
    holders: int = 0


@dataclass(eq=False)
class Request:
    number: int
    prompt: int
    output: int
    arrival: int
    prefix: int
    group: int
    length: int = 0  # tokens known
    done: int = 0  # tokens computed
    blocks: list[Block] = field(default_factory=list)
    first: int = 0
    last: int = 0
    preemptions: int = 0
    names: list[int] = field(default_factory=list)

    def token(self, position):
        return ("group", self.group, position) if position < self.prefix else ("own", self.number, position)


class Pool:
    """Free blocks from front to back, and the blocks of each name in the order of their naming."""

    def __init__(self, blocks, block_size, caching):
        self.usable, self.block_size, self.caching = blocks, block_size, caching
        self.free = deque(Block() for _ in range(blocks))
        self.named = {}
        self.texts = {}  # (name of all before, tokens of the block) -> name

    def name(self, request, j):
        """A number for all text from the start to the end of block j."""
        while len(request.names) <= j:
            first = len(request.names) * self.block_size
            tokens = tuple(request.token(first + k) for k in range(self.block_size))
            before = request.names[-1] if request.names else None
            request.names.append(self.texts.setdefault((before, tokens), len(self.texts)))
        return request.names[j]

    def needed(self, tokens):
        return -(-tokens // self.block_size)

    def found(self, request):
        blocks = []
        while self.caching and len(blocks) < (request.length - 1) // self.block_size:
            same = self.named.get(self.name(request, len(blocks)))
            if not same:
                break
            blocks.append(same[0])
        return blocks

    def hold(self, request, blocks):
        for block in blocks:
            if block.holders == 0:
                self.free.remove(block)
            block.holders += 1
        request.blocks = list(blocks)

    def grow(self, request, new):
        while len(request.blocks) < self.needed(request.done + new):
            block = self.free.popleft()
            if block.name is not None:
                self.named[block.name].remove(block)
                block.name = None
            block.holders = 1
            request.blocks.append(block)
        full = (request.done + new) // self.block_size
        for j in range(request.done // self.block_size, full if self.caching else 0):
            request.blocks[j].name = self.name(request, j)
            self.named.setdefault(request.blocks[j].name, []).append(request.blocks[j])

    def let_go(self, request):
        for block in reversed(request.blocks):
            block.holders -= 1
            if block.holders == 0 and block.name is None:
                self.free.appendleft(block)
            elif block.holders == 0:
                self.free.append(block)
        request.blocks = []


def serve(requests, *, slots, block_size, blocks, token_budget, prefix_caching, chunked_prefill, refill_delay=0):
    """The run as a dict named like the fields of `sweep.model.server.Served`, with everything recorded.

    requests : (prompt, output, arrival, prefix, group) of each.
    """
    everyone = [Request(number, *given, length=given[0]) for number, given in enumerate(requests)]
    pool = Pool(blocks, block_size, prefix_caching)
    fits = [
        r
        for r in everyone
        if pool.needed(r.prompt + r.output - 1) <= blocks
        and (chunked_prefill or r.prompt + r.output - 1 <= token_budget)
    ]
    coming = deque(sorted((r for r in fits if r.output > 0), key=lambda r: (r.arrival, r.number)))
    waiting, running, ghosts = deque(), [], []
    clock = 0
    steps, schedule, admissions, preemptions = [], [], [], []
    hits_first = hits_resumed = recomputed = 0

    while coming or waiting or running:
        if not waiting and not running and not ghosts:
            clock = max(clock, coming[0].arrival)
        while coming and coming[0].arrival <= clock:
            waiting.append(coming.popleft())
        plan = []
        left = token_budget
        victims = []

        for request in running.copy():
            if request in victims:
                break
            new = min(request.length - request.done, left)
            while pool.needed(request.done + new) - len(request.blocks) > len(pool.free) and request in running:
                victim = running.pop()
                victims.append(victim)
                pool.let_go(victim)
                recomputed += victim.done
                victim.done = 0
                victim.preemptions += 1
                preemptions.append([clock + 1, victim.number])
                waiting.appendleft(victim)
            if request in running:
                pool.grow(request, new)
                plan.append((request, new))
                left -= new

        while not victims and waiting and left > 0 and len(running) + len(ghosts) < slots:
            request = waiting[0]
            found = pool.found(request)
            hit = len(found) * block_size
            rest = request.length - hit
            idle = sum(block.holders == 0 for block in found)
            if rest > left and not chunked_prefill:
                break
            if pool.needed(request.length) - len(found) + idle > len(pool.free):
                break
            running.append(waiting.popleft())
            pool.hold(request, found)
            request.done = hit
            pool.grow(request, min(rest, left))
            plan.append((request, min(rest, left)))
            left -= min(rest, left)
            admissions.append([clock + 1, request.number, hit])
            hits_resumed += hit if request.preemptions else 0
            hits_first += 0 if request.preemptions else hit

        if not plan:  # nobody but requests that ended: known now, so they leave before the next plan
            for ghost in ghosts:
                pool.let_go(ghost)
            ghosts = []
            continue

        clock += 1
        held = {id(block): block for request in running + ghosts for block in request.blocks}
        assert all(block.holders > 0 for block in held.values())
        assert len(held) + len(pool.free) == blocks
        planned = {id(request): new for request, new in plan}
        stored = {}  # tokens in each block in use
        for request in running + ghosts:
            computed = request.done + planned.get(id(request), 0)
            for j, block in enumerate(request.blocks):
                stored[id(block)] = min(block_size, computed - j * block_size)
        steps.append((len(plan), sum(new for _, new in plan), len(held), clock, sum(stored.values())))
        schedule.append([[request.number, new] for request, new in plan])

        leaving, ghosts = ghosts, []
        for request in leaving:
            pool.let_go(request)
        for request, new in plan:
            request.done += new
            if request.done < request.length:
                continue
            request.length += 1
            request.first = request.first or clock
            if request.length == request.prompt + request.output:
                request.last = clock
                running.remove(request)
                if refill_delay:
                    ghosts.append(request)
                else:
                    pool.let_go(request)

    batch, tokens, used, step, cached = ([row[k] for row in steps] for k in range(5))
    return {
        "engine_steps": len(steps),
        "makespan_steps": clock,
        "preemptions": len(preemptions),
        "scheduled_tokens": sum(tokens),
        "recomputed_tokens": recomputed,
        "refused": sum(r.output > 0 and r not in fits for r in everyone),
        "max_blocks": max(used, default=0),
        "mean_blocks": sum(used) / len(used) if used else None,
        "max_batch": max(batch, default=0),
        "mean_batch": sum(batch) / len(batch) if batch else None,
        "mean_cached_tokens": sum(cached) / len(cached) if cached else None,
        "prefix_hit_tokens_first": hits_first,
        "prefix_hit_tokens_resumed": hits_resumed,
        "first_token_step": [r.first for r in everyone],
        "last_token_step": [r.last for r in everyone],
        "preemptions_per_request": [r.preemptions for r in everyone],
        "admission_events": admissions,
        "preemption_events": preemptions,
        "trace": {"batch": batch, "tokens": tokens, "blocks": used, "step": step, "cached_tokens": cached},
        "schedule": schedule,
    }


def serve_reserving(requests, reserved, *, slots, tokens, token_budget, chunked_prefill, refill_delay=0):
    """The run of a server that sets aside `reserved` tokens of its cache for each request, as `serve` gives it."""
    everyone = [Request(number, *given, length=given[0]) for number, given in enumerate(requests)]
    fits = [r for r in everyone if reserved[r.number] <= tokens and (chunked_prefill or r.prompt <= token_budget)]
    coming = deque(sorted((r for r in fits if r.output > 0), key=lambda r: (r.arrival, r.number)))
    waiting, running, ghosts = deque(), [], []
    clock, steps = 0, []
    while coming or waiting or running:
        if not waiting and not running and not ghosts:
            clock = max(clock, coming[0].arrival)
        while coming and coming[0].arrival <= clock:
            waiting.append(coming.popleft())
        plan, left = [], token_budget
        for request in running:
            plan.append((request, min(request.length - request.done, left)))
            left -= plan[-1][1]
        while waiting and left > 0 and len(running) + len(ghosts) < slots:
            request = waiting[0]
            if request.prompt > left and not chunked_prefill:
                break
            if sum(reserved[r.number] for r in [*running, *ghosts, request]) > tokens:
                break
            running.append(waiting.popleft())
            plan.append((request, min(request.prompt, left)))
            left -= plan[-1][1]
        if not plan:
            ghosts = []
            continue
        clock += 1
        stored = sum(r.done for r in running + ghosts) + sum(new for _, new in plan)
        aside = sum(reserved[r.number] for r in running + ghosts)
        steps.append((len(plan), sum(new for _, new in plan), aside, clock, stored))
        ghosts = []
        for request, new in plan:
            request.done += new
            if request.done < request.length:
                continue
            request.length += 1
            request.first = request.first or clock
            if request.length == request.prompt + request.output:
                request.last = clock
                running.remove(request)
                ghosts += [request] if refill_delay else []
    names = ("batch", "tokens", "blocks", "step", "cached_tokens")
    return {
        "engine_steps": len(steps),
        "makespan_steps": clock,
        "refused": sum(r.output > 0 and r not in fits for r in everyone),
        "first_token_step": [r.first for r in everyone],
        "last_token_step": [r.last for r in everyone],
        "trace": {name: [row[k] for row in steps] for k, name in enumerate(names)},
    }


def static_steps(prompts, outputs, *, slots, token_budget, capacity, most_output):
    """Steps of static batching, a step at a time."""
    waiting = deque(zip(prompts, outputs, strict=True))
    steps = 0
    while waiting:
        group, free = [], capacity
        while waiting and len(group) < slots and min(waiting[0][0] + most_output, capacity) <= free:
            free -= min(waiting[0][0] + most_output, capacity)
            group.append(waiting.popleft())
        prompt_left = sum(prompt for prompt, output in group if output > 0)
        tokens_left = [output for _, output in group]
        while any(tokens_left):
            steps += 1
            prompt_left = max(0, prompt_left - token_budget)
            if prompt_left == 0:
                tokens_left = [max(0, left - 1) for left in tokens_left]
    return steps
