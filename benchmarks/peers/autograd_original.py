#!/usr/bin/env python3
"""A peer for ./bench autograd: the same training step with torch.distributed.rpc, of Debian's python3-torch.

Two processes. Reads a number of steps from each line of its input, does them, and prints the steps per second."""

import multiprocessing
import os
import sys
import threading
import time

os.environ.setdefault("OMP_NUM_THREADS", "1")


def options(rpc, port):
    return rpc.TensorPipeRpcBackendOptions(num_worker_threads=4, init_method=f"tcp://127.0.0.1:{port}")


def end_with(process):
    """Ends this process as soon as the other one has ended: neither may wait for ever for the other."""

    def watch():
        process.join()
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def serve(port):
    end_with(multiprocessing.parent_process())
    from torch.distributed import rpc

    rpc.init_rpc("worker1", rank=1, world_size=2, rpc_backend_options=options(rpc, port))
    rpc.shutdown()


def main():
    port = int(sys.argv[1])
    server = multiprocessing.get_context("spawn").Process(target=serve, args=(port,))
    server.start()
    end_with(server)
    import torch
    from torch.distributed import autograd, rpc
    from torch.distributed.optim import DistributedOptimizer

    torch.set_num_threads(1)
    rpc.init_rpc("worker0", rank=0, world_size=2, rpc_backend_options=options(rpc, port))
    x = torch.rand(8, 16)
    layer = rpc.remote("worker1", Layer, args=(16, 16))
    head = torch.rand(16, 4, requires_grad=True)
    parameters = [layer.rpc_sync().parameter(), rpc.RRef(head)]
    optimizer = DistributedOptimizer(torch.optim.SGD, parameters, lr=0.01)

    def step():
        with autograd.context() as context:
            loss = (layer.rpc_sync().forward(x) @ head).sum()
            autograd.backward(context, [loss])
            optimizer.step(context)

    for _ in range(10):
        step()
    print("ready", flush=True)
    for line in sys.stdin:
        count = int(line)
        start = time.monotonic()
        for _ in range(count):
            step()
        print(count / (time.monotonic() - start), flush=True)
    del layer, parameters, optimizer
    rpc.shutdown()


class Layer:
    def __init__(self, inputs, outputs):
        import torch

        self.weight = torch.rand(inputs, outputs, requires_grad=True)

    def forward(self, x):
        return (x @ self.weight).tanh()

    def parameter(self):
        from torch.distributed import rpc

        return rpc.RRef(self.weight)


if __name__ == "__main__":
    main()
