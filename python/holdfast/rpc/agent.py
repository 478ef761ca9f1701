"""Agent: this process's worker and what the package keeps beside it."""
import atexit
import logging
import os
import socket
import weakref
from typing import Dict, List, Optional
from urllib.parse import urlparse

from .. import _core
from . import serve, state
from .options import FaultyTensorPipeRpcBackendOptions, TensorPipeRpcBackendOptions
from .worker_info import WorkerInfo

logger = logging.getLogger(__name__)

_LEASE_S = 10.0

# Coordinators of jobs that others may still be in: each serves until this process ends.
_coordinators: List[_core.Coordinator] = []
_agents: "weakref.WeakSet[Agent]" = weakref.WeakSet()

# Messages of the original, and the kind of message that does the same here.
_KINDS = {
    "PYTHON_CALL": "CALL",
    "SCRIPT_CALL": "CALL",
    "PYTHON_REMOTE_CALL": "REMOTE_CALL",
    "SCRIPT_REMOTE_CALL": "REMOTE_CALL",
    "PYTHON_RREF_FETCH_CALL": "RREF_FETCH",
    "SCRIPT_RREF_FETCH_CALL": "RREF_FETCH",
    "RREF_FORK_REQUEST": "RREF_FORK_REQUEST",
    "RREF_CHILD_ACCEPT": "RREF_CHILD_ACCEPT",
    "RREF_USER_DELETE": "RREF_USER_DELETE",
    "CLEANUP_AUTOGRAD_CONTEXT_REQ": "CLEANUP_AUTOGRAD_CONTEXT",
    "BACKWARD_AUTOGRAD_REQ": "BACKWARD_AUTOGRAD",
}


def _kind(name: str) -> str:
    return _KINDS.get(name, name)


def _bind_address(init_method: str) -> str:
    host = urlparse(init_method).hostname
    if init_method.startswith("env://"):
        host = os.environ.get("MASTER_ADDR")
    if not host:
        return "127.0.0.1"
    return socket.gethostbyname(host)


class Agent:
    """One worker. ``TensorPipeAgent`` is its name for programs that ask for that."""

    def __init__(self, store, name: str, rank: int, world_size: Optional[int], options: TensorPipeRpcBackendOptions):
        self.info = WorkerInfo(name, rank)
        self.options = options
        self.is_static_group = world_size is not None
        self.store = store
        self.rrefs = weakref.WeakSet()  # of this process, as long as somebody has them
        self._leaked_text = ""
        self._gil_profiling = False
        self.worker = self._join(store, name, rank, world_size, options)
        self._infos: Dict[str, WorkerInfo] = {}
        for other_name, other_rank in self.worker.workers():
            self._infos[other_name] = WorkerInfo(other_name, other_rank)
        self._by_id = {info.id: info for info in self._infos.values()}
        state.set_rpc_timeout(options.rpc_timeout)
        _agents.add(self)

    def _join(self, store, name, rank, world_size, options):
        names = self._exchange_names(store, name, rank, world_size)
        repeated = sorted({each for each in names if names.count(each) > 1})
        if repeated:
            raise RuntimeError(f"RPC worker name {repeated[0]} is not unique.")
        if rank == 0:
            coordinator = _core.Coordinator(world_size, _bind_address(options.init_method), _LEASE_S)
            _coordinators.append(coordinator)
            store.set("coordinator", coordinator.address)
        serve.install(self.info)
        faults = isinstance(options, FaultyTensorPipeRpcBackendOptions)
        return _core.Worker(
            name=name,
            rank=rank,
            world_size=world_size,
            coordinator=store.get("coordinator").decode(),
            handler_threads=options.num_worker_threads,
            timeout_s=options.rpc_timeout,
            join_timeout_s=max(options.rpc_timeout, 60.0),
            messages_to_fail=sorted({_kind(kind) for kind in options.messages_to_fail}) if faults else [],
            num_fail_sends=options.num_fail_sends if faults else 1,
            messages_to_delay={_kind(kind): delay for kind, delay in options.messages_to_delay.items()} if faults else {},
            on_held=self._on_held,
        )

    @staticmethod
    def _exchange_names(store, name, rank, world_size):
        store.set(f"name/{rank}", name)
        return [store.get(f"name/{other}").decode() for other in range(world_size)]

    def _on_held(self, text):
        self._leaked_text = text

    @property
    def running(self) -> bool:
        return self.worker.running

    @property
    def leaked_text(self) -> str:
        """What was still referred to when the worker shut down; empty if nothing was."""
        return self._leaked_text

    def get_worker_info(self, worker=None) -> WorkerInfo:
        if worker is None:
            return self.info
        if isinstance(worker, WorkerInfo):
            return worker
        found = self._by_id.get(worker) if isinstance(worker, int) else self._infos.get(worker)
        if found is None:
            raise RuntimeError(f"could not find destination {worker}; there are {', '.join(sorted(self._infos))}")
        return found

    def get_worker_infos(self) -> List[WorkerInfo]:
        return sorted(self._infos.values(), key=lambda info: info.id)

    def get_debug_info(self) -> Dict[str, str]:
        counts = self.worker.counts()
        info = {
            "agent.num_pending_requests": str(counts["calls_made"]),
            "agent.thread_pool_size": str(self.options.num_worker_threads),
            "agent.num_idle_threads": str(max(0, self.options.num_worker_threads - counts["calls_served"])),
            "agent.client_active_calls": str(counts["calls_made"]),
            "agent.server_active_calls": str(counts["calls_served"]),
            "agent.server_active_async_calls": "0",
        }
        if self._gil_profiling:
            info["agent.gil_average_wait_time_us"] = "0"
        return info

    def enable_gil_profiling(self, enable: bool):
        self._gil_profiling = enable

    def delete_user_rrefs(self):
        """Gives up all references of this process to values of others."""
        for rref in list(self.rrefs):
            if rref._ref is not None and not rref._ref.is_owner:
                rref._delete()

    def join(self, shutdown: bool = False, timeout: float = 0):
        """The graceful end: waits for all."""
        self.worker.shutdown(timeout)

    def shutdown(self):
        """The end at once; after join() it does nothing."""
        self.worker.stop()


@atexit.register
def _stop_all():
    # Threads of a worker must not outlive the interpreter.
    for agent in list(_agents):
        agent.worker.stop()
