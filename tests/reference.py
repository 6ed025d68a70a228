"""Literal twins of the kernels, as a student would write them from the description in the README: step by step."""

from collections import deque


def static_finishes(lengths: list[int], slots: int) -> tuple[int, list[int]]:
    """Steps of static batching, and the step in which each request emits its last token (0: it has none)."""
    step = 0
    finishes = [0] * len(lengths)
    for first in range(0, len(lengths), slots):
        left = {request: lengths[request] for request in range(first, min(first + slots, len(lengths)))}
        while any(tokens > 0 for tokens in left.values()):
            step += 1
            for request, tokens in left.items():
                if tokens > 0:
                    left[request] = tokens - 1
                    finishes[request] = step
    return step, finishes


def continuous_finishes(lengths: list[int], slots: int) -> tuple[int, list[int]]:
    """The same for continuous batching: before each step, free slots take requests from the head of the queue."""
    step = 0
    finishes = [0] * len(lengths)
    queue = deque(request for request, tokens in enumerate(lengths) if tokens > 0)
    running: dict[int, int] = {}
    while queue or running:
        while queue and len(running) < slots:
            request = queue.popleft()
            running[request] = lengths[request]
        step += 1
        for request in list(running):
            running[request] -= 1
            if running[request] == 0:
                finishes[request] = step
                del running[request]
    return step, finishes


def philox4x32(counter: tuple[int, int, int, int], key: tuple[int, int]) -> tuple[int, int, int, int]:
    """Philox4x32-10 on Python integers, from the definition in Salmon et al. (2011)."""
    c, k = list(counter), list(key)
    for _ in range(10):
        high0, low0 = divmod(0xD2511F53 * c[0], 2**32)
        high1, low1 = divmod(0xCD9E8D57 * c[2], 2**32)
        c = [high1 ^ c[1] ^ k[0], low1, high0 ^ c[3] ^ k[1], low0]
        k = [(k[0] + 0x9E3779B9) % 2**32, (k[1] + 0xBB67AE85) % 2**32]
    return c[0], c[1], c[2], c[3]


def drawn_word(seed: int, stream: int, replicate: int, index: int) -> int:
    """The 32-bit word that request `index` of a replicate draws from a stream."""
    counter = (stream, replicate % 2**32, replicate // 2**32, index // 4)
    return philox4x32(counter, (seed % 2**32, seed // 2**32))[index % 4]
