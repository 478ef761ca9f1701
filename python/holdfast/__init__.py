"""Holdfast for Python: programs on many machines that call each other's functions, hold references to each other's
objects, and train one model across all of them.

``holdfast.rpc``, ``holdfast.autograd``, ``holdfast.optim`` and ``holdfast.nn`` have the names, arguments and errors of
``torch.distributed.rpc``, ``.autograd``, ``.optim.DistributedOptimizer`` and ``.nn.RemoteModule``;
``holdfast.compat`` puts them in their place, for programs that are to stay as they are.
"""
import torch  # noqa: F401  first: the extension module uses its libraries

from ._core import (  # noqa: F401
    Cancelled,
    Corrupt,
    Error,
    FaultInjected,
    InvalidArgument,
    NoSuchFunction,
    Overloaded,
    RemoteError,
    RRefDeleted,
    Shutdown,
    Timeout,
    Unavailable,
    WorkerLost,
    lendable,
    loans,
)

__version__ = "0.1.0"
