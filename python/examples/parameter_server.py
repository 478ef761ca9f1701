#!/usr/bin/env python3
"""A parameter server that waits for all trainers before it updates, without a thread that waits.

Written for torch.distributed.rpc. On Holdfast: python3 -m holdfast.compat parameter_server.py
"""
import os
import threading

import torch
import torch.distributed.rpc as rpc
import torch.multiprocessing as mp
from torch import nn

TRAINERS = 2
STEPS = 30


class ParameterServer:
    """Holds the model. Each round ends when every trainer has brought its gradients."""

    def __init__(self, trainers):
        torch.manual_seed(0)
        self.model = nn.Linear(8, 1)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.05)
        self.trainers = trainers
        self.lock = threading.Lock()
        self.arrived = 0
        self.round = torch.futures.Future()
        for parameter in self.model.parameters():
            parameter.grad = torch.zeros_like(parameter)

    def weights(self):
        return [parameter.detach().clone() for parameter in self.model.parameters()]

    @staticmethod
    @rpc.functions.async_execution
    def bring(server_rref, gradients):
        """Adds the gradients; the future has the new weights when all have come."""
        self = server_rref.local_value()
        with self.lock:
            for parameter, gradient in zip(self.model.parameters(), gradients):
                parameter.grad += gradient / self.trainers
            self.arrived += 1
            this_round = self.round
            if self.arrived == self.trainers:
                self.optimizer.step()
                self.optimizer.zero_grad(set_to_none=False)
                self.arrived = 0
                self.round = torch.futures.Future()
                this_round.set_result(self.weights())
        return this_round


def train(server_rref, seed):
    """Runs on a trainer: fits a plane that the server does not know. Returns the first and the last loss."""
    generator = torch.Generator().manual_seed(seed)
    plane = torch.arange(8.0)
    model = nn.Linear(8, 1)
    weights = server_rref.rpc_sync().weights()
    losses = []
    for _ in range(STEPS):
        with torch.no_grad():
            for parameter, weight in zip(model.parameters(), weights):
                parameter.copy_(weight)
        x = torch.rand(64, 8, generator=generator)
        loss = nn.functional.mse_loss(model(x).squeeze(1), x @ plane)
        model.zero_grad()
        loss.backward()
        losses.append(loss.item())
        gradients = [parameter.grad for parameter in model.parameters()]
        weights = rpc.rpc_sync(server_rref.owner(), ParameterServer.bring, args=(server_rref, gradients))
    return losses[0], losses[-1]


def run(rank):
    options = rpc.TensorPipeRpcBackendOptions(num_worker_threads=8)
    names = ["server"] + [f"trainer{i}" for i in range(TRAINERS)]
    rpc.init_rpc(names[rank], rank=rank, world_size=len(names), rpc_backend_options=options)
    if rank == 0:
        server = rpc.RRef(ParameterServer(TRAINERS))
        futures = [rpc.rpc_async(f"trainer{i}", train, args=(server, i)) for i in range(TRAINERS)]
        for i, (first, last) in enumerate(torch.futures.wait_all(futures)):
            print(f"trainer{i}: loss {first:.3f} -> {last:.3f}")
            assert last < first / 2, "the model has learnt nothing"
        del server
    rpc.shutdown()


if __name__ == "__main__":
    os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
    os.environ.setdefault("MASTER_PORT", "29500")
    mp.spawn(run, nprocs=1 + TRAINERS)
