#!/usr/bin/env python3
"""A trainer in Python whose parameters are in a C++ program: see server.cc."""
import holdfast.rpc as rpc
import torch
from holdfast import named

STEPS = 200
plane = torch.arange(8.0)


def loss_of(weights, x):
    return torch.nn.functional.mse_loss(x @ weights, x @ plane)


@named.export("trainer.loss", "(tensor) -> f64")
def loss(weights):
    return loss_of(weights, torch.rand(256, 8)).item()


def main():
    options = rpc.TensorPipeRpcBackendOptions(init_method="holdfast://")
    rpc.init_rpc(None, rpc_backend_options=options)
    workers = rpc._get_current_rpc_agent().get_worker_infos()
    for _ in range(STEPS):
        weights = named.call(0, "ps.pull", "() -> tensor").requires_grad_()
        loss_of(weights, torch.rand(64, 8)).backward()
        named.call(0, "ps.push", "(tensor, f64) -> nil", weights.grad, 0.05)
    named.call(0, "ps.finish", "(i64) -> nil", len(workers) - 1)
    rpc.shutdown()


if __name__ == "__main__":
    main()
