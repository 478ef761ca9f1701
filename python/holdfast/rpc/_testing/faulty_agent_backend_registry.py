"""Registers the backend FAULTY_TENSORPIPE."""
from .. import api, backend_registry
from ..agent import Agent
from ..options import FaultyTensorPipeRpcBackendOptions


def _construct_options(
    rpc_timeout, init_method, num_worker_threads, messages_to_fail, messages_to_delay, num_fail_sends, **kwargs
):
    return FaultyTensorPipeRpcBackendOptions(
        num_worker_threads=num_worker_threads,
        rpc_timeout=rpc_timeout,
        init_method=init_method,
        messages_to_fail=messages_to_fail,
        messages_to_delay=messages_to_delay,
        num_fail_sends=num_fail_sends,
    )


def _init_backend(store, name, rank, world_size, rpc_backend_options):
    if not isinstance(rpc_backend_options, FaultyTensorPipeRpcBackendOptions):
        raise TypeError(f"`rpc_backend_options` must be a `FaultyTensorPipeRpcBackendOptions`. {rpc_backend_options}")
    agent = Agent(store, name, rank, world_size, rpc_backend_options)
    api._init_rpc_states(agent)
    return agent


backend_registry.register_backend("FAULTY_TENSORPIPE", _construct_options, _init_backend)
