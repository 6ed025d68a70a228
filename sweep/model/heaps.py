"""Heaps in arrays for the kernels: moments with the earliest first, and requests by rank. The caller keeps the size."""

from sweep.model.compiled import kernel


@kernel
def put_time(heap, size, moment):
    """The size of a heap of moments, the earliest first, after one more."""
    place = size
    while place > 0 and moment < heap[(place - 1) // 2]:
        heap[place] = heap[(place - 1) // 2]
        place = (place - 1) // 2
    heap[place] = moment
    return size + 1


@kernel
def take_time(heap, size):
    """The size of a heap of moments after the earliest has gone."""
    size -= 1
    last, place = heap[size], 0
    while 2 * place + 1 < size:
        child = 2 * place + 1
        if child + 1 < size and heap[child + 1] < heap[child]:
            child += 1
        if last <= heap[child]:
            break
        heap[place] = heap[child]
        place = child
    heap[place] = last
    return size


@kernel
def put_request(heap, size, rank, request):
    """The size of a heap of requests, the lowest rank and then number first, after one more."""
    place = size
    while place > 0 and goes_before(rank, request, heap[(place - 1) // 2]):
        heap[place] = heap[(place - 1) // 2]
        place = (place - 1) // 2
    heap[place] = request
    return size + 1


@kernel
def take_request(heap, size, rank):
    """The size of a heap of requests after the first has gone."""
    size -= 1
    last, place = heap[size], 0
    while 2 * place + 1 < size:
        child = 2 * place + 1
        if child + 1 < size and goes_before(rank, heap[child + 1], heap[child]):
            child += 1
        if not goes_before(rank, heap[child], last):
            break
        heap[place] = heap[child]
        place = child
    heap[place] = last
    return size


@kernel
def goes_before(rank, request, other):
    """Whether a request is taken before another one."""
    return rank[request] < rank[other] or (rank[request] == rank[other] and request < other)
