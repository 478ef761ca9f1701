"""The backend that makes faults on purpose."""
from ..options import FaultyTensorPipeRpcBackendOptions  # noqa: F401
from . import faulty_agent_backend_registry  # noqa: F401


def is_available() -> bool:
    return True
