"""Backends by name. There is one, Holdfast; it answers to the names that programs use."""
import collections
import enum

from . import api, constants
from .agent import Agent
from .options import TensorPipeRpcBackendOptions

BackendValue = collections.namedtuple(
    "BackendValue", ["construct_rpc_backend_options_handler", "init_backend_handler"]
)

_values = {}


def _make_enum():
    kind = enum.Enum("BackendType", dict(_values))
    kind.__repr__ = lambda self: f"BackendType.{self.name}"
    kind.__doc__ = "The backends that are registered; BackendType.TENSORPIPE is the default."
    return kind


BackendType = _make_enum()


def backend_registered(backend_name) -> bool:
    return backend_name in _values


def register_backend(backend_name, construct_rpc_backend_options_handler, init_backend_handler):
    """Adds a backend: how its options are made, and how its agent is."""
    global BackendType
    if backend_registered(backend_name):
        raise RuntimeError(f"RPC backend {backend_name}: already registered")
    _values[backend_name] = BackendValue(construct_rpc_backend_options_handler, init_backend_handler)
    BackendType = _make_enum()
    return BackendType[backend_name]


def construct_rpc_backend_options(
    backend,
    rpc_timeout=constants.DEFAULT_RPC_TIMEOUT_SEC,
    init_method=constants.DEFAULT_INIT_METHOD,
    **kwargs,
):
    return backend.value.construct_rpc_backend_options_handler(rpc_timeout, init_method, **kwargs)


def init_backend(backend, *args, **kwargs):
    return backend.value.init_backend_handler(*args, **kwargs)


def _construct_options(
    rpc_timeout,
    init_method,
    num_worker_threads=constants.DEFAULT_NUM_WORKER_THREADS,
    _transports=None,
    _channels=None,
    **kwargs,
):
    return TensorPipeRpcBackendOptions(
        rpc_timeout=rpc_timeout, init_method=init_method, num_worker_threads=num_worker_threads
    )


def _init_backend(store, name, rank, world_size, rpc_backend_options):
    if not isinstance(rpc_backend_options, TensorPipeRpcBackendOptions):
        raise TypeError(f"`rpc_backend_options` must be a `TensorPipeRpcBackendOptions`. {rpc_backend_options}")
    agent = Agent(store, name, rank, world_size, rpc_backend_options)
    api._init_rpc_states(agent)
    return agent


register_backend("TENSORPIPE", _construct_options, _init_backend)
