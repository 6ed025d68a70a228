"""Literal twins of batching with arrivals, written from the description: one step at a time, lists and dictionaries."""

import math
from collections.abc import Callable
from dataclasses import dataclass

StepSeconds = Callable[[int, int, int], float]


@dataclass
class Request:
    """One request, and what became of it."""

    number: int
    output: int
    prompt: int
    rank: float
    think: float
    arrival: float = math.inf  # of clients: not sent yet
    start: float = math.nan
    first: float = math.nan
    finish: float = math.nan
    tokens: int = 0

    @property
    def place_in_line(self) -> tuple[float, int]:
        return self.rank, self.number


class Line:
    """Who has come and waits, and who is still to come."""

    def __init__(self, requests: list[Request], clients: int) -> None:
        self.unsent = list(requests)  # of clients, in the order of sending
        self.waiting: list[Request] = []
        self.closed = clients > 0
        self.moments = [0.0] * clients if self.closed else [request.arrival for request in requests]

    def next_moment(self) -> float:
        return min(self.moments, default=math.inf) if self.unsent else math.inf

    def come_until(self, now: float) -> None:
        while self.next_moment() <= now:
            moment = self.next_moment()
            self.moments.remove(moment)
            request = self.unsent.pop(0)
            request.arrival = moment
            self.waiting.append(request)

    def take(self) -> Request:
        request = min(self.waiting, key=lambda one: one.place_in_line)
        self.waiting.remove(request)
        return request

    def end(self, request: Request, now: float) -> None:
        request.finish = now
        if self.closed:
            self.moments.append(now + request.think)


def continuous(requests: list[Request], clients: int, slots: int, step_s: StepSeconds, charged: bool) -> int:
    """Continuous batching; gives the steps that ran."""
    line, running, now, steps = Line(requests, clients), [], 0.0, 0
    while running or line.waiting or line.unsent:
        if not running and not line.waiting:
            now = max(now, line.next_moment())
        line.come_until(now)
        if line.waiting and len(running) < slots:
            request = line.take()
            request.start = now
            if request.output == 0:
                line.end(request, now)
                continue
            if charged and request.prompt > 0:
                now += step_s(0, 0, request.prompt)
            running.append(request)
            continue  # look again: somebody may have come meanwhile
        if not running:
            continue
        now += step_s(len(running), sum(one.prompt + one.tokens + 1 for one in running), 0)
        steps += 1
        for request in list(running):
            request.tokens += 1
            if request.tokens == 1:
                request.first = now
            if request.tokens == request.output:
                running.remove(request)
                line.end(request, now)
    return steps


def static(
    requests: list[Request],
    clients: int,
    slots: int,
    step_s: StepSeconds,
    charged: bool,
    max_wait: float,
    padded: bool,
) -> int:
    """Static batching, a group at a time; gives the steps that ran."""
    line, now, steps = Line(requests, clients), 0.0, 0
    while line.waiting or line.unsent:
        line.come_until(now)
        while len(line.waiting) < slots:
            oldest = min((one.arrival for one in line.waiting), default=math.inf)
            coming = line.next_moment()
            if coming > max(now, oldest + max_wait):
                now = max(now, oldest + max_wait)
                break
            now = max(now, coming)
            line.come_until(now)
        group = [line.take() for _ in range(min(slots, len(line.waiting)))]
        for request in group:
            request.start = now
            if request.output == 0:
                request.finish = now
        group_running = [request for request in group if request.output > 0]
        for request in group_running:
            if charged and request.prompt > 0:
                now += step_s(0, 0, request.prompt)
        while any(one.tokens < one.output for one in group_running):
            steps += 1
            computing = [one for one in group_running if padded or one.tokens < one.output]
            now += step_s(len(computing), sum(one.prompt + one.tokens + 1 for one in computing), 0)
            for request in computing:
                request.tokens += 1
                if request.tokens == 1:
                    request.first = now
                if request.tokens == request.output:
                    request.finish = now
        for request in group:
            line.end(request, request.finish)
    return steps
