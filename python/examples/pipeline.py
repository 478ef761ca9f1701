#!/usr/bin/env python3
"""One model cut in two, each half on a worker of its own; batches go through in small parts, so that both halves work at
the same time. Distributed autograd takes the gradients back, a distributed optimizer updates both halves.

Written for torch.distributed.rpc. On Holdfast: python3 -m holdfast.compat pipeline.py
"""
import os

import torch
import torch.distributed.autograd as dist_autograd
import torch.distributed.rpc as rpc
import torch.multiprocessing as mp
from torch import nn
from torch.distributed.optim import DistributedOptimizer

STEPS = 25
PARTS = 4


class Half(nn.Module):
    """A half of the model. Parts of a batch come as references to where they are."""

    def __init__(self, *layers):
        super().__init__()
        self.layers = nn.Sequential(*layers)

    def forward(self, part_rref):
        return self.layers(part_rref.to_here())

    def parameter_rrefs(self):
        return [rpc.RRef(parameter) for parameter in self.parameters()]


def first_half():
    torch.manual_seed(1)
    return Half(nn.Linear(16, 32), nn.Tanh())


def second_half():
    torch.manual_seed(2)
    return Half(nn.Linear(32, 4))


class Pipeline:
    def __init__(self):
        self.halves = [rpc.remote("first", first_half), rpc.remote("second", second_half)]

    def forward(self, batch):
        outputs = []
        for part in batch.split(len(batch) // PARTS):
            middle = self.halves[0].remote().forward(rpc.RRef(part))
            outputs.append(self.halves[1].rpc_async().forward(middle))
        return torch.cat(torch.futures.wait_all(outputs))

    def parameter_rrefs(self):
        return [rref for half in self.halves for rref in half.rpc_sync().parameter_rrefs()]


def train():
    pipeline = Pipeline()
    optimizer = DistributedOptimizer(torch.optim.SGD, pipeline.parameter_rrefs(), lr=0.1)
    generator = torch.Generator().manual_seed(0)
    x = torch.rand(64, 16, generator=generator)
    wanted = (x[:, :4] > 0.5).float()
    losses = []
    for _ in range(STEPS):
        with dist_autograd.context() as context:
            loss = nn.functional.mse_loss(pipeline.forward(x), wanted)
            dist_autograd.backward(context, [loss])
            optimizer.step(context)
        losses.append(loss.item())
    print(f"loss {losses[0]:.3f} -> {losses[-1]:.3f}")
    assert losses[-1] < losses[0] / 2, "the model has learnt nothing"


def run(rank):
    names = ["trainer", "first", "second"]
    rpc.init_rpc(names[rank], rank=rank, world_size=len(names))
    if rank == 0:
        train()
    rpc.shutdown()


if __name__ == "__main__":
    os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
    os.environ.setdefault("MASTER_PORT", "29501")
    mp.spawn(run, nprocs=3)
