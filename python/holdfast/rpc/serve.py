"""What a worker does with calls of Python functions. The core calls these on handler threads.

A handler never raises: what a function raises becomes a result.
"""
import sys
import threading
from types import FunctionType

import torch

from .. import _core
from . import internal, profiling
from .internal import PythonUDF, RemoteException
from .rref import RRef


class Builtin:
    """An operator of torch as a callee: by name, so that the callee needs nothing else."""

    __slots__ = ("name",)

    def __init__(self, name):
        self.name = name

    def __reduce__(self):
        return Builtin, (self.name,)

    def __call__(self, *args, **kwargs):
        operation = _operations.get(self.name)
        if operation is None:
            operation = _operations[self.name] = torch._C._jit_get_operation(self.name)
            if isinstance(operation, tuple):
                operation = _operations[self.name] = operation[0]
        return operation(*args, **kwargs)


class ScriptFunction:
    """A TorchScript function as a callee: by its qualified name in the callee's program. ``keep``: its result stays
    there, with an RRef to it."""

    __slots__ = ("name", "is_async", "keep")

    def __init__(self, name, is_async, keep=False):
        self.name = name
        self.is_async = is_async
        self.keep = keep

    def __reduce__(self):
        return ScriptFunction, (self.name, self.is_async, self.keep)

    @property
    def _wrapped_async_rpc_function(self):
        if not self.is_async:
            raise AttributeError("_wrapped_async_rpc_function")
        return self

    def __call__(self, *args, **kwargs):
        function = torch.jit._state._python_cu.find_function(self.name)
        if function is None:
            raise RuntimeError(f"attempted to get undefined function {self.name.rpartition('.')[2]}")
        keep = self.keep and not self.is_async
        if keep or any(isinstance(arg, RRef) for arg in (*args, *kwargs.values())):
            return _core.run_script_function(self.name, tuple(args), kwargs, keep)
        return function(*args, **kwargs)


_operations = {}
_pickle_allowed = False
_worker_info = None
# Others may call as soon as this worker has joined, a little before init_rpc() is through.
_ready = threading.Event()
_open = False  # it is ready, and takes calls: what each call asks first


def install(worker_info, pickle_allowed=True):
    """Lets the core serve calls of Python functions in the name of that worker."""
    global _worker_info, _pickle_allowed, _open
    _worker_info, _pickle_allowed, _open = worker_info, pickle_allowed, False
    _ready.clear()
    from .api import _pack_call

    _core.set_handlers(run, run_named, finish, _pack_call, pack, internal.result)


def set_worker_info(worker_info):
    global _worker_info
    _worker_info = worker_info


def start():
    """The functions of this package can be used: calls that have come run now."""
    _ready.set()


def _describe(error):
    remote = internal.describe(error, _worker_info)
    print(remote.msg, file=sys.stderr)
    return remote


def _wait_until_ready():
    """Raises if this worker takes no such calls; else returns when it does."""
    global _open
    if not _pickle_allowed:
        raise RuntimeError(f"{_worker_info} does not decode pickles, and so takes no calls of Python functions")
    with _core.Blocking():
        _ready.wait()
    _open = True


# What becomes of a call: its result, what it raised, or a future.
_VALUE, _FAILED, _LATER = range(3)


def _run(func, args, kwargs):
    if type(func) is FunctionType and not func.__dict__ and not profiling._global_records:
        return _VALUE, func(*args, **kwargs)  # nothing about it is special
    result = profiling.run(func, args, kwargs)
    if profiling.is_async(func):
        if not isinstance(result, torch._C.Future):
            if isinstance(func, ScriptFunction):
                raise RuntimeError(
                    f"Async functions must return an IValue of Future type, but got {type(result).__name__}"
                )
            raise RuntimeError(
                "Functions decorated with @rpc.async_function must return a torch.futures.Future object, "
                f"but got {type(result)}"
            )
        return _LATER, result
    return _VALUE, result


def run(data, tensors, refs):
    """Runs a call that was pickled."""
    try:
        if not _open:
            _wait_until_ready()
        return _run(*internal.unpack(data, tensors, refs))
    except Exception as error:
        return _FAILED, _describe(error)


def run_named(module, name, args):
    """Runs a call of the function of that name, with arguments that needed no pickle."""
    try:
        if not _open:
            _wait_until_ready()
        return _run(internal.find_function(module, name), args, {})
    except Exception as error:
        return _FAILED, _describe(error)


def finish(future):
    """What became of a call that ended with a future, which is done."""
    try:
        return _VALUE, future.value()
    except Exception as error:
        return _FAILED, _describe(error)


def pack(value, failed):
    """A result as it is sent, and whether it is an exception; if it cannot be sent, the reason is."""
    try:
        return *internal.pack(value.python() if type(value) is _core.ScriptValue else value), failed
    except Exception as error:
        return *internal.pack(_describe(error)), True


__all__ = ["Builtin", "PythonUDF", "RemoteException", "ScriptFunction", "install", "set_worker_info", "start"]
