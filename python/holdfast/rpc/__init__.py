"""Remote procedure calls between Python programs: the interface of ``torch.distributed.rpc``, on Holdfast."""
import numbers
import threading
from datetime import timedelta

import torch.distributed as dist

from .. import _core
from . import api, backend_registry, constants, functions, internal, options, state  # noqa: F401
from .agent import Agent
from .api import (  # noqa: F401
    AllGatherStates,
    RRef,
    _delete_all_user_and_unforked_owner_rrefs,
    _get_current_rpc_agent,
    _is_current_rpc_agent_set,
    _set_rpc_timeout,
    get_rpc_timeout,
    get_worker_info,
    remote,
    rpc_async,
    rpc_sync,
    shutdown,
)
from .backend_registry import BackendType
from .futures import Future  # noqa: F401
from .profiling import (  # noqa: F401
    _disable_server_process_global_profiler,
    _enable_server_process_global_profiler,
    _server_process_global_profile,
)
from .options import RpcBackendOptions, TensorPipeRpcBackendOptions  # noqa: F401
from .worker_info import WorkerInfo  # noqa: F401

PyRRef = RRef
RpcAgent = TensorPipeAgent = Agent

_init_counter = 0
_init_counter_lock = threading.Lock()
_rendezvous = None  # the store that workers met at lives as long as this


def is_available() -> bool:
    return True


def _infer_backend(rpc_backend_options):
    for candidate in backend_registry.BackendType:
        try:
            of_candidate = type(backend_registry.construct_rpc_backend_options(candidate))
        except TypeError:
            continue  # its options have no defaults
        if isinstance(rpc_backend_options, of_candidate):
            return candidate
    raise TypeError(f"Could not infer backend for options {rpc_backend_options}")


def init_rpc(name, backend=None, rank=-1, world_size=None, rpc_backend_options=None):
    """Makes this process the worker ``name``, of that rank, in a job of ``world_size`` workers. Returns when all of them
    are there.

    ``rpc_backend_options``: see ``TensorPipeRpcBackendOptions``; its ``init_method`` says where workers meet, as in
    ``torch.distributed.init_process_group``. With ``holdfast://`` the launcher says it all (``holdfast run``), and the
    other workers may be C++ programs.
    """
    if backend is not None and not isinstance(backend, backend_registry.BackendType):
        raise TypeError("Argument backend must be a member of BackendType")
    if rpc_backend_options is not None and not isinstance(rpc_backend_options, RpcBackendOptions):
        raise TypeError("Argument rpc_backend_options must be an instance of RpcBackendOptions")
    if backend is None:
        backend = (
            backend_registry.BackendType["TENSORPIPE"]
            if rpc_backend_options is None
            else _infer_backend(rpc_backend_options)
        )
    if rpc_backend_options is None:
        rpc_backend_options = backend_registry.construct_rpc_backend_options(backend)

    launched = rpc_backend_options.init_method.startswith("holdfast://")
    store = None if launched else _meet(rpc_backend_options, rank, world_size)
    from .. import autograd

    autograd._init(rank)
    _init_rpc_backend(backend, store, name or "", rank, world_size, rpc_backend_options)


def _meet(rpc_backend_options, rank, world_size):
    """The store that all workers of this job share."""
    global _rendezvous, _init_counter
    if world_size:
        _rendezvous = dist.rendezvous(rpc_backend_options.init_method, rank=rank, world_size=world_size)
        store, _, _ = next(_rendezvous)
    else:
        store = dist._create_store_from_options(rpc_backend_options, rank)
    store.set_timeout(timedelta(seconds=rpc_backend_options.rpc_timeout))
    with _init_counter_lock:
        store = dist.PrefixStore(f"holdfast_rpc_{_init_counter}", store)
        _init_counter += 1
    return store


def _init_rpc_backend(
    backend=None, store=None, name=None, rank=-1, world_size=None, rpc_backend_options=None
):
    expected = (
        (backend, backend_registry.BackendType),
        (store, (dist.Store, type(None))),
        (name, str),
        (rank, numbers.Integral),
        (world_size, (numbers.Integral, type(None))),
        (rpc_backend_options, RpcBackendOptions),
    )
    for value, kind in expected:
        if not isinstance(value, kind):
            raise RuntimeError(f"Argument {value} must be of type {kind} but got type {type(value)}")
    if _is_current_rpc_agent_set():
        raise RuntimeError("RPC is already initialized")
    agent = backend_registry.init_backend(
        backend, store=store, name=name, rank=rank, world_size=world_size, rpc_backend_options=rpc_backend_options
    )
    api._init_rpc_states(agent)


def _rref_context_get_debug_info():
    """How many values this worker owns, and how many references are under way."""
    counts = state.current_agent().worker.counts()
    return {
        "num_owner_rrefs": str(counts["owners"]),
        "num_pending_futures": str(counts["pending_children"] + counts["owners_pending"]),
        "num_pending_users": str(counts["pending_users"]),
        "num_forks": str(counts["forks"]),
    }


@api._require_initialized
def _get_debug_info():
    from .. import autograd

    info = _rref_context_get_debug_info()
    info.update(state.current_agent().get_debug_info())
    info.update(autograd._get_debug_info())
    return info


def _set_profiler_node_id(rank: int):
    """Events that the profiler records here belong to this worker."""
    _core.set_profiler_node_id(rank)


def enable_gil_profiling(enable: bool):
    state.current_agent().enable_gil_profiling(enable)


def _enable_jit_rref_pickle():
    """Nothing to do: TorchScript never pickles an RRef here. Programs know it by name."""


def _disable_jit_rref_pickle():
    """As above."""


from . import _testing  # noqa: E402,F401  registers its backend
