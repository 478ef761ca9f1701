#!/usr/bin/env python3
"""A peer for ./bench peers: torch.distributed.rpc, called from Python. Answers as rounds.h says."""

import collections
import statistics
import time

import two_processes


def back(data):
    return data


def take(data):
    return data.numel()


def prepare():
    from torch.distributed import rpc

    rpc.rpc_sync("worker1", back, args=(b"",))


def many(count, in_flight, start_one):
    start = time.monotonic()
    waiting = collections.deque()
    for _ in range(count):
        if len(waiting) == in_flight:
            waiting.popleft().wait()
        waiting.append(start_one())
    for future in waiting:
        future.wait()
    return time.monotonic() - start


def answer(_, words):
    import torch
    from torch.distributed import rpc

    what, (size, count, in_flight) = words[0], map(int, words[1:])
    if what == "latency":
        taken = []
        for _ in range(count):
            start = time.monotonic()
            rpc.rpc_sync("worker1", back, args=(bytes(size),))
            taken.append((time.monotonic() - start) * 1e6)
        return statistics.median(taken)
    if what == "rate":
        return count / many(count, in_flight, lambda: rpc.rpc_async("worker1", back, args=(bytes(size),)))
    if what == "references":
        start = time.monotonic()
        for _ in range(count):
            rpc.remote("worker1", back, args=(bytes(size),)).to_here()
        return count / (time.monotonic() - start)
    data = torch.ones(size, dtype=torch.uint8)
    return size * count / 1e9 / many(count, in_flight, lambda: rpc.rpc_async("worker1", take, args=(data,)))


if __name__ == "__main__":
    two_processes.run(prepare, answer)
