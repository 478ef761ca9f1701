"""The two processes of a peer that runs on torch.distributed.rpc, of Debian's python3-torch."""

import multiprocessing
import os
import sys
import threading

os.environ.setdefault("OMP_NUM_THREADS", "1")


def _end_with(process):
    """Ends this process as soon as the other one has ended: neither may wait for ever for the other."""

    def watch():
        process.join()
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def _init(rank, port):
    import torch
    from torch.distributed import rpc

    torch.set_num_threads(1)
    options = rpc.TensorPipeRpcBackendOptions(num_worker_threads=4, init_method=f"tcp://127.0.0.1:{port}")
    rpc.init_rpc(f"worker{rank}", rank=rank, world_size=2, rpc_backend_options=options)


def _serve(port):
    _end_with(multiprocessing.parent_process())
    _init(1, port)
    from torch.distributed import rpc

    rpc.shutdown()


def run(prepare, answer):
    """Starts "worker1" in another process; here, as "worker0", calls prepare(), and answer(prepared, words) for each
    line of input, whose result it prints."""
    port = int(sys.argv[1])
    server = multiprocessing.get_context("spawn").Process(target=_serve, args=(port,))
    server.start()
    _end_with(server)
    _init(0, port)
    from torch.distributed import rpc

    prepared = prepare()
    print("ready", flush=True)
    for line in sys.stdin:
        print(answer(prepared, line.split()), flush=True)
    del prepared
    rpc.shutdown()
