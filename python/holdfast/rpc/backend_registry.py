"""Backends by name. There is one, Holdfast; it answers to the names that programs use."""
import collections

from . import api, constants
from .agent import Agent
from .options import TensorPipeRpcBackendOptions

BackendValue = collections.namedtuple(
    "BackendValue", ["construct_rpc_backend_options_handler", "init_backend_handler"]
)


class _Members(type):
    """Lets a class be used like an enum that can grow: programs may hold it while more is registered."""

    def __iter__(cls):
        return iter(list(cls.__members__.values()))

    def __getitem__(cls, name):
        return cls.__members__[name]

    def __getattr__(cls, name):
        try:
            return cls.__members__[name]
        except KeyError:
            raise AttributeError(name) from None

    def __len__(cls):
        return len(cls.__members__)


class BackendType(metaclass=_Members):
    """The backends that are registered; ``BackendType.TENSORPIPE`` is the default."""

    __members__ = {}

    def __init__(self, name, value):
        self.name = name
        self.value = value

    def __repr__(self):
        return f"BackendType.{self.name}"


def backend_registered(backend_name) -> bool:
    return backend_name in BackendType.__members__


def register_backend(backend_name, construct_rpc_backend_options_handler, init_backend_handler):
    """Adds a backend: how its options are made, and how its agent is."""
    if backend_registered(backend_name):
        raise RuntimeError(f"RPC backend {backend_name}: already registered")
    value = BackendValue(construct_rpc_backend_options_handler, init_backend_handler)
    BackendType.__members__[backend_name] = BackendType(backend_name, value)
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


def starts_agent(options_class):
    """How a backend with options of that class starts the agent."""

    def init_backend_handler(store, name, rank, world_size, rpc_backend_options):
        if not isinstance(rpc_backend_options, options_class):
            raise TypeError(f"`rpc_backend_options` must be a `{options_class.__name__}`. {rpc_backend_options}")
        agent = Agent(store, name, rank, world_size, rpc_backend_options)
        api._init_rpc_states(agent)
        return agent

    return init_backend_handler


register_backend("TENSORPIPE", _construct_options, starts_agent(TensorPipeRpcBackendOptions))
