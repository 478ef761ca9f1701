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
    """A TorchScript function as a callee: by its qualified name in the callee's program."""

    __slots__ = ("name", "is_async")

    def __init__(self, name, is_async):
        self.name = name
        self.is_async = is_async

    def __reduce__(self):
        return ScriptFunction, (self.name, self.is_async)

    @property
    def _wrapped_async_rpc_function(self):
        if not self.is_async:
            raise AttributeError("_wrapped_async_rpc_function")
        return self

    def __call__(self, *args, **kwargs):
        function = torch.jit._state._python_cu.find_function(self.name)
        if function is None:
            raise RuntimeError(f"attempted to get undefined function {self.name.rpartition('.')[2]}")
        if any(isinstance(arg, RRef) for arg in (*args, *kwargs.values())):
            return _core.run_script_function(self.name, tuple(args), kwargs)
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
    _core.set_handlers(run, keep, finish_run, finish_keep, pack_value)


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


def _call(data, tensors, refs):
    if not _open:
        _wait_until_ready()
    func, args, kwargs = internal.unpack(data, tensors, refs)
    if type(func) is FunctionType and not func.__dict__ and not profiling._global_records:
        return func(*args, **kwargs), False  # nothing about it is special
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
        return result, True
    return result, False


def _pack(value):
    try:
        return internal.pack(value)
    except Exception as error:
        return internal.pack(_describe(error))


def run(data, tensors, refs):
    """A call that is answered: the packed result, or a future."""
    try:
        result, is_async = _call(data, tensors, refs)
    except Exception as error:
        return _pack(_describe(error))
    return result if is_async else _pack(result)


def keep(data, tensors, refs):
    """A call whose result stays here: ``(failed, value)``, or a future."""
    try:
        result, is_async = _call(data, tensors, refs)
    except Exception as error:
        return True, _describe(error)
    return result if is_async else (False, result)


def finish_run(future):
    try:
        return _pack(future.value())
    except Exception as error:
        return _pack(_describe(error))


def finish_keep(future):
    try:
        return False, future.value()
    except Exception as error:
        return True, _describe(error)


def pack_value(value, failed):
    """A value that stayed here, for somebody who wants a copy."""
    return _pack(value)


__all__ = ["Builtin", "PythonUDF", "RemoteException", "ScriptFunction", "install", "set_worker_info", "start"]
