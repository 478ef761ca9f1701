"""Agent: this process's worker and what the package keeps beside it."""
import atexit
import os
import socket
import time
import weakref
from typing import Dict, List, Optional
from urllib.parse import urlparse

from .. import _core
from . import devices, secret, serve, state
from .options import FaultyTensorPipeRpcBackendOptions, TensorPipeRpcBackendOptions
from .worker_info import WorkerInfo

_LEASE_S = 10.0
_JOIN_TIMEOUT_S = 60.0
_OPEN_JOIN_TIMEOUT_S = 5.0
_OPEN_WORLD_SIZE = 1024  # of a job that workers join and leave as they like

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
        self.options = options
        self.launched = store is None  # by `holdfast run`, perhaps together with C++ programs
        self.is_static_group = world_size is not None or self.launched
        self.store = store
        self.rrefs = weakref.WeakSet()  # of this process, as long as somebody has them
        self._leaked_text = ""
        self._gil_profiling = False
        self._hosted = None  # the coordinator, if it is in this process
        self._bind = "" if self.launched else _bind_address(options.init_method)
        self._secret_file = "" if self.launched else secret.secret_file(self._bind)
        self._facts = devices.facts_of(name, _core.device_counts(), options)
        serve.install(WorkerInfo(name or "worker", rank), secret.pickle_allowed(self._secret_file, self.launched))
        if self.launched:
            self.worker = self._join("", name, rank, 1, options, _JOIN_TIMEOUT_S)
        elif self.is_static_group:
            self._agree_on_kind(store)
            self._check_facts_of_all(store, rank, world_size)
            coordinator = self._find_coordinator(store, name, rank, world_size)
            self.worker = self._join(coordinator, name, rank, world_size, options, _JOIN_TIMEOUT_S)
            self._wait_until_all_have_joined(store, rank, world_size)
        else:
            self.worker = self._join_open(store, name, rank, options)
        self.info = WorkerInfo(self.worker.name, self.worker.rank)
        serve.set_worker_info(self.info)
        _core.set_profiler_node_id(self.info.id)
        self._infos: Dict[str, WorkerInfo] = {}
        members = self.worker.workers() if self.is_static_group else [(name, rank)]
        for other_name, other_rank in members:
            self._infos[other_name] = WorkerInfo(other_name, other_rank)
        self._by_id = {info.id: info for info in self._infos.values()}
        state.set_rpc_timeout(options.rpc_timeout)
        _agents.add(self)

    def _agree_on_kind(self, store):
        kind = "static" if self.is_static_group else "dynamic"
        if store.compare_set("group", "", kind).decode() != kind:
            raise RuntimeError("RPC group mixes statically and dynamically initialized members which is not supported.")

    def _find_coordinator(self, store, name, rank, world_size):
        if self.is_static_group:
            hosts_coordinator = rank == 0
        else:
            hosts_coordinator = store.compare_set("host", "", name).decode() == name  # whoever comes first
        if hosts_coordinator:
            start_at = 0 if self.is_static_group else 1
            size = world_size or _OPEN_WORLD_SIZE
            self._hosted = _core.Coordinator(size, start_at, self._bind, _LEASE_S, self._secret_file)
            _coordinators.append(self._hosted)
            store.set("coordinator", self._hosted.address)
        return store.get("coordinator").decode()

    def _join_open(self, store, name, rank, options):
        """Joins whoever is there. The one that hosts the coordinator may be leaving: then somebody else does."""
        deadline = time.monotonic() + _JOIN_TIMEOUT_S
        self._agree_on_kind(store)
        while True:
            coordinator = self._find_coordinator(store, name, rank, None)
            try:
                return self._join(coordinator, name, rank, _OPEN_WORLD_SIZE, options, _OPEN_JOIN_TIMEOUT_S)
            except (_core.Timeout, _core.Unavailable):
                if time.monotonic() > deadline:
                    raise

    def _join(self, coordinator, name, rank, world_size, options, join_timeout_s):
        faults = isinstance(options, FaultyTensorPipeRpcBackendOptions)
        self._delays_s = {_kind(kind): delay_s for kind, delay_s in options.messages_to_delay.items()} if faults else {}
        self._kinds_to_fail = sorted({_kind(kind) for kind in options.messages_to_fail}) if faults else []
        return _core.Worker(
            name=name,
            rank=rank,
            world_size=world_size,
            coordinator=coordinator,
            secret_file=self._secret_file,
            handler_threads=options.num_worker_threads,
            timeout_s=options.rpc_timeout,
            join_timeout_s=join_timeout_s,
            messages_to_fail=self._kinds_to_fail,
            num_fail_sends=options.num_fail_sends if faults else 1,
            messages_to_delay=self._delays_s,
            device_maps=self._facts.maps,
            devices=self._facts.devices,
            on_held=self._on_held,
            open=not self.is_static_group,
        )

    def _wait_until_all_have_joined(self, store, rank, world_size):
        """A program that ends at once must not take the coordinator from those that do not know yet that they are in."""
        store.set(f"joined/{rank}", "")
        if self._hosted is not None:
            store.wait([f"joined/{other}" for other in range(world_size)])

    @staticmethod
    def _check_names(names):
        repeated = sorted({name for name in names if names.count(name) > 1})
        if repeated:
            raise RuntimeError(f"RPC worker name {repeated[0]} is not unique.")

    def _check_facts_of_all(self, store, rank, world_size):
        """Raises if what the workers say of themselves cannot be, on each of them."""
        store.set(f"facts/{rank}", self._facts.packed())
        facts = [devices.Facts.unpack(store.get(f"facts/{other}").decode()) for other in range(world_size)]
        self._check_names([other.name for other in facts])
        devices.check(facts)

    def _on_held(self, text):
        # What only this process itself holds is its own business.
        self._leaked_text = "\n".join(line for line in text.splitlines() if ", held by " in line)

    def fails_to_itself(self, info, kind) -> bool:
        """Whether such a message to this very worker is one that fails on purpose: the core sends none."""
        return info.id == self.info.id and kind in self._kinds_to_fail

    def delay_to_itself(self, info, kind) -> float:
        """How many seconds such a message to this very worker is to be late, on purpose."""
        return self._delays_s.get(kind, 0) if info.id == self.info.id else 0

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
        if found is None and not self.is_static_group and isinstance(worker, str):
            found = WorkerInfo(worker, self.worker.find_rank(worker))
            self._infos[worker] = self._by_id[found.id] = found
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
            "agent.server_active_async_calls": str(counts["calls_suspended"]),
        }
        if self._gil_profiling:
            info["agent.gil_average_wait_time_us"] = str(counts["gil_wait_us"])
        return info

    def enable_gil_profiling(self, enable: bool):
        self._gil_profiling = enable

    def delete_user_rrefs(self):
        """Gives up all references of this process to values of others."""
        for rref in list(self.rrefs):
            if rref._ref is not None and not rref._ref.is_owner:
                rref._delete()

    def join(self, shutdown: bool = False, timeout: float = 0):
        """The graceful end: waits for all, if it is known who they are."""
        if self.is_static_group:
            self.worker.shutdown(timeout)
        else:
            self.worker.stop()
            if self._hosted is not None and self._hosted.wait_until_empty(_OPEN_JOIN_TIMEOUT_S):
                self.store.compare_set("host", self.info.name, "")  # the next to come starts anew

    def shutdown(self):
        """The end at once; after join() it does nothing."""
        self.worker.stop()


@atexit.register
def _stop_all():
    # Threads of a worker must not outlive the interpreter.
    for agent in list(_agents):
        agent.worker.stop()
