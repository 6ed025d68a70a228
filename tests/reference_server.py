"""The server, told as literally as possible: requests and blocks as objects, queues as deques, one step at a time.

It is written from the rules and shares nothing with the kernel, which must give the same run. Slow on purpose.
"""

import math
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
    rank: float = 0.0
    think: float = 0.0
    start: float | None = None
    decodes: bool = False  # has had a token since it was last admitted

    def token(self, position):
        return ("group", self.group, position) if position < self.prefix else ("own", self.number, position)


class Door:
    """Who is still to come: at moments that are given, or from clients that send one request after the other."""

    def __init__(self, requests, clients, *, all_wait=False):
        self.closed, self.all_wait = clients > 0, all_wait  # or those without output have their answer at once
        self.unsent = deque(sorted(requests, key=lambda r: (0 if self.closed else r.arrival, r.number)))
        self.moments = [0] * clients

    def next_moment(self):
        if not self.unsent:
            return math.inf
        return min(self.moments, default=math.inf) if self.closed else self.unsent[0].arrival

    def come(self, clock):
        """Those who have come by now, in this order."""
        coming = []
        while self.next_moment() <= clock:
            request = self.unsent.popleft()
            if self.closed:
                request.arrival = min(self.moments)
                self.moments.remove(request.arrival)
            if request.output > 0 or self.all_wait:
                coming.append(request)
            else:
                self.answered(request, request.arrival)
        return coming

    def answered(self, request, clock):
        if self.closed:
            self.moments.append(clock + request.think)


class Waiting:
    """The preempted, the last one first, then those who came: the lowest rank first, and the one who came first."""

    def __init__(self):
        self.preempted, self.newcomers = deque(), []

    def __len__(self):
        return len(self.preempted) + len(self.newcomers)

    def first(self):
        return self.preempted[0] if self.preempted else min(self.newcomers, key=lambda r: r.rank)

    def take_first(self):
        request = self.first()
        (self.preempted if self.preempted else self.newcomers).remove(request)
        return request


def seconds_of(plan, step_s):
    """What the step takes in which these requests compute so many tokens each."""
    batch = kv_tokens = prefill_tokens = 0
    for request, new in plan:
        if request.decodes:
            batch += 1
            kv_tokens += request.done + 1  # all its text, the token that it computes included
        else:
            prefill_tokens += new
            kv_tokens += request.done  # what its chunk finds computed
    return step_s(batch, kv_tokens, prefill_tokens)


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


def serve(requests, **server):
    """The run as a dict named like the fields of `sweep.model.server.Served`, with everything recorded.

    requests : (prompt, output, arrival, prefix, group) of each.
    """
    return run(people(requests), **server)


def people(requests, rank=None, think=None):
    everyone = [Request(number, *given, length=given[0]) for number, given in enumerate(requests)]
    for request in everyone:
        request.rank = rank[request.number] if rank else 0.0
        request.think = think[request.number] if think else 0.0
    return everyone


def one_step(*_counts):
    return 1


def run(
    everyone,
    *,
    slots,
    block_size,
    blocks,
    token_budget,
    prefix_caching,
    chunked_prefill,
    refill_delay=0,
    clients=0,
    step_s=one_step,
):
    """What `serve` gives; each request also knows when it came, started, and had its first and its last token."""
    pool = Pool(blocks, block_size, prefix_caching)
    fits = [
        r
        for r in everyone
        if pool.needed(r.prompt + r.output - 1) <= blocks
        and (chunked_prefill or r.prompt + r.output - 1 <= token_budget)
    ]
    fits = [r for r in fits if r.output > 0]
    door = Door(fits + [r for r in everyone if r.output == 0 and clients > 0], clients)
    waiting, running, ghosts = Waiting(), [], []
    clock = 0
    steps, schedule, admissions, preemptions = [], [], [], []
    hits_first = hits_resumed = recomputed = 0

    while door.unsent or waiting or running:
        if not waiting and not running and not ghosts:
            clock = max(clock, door.next_moment())
        waiting.newcomers += door.come(clock)
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
                victim.decodes = False
                waiting.preempted.appendleft(victim)
            if request in running:
                pool.grow(request, new)
                plan.append((request, new))
                left -= new

        while not victims and waiting and left > 0 and len(running) + len(ghosts) < slots:
            request = waiting.first()
            found = pool.found(request)
            hit = len(found) * block_size
            rest = request.length - hit
            idle = sum(block.holders == 0 for block in found)
            if rest > left and not chunked_prefill:
                break
            if pool.needed(request.length) - len(found) + idle > len(pool.free):
                break
            running.append(waiting.take_first())
            request.start = clock if request.start is None else request.start
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

        clock += seconds_of(plan, step_s)
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
            request.decodes = True
            request.first = request.first or clock
            if request.length == request.prompt + request.output:
                request.last = clock
                door.answered(request, clock)
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


def serve_reserving(requests, reserved, **server):
    """The run of a server that sets aside `reserved` tokens of its cache for each request, as `serve` gives it."""
    return run_reserving(people(requests), reserved, **server)


def run_reserving(
    everyone,
    reserved,
    *,
    slots,
    tokens,
    token_budget,
    chunked_prefill,
    refill_delay=0,
    clients=0,
    step_s=one_step,
):
    """What `serve_reserving` gives; each request also knows when it came, started and spoke."""
    fits = [r for r in everyone if reserved[r.number] <= tokens and (chunked_prefill or r.prompt <= token_budget)]
    fits = [r for r in fits if r.output > 0]
    door = Door(fits + [r for r in everyone if r.output == 0 and clients > 0], clients)
    waiting, running, ghosts = Waiting(), [], []
    clock, steps = 0, []
    while door.unsent or waiting or running:
        if not waiting and not running and not ghosts:
            clock = max(clock, door.next_moment())
        waiting.newcomers += door.come(clock)
        plan, left = [], token_budget
        for request in running:
            plan.append((request, min(request.length - request.done, left)))
            left -= plan[-1][1]
        while waiting and left > 0 and len(running) + len(ghosts) < slots:
            request = waiting.first()
            if request.prompt > left and not chunked_prefill:
                break
            if sum(reserved[r.number] for r in [*running, *ghosts, request]) > tokens:
                break
            running.append(waiting.take_first())
            request.start = clock
            plan.append((request, min(request.prompt, left)))
            left -= plan[-1][1]
        if not plan:
            ghosts = []
            continue
        clock += seconds_of(plan, step_s)
        stored = sum(r.done for r in running + ghosts) + sum(new for _, new in plan)
        aside = sum(reserved[r.number] for r in running + ghosts)
        steps.append((len(plan), sum(new for _, new in plan), aside, clock, stored))
        ghosts = []
        for request, new in plan:
            request.done += new
            if request.done < request.length:
                continue
            request.length += 1
            request.decodes = True
            request.first = request.first or clock
            if request.length == request.prompt + request.output:
                request.last = clock
                door.answered(request, clock)
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


def static_over_time(
    everyone, *, slots, token_budget, capacity, most_output, context, max_wait, padded, clients=0, step_s=one_step
):
    """Static batching as requests come, a step at a time; gives the steps. All that are given are served."""

    def set_aside(request):
        return min(context or request.prompt + most_output, capacity)

    def group_of(waiting):
        group = []
        for request in sorted(waiting, key=lambda r: (r.rank, r.number)):
            if len(group) == slots or sum(map(set_aside, [*group, request])) > capacity:
                return group, True
            group.append(request)
        return group, len(group) == slots

    door, waiting, clock, steps = Door(everyone, clients, all_wait=True), [], 0, 0
    while door.unsent or waiting:
        # somebody has to be there, and then a group is full, or the time of the one who came first is up
        waiting += door.come(clock)
        while not group_of(waiting)[1]:
            deadline = max(clock, min(r.arrival for r in waiting) + max_wait) if waiting else math.inf
            clock = max(clock, min(deadline, door.next_moment()))
            newcomers = door.come(clock)
            waiting += newcomers
            if not newcomers and clock == deadline:
                break
        group, _ = group_of(waiting)
        for request in group:
            waiting.remove(request)
            request.start = request.last = clock
        members = [r for r in group if r.output > 0]
        # prompts, each token of each in order, a budget a step
        line = [request for request in members for _ in range(request.prompt)]
        while line:
            now, line = line[:token_budget], line[token_budget:]
            clock += step_s(0, sum(r.done for r in members if r in now), len(now))
            steps += 1
            for request in now:
                request.done += 1
        tokens = 1
        for request in members:
            request.first = request.last = clock
        while any(r.output > tokens for r in members):
            computing = [r for r in members if padded or r.output > tokens]
            clock += step_s(len(computing), sum(r.prompt + tokens for r in computing), 0)
            steps += 1
            tokens += 1
            for request in members:
                if request.output >= tokens:
                    request.last = clock
        for request in group:
            door.answered(request, request.last)
    return steps
