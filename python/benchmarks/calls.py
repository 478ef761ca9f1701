"""Measures calls between two processes through torch.distributed.rpc: as it is, or on Holdfast with `-m holdfast.compat`.

Prints one line per measurement: name, unit, value. `calls.py SECONDS` measures each for about so long.
"""
import functools
import multiprocessing
import os
import sys
import time

os.environ.setdefault("OMP_NUM_THREADS", "1")

BATCH = 64
LARGE_BYTES = 16 << 20


def add(a, b):
    return a + b


def echo(value):
    return value


def lendable(tensor):
    """As the user of each would have it: torch.distributed.rpc has nothing like it, and sends what it gets."""
    holdfast = sys.modules.get("holdfast")
    return holdfast.lendable(tensor) if holdfast else tensor


@functools.lru_cache(maxsize=None)
def table():
    import torch

    return lendable(torch.ones(LARGE_BYTES // 4))


def exchange(value):
    """What a parameter server does: takes a large tensor, and gives one of its own."""
    return table()


def options(rpc, port):
    return rpc.TensorPipeRpcBackendOptions(init_method=f"tcp://127.0.0.1:{port}")


def serve(port):
    import torch
    from torch.distributed import rpc

    torch.set_num_threads(1)
    rpc.init_rpc("worker1", rank=1, world_size=2, rpc_backend_options=options(rpc, port))
    rpc.shutdown()


def per_second(run, seconds):
    """How often `run` can be done in a second: the best of three rounds, after one to warm up."""
    best = 0.0
    for round_number in range(4):
        count, start = 0, time.perf_counter()
        while time.perf_counter() - start < seconds / 4:
            run()
            count += 1
        if round_number > 0:
            best = max(best, count / (time.perf_counter() - start))
    return best


def measure(torch, rpc, seconds):
    x = torch.ones(4)
    large = torch.ones(LARGE_BYTES // 4)

    def async_batch():
        torch.futures.wait_all([rpc.rpc_async("worker1", add, args=(1, 2)) for _ in range(BATCH)])

    def report(name, unit, value):
        print(f"{name}\t{unit}\t{value:.1f}", flush=True)

    report("rpc_sync of an operator", "us", 1e6 / per_second(lambda: rpc.rpc_sync("worker1", torch.add, args=(x, x)), seconds))
    report("rpc_sync of a function", "us", 1e6 / per_second(lambda: rpc.rpc_sync("worker1", add, args=(1, 2)), seconds))
    report("rpc_async of a function", "1/s", BATCH * per_second(async_batch, seconds))
    report(
        "remote and to_here",
        "1/s",
        per_second(lambda: rpc.remote("worker1", add, args=(1, 2)).to_here(), seconds),
    )
    megabytes = 2 * LARGE_BYTES / 1e6
    report(
        "16 MiB there and back",
        "MB/s",
        megabytes * per_second(lambda: rpc.rpc_sync("worker1", echo, args=(large,)), seconds),
    )
    lent = lendable(large)
    report(
        "the same, lendable tensors",
        "MB/s",
        megabytes * per_second(lambda: rpc.rpc_sync("worker1", exchange, args=(lent,)), seconds),
    )


def main():
    seconds, port = float(sys.argv[1]), int(sys.argv[2])
    server = multiprocessing.get_context("spawn").Process(target=serve, args=(port,))
    server.start()
    import torch
    from torch.distributed import rpc

    torch.set_num_threads(1)
    rpc.init_rpc("worker0", rank=0, world_size=2, rpc_backend_options=options(rpc, port))
    measure(torch, rpc, seconds)
    rpc.shutdown()
    server.join()


if __name__ == "__main__":
    main()
