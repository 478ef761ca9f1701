"""A job of a few processes for one test."""
import functools
import os
import socket

import holdfast.rpc as rpc


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def fork_workers(ranks, work):
    """Runs ``work(rank)`` in a process for each of the ranks; gives their ids."""
    children = []
    for rank in ranks:
        child = os.fork()
        if child == 0:
            status = 1
            try:
                work(rank)
                status = 0
            finally:
                os._exit(status)
        children.append(child)
    return children


def with_workers(count, set_options=lambda rank, options: None):
    """Runs a test on rank 0 of a job of processes; the others serve. ``set_options(rank, options)`` changes those."""

    def decorate(test):
        @functools.wraps(test)
        def run(self):
            init_method = f"tcp://127.0.0.1:{free_port()}"

            def join(rank):
                options = rpc.TensorPipeRpcBackendOptions(init_method=init_method)
                set_options(rank, options)
                rpc.init_rpc(f"worker{rank}", rank=rank, world_size=count, rpc_backend_options=options)

            def serve(rank):
                join(rank)
                rpc.shutdown()

            children = fork_workers(range(1, count), serve)
            join(0)
            try:
                test(self)
            finally:
                try:
                    rpc.shutdown()
                finally:
                    for child in children:
                        os.waitpid(child, 0)

        return run

    return decorate
