"""A program that uses the installed package, and nothing from the place where it was built: two processes, one call each
way and a gradient."""
import multiprocessing
import pathlib
import sys

import holdfast
import holdfast.rpc as rpc
import torch
from holdfast import autograd


def add(a, b):
    return a + b


def join(rank, port):
    options = rpc.TensorPipeRpcBackendOptions(init_method=f"tcp://127.0.0.1:{port}")
    rpc.init_rpc(f"worker{rank}", rank=rank, world_size=2, rpc_backend_options=options)


def serve(port):
    join(1, port)
    assert rpc.rpc_sync("worker0", add, args=("a", "b")) == "ab"
    rpc.shutdown()


def main(prefix, port):
    package = pathlib.Path(holdfast.__file__).resolve().parent
    assert package.is_relative_to(pathlib.Path(prefix).resolve()), f"{package} is not what was installed"
    for file in ("py.typed", "_core.pyi"):
        assert (package / file).is_file(), f"{file} was not installed"
    server = multiprocessing.get_context("spawn").Process(target=serve, args=(port,))
    server.start()
    join(0, port)
    weight = torch.full((2,), 21.0, requires_grad=True)
    with autograd.context() as context:
        loss = rpc.rpc_sync("worker1", torch.mul, args=(weight, weight)).sum()
        autograd.backward(context, [loss])
        gradient = autograd.get_gradients(context)[weight]
    rpc.shutdown()
    server.join()
    assert server.exitcode == 0, f"worker1 ended with {server.exitcode}"
    print(int(gradient[0]))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
