"""Registers the backend FAULTY_TENSORPIPE."""
from .. import backend_registry
from ..options import FaultyTensorPipeRpcBackendOptions


def _construct_options(rpc_timeout, init_method, **faults):
    return FaultyTensorPipeRpcBackendOptions(rpc_timeout=rpc_timeout, init_method=init_method, **faults)


backend_registry.register_backend(
    "FAULTY_TENSORPIPE", _construct_options, backend_registry.starts_agent(FaultyTensorPipeRpcBackendOptions)
)
