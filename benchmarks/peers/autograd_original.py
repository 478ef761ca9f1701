#!/usr/bin/env python3
"""A peer for ./bench autograd: the same training step with torch.distributed.rpc.

Asked for "steps N", it does them and answers the steps per second."""

import time

import two_processes


class Layer:
    def __init__(self, inputs, outputs):
        import torch

        self.weight = torch.rand(inputs, outputs, requires_grad=True)

    def forward(self, x):
        return (x @ self.weight).tanh()

    def parameter(self):
        from torch.distributed import rpc

        return rpc.RRef(self.weight)


def prepare():
    import torch
    from torch.distributed import autograd, rpc
    from torch.distributed.optim import DistributedOptimizer

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
    return step


def answer(step, words):
    count = int(words[1])
    start = time.monotonic()
    for _ in range(count):
        step()
    return count / (time.monotonic() - start)


if __name__ == "__main__":
    two_processes.run(prepare, answer)
