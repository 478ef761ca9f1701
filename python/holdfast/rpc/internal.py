"""How values are pickled for calls: tensors and references stay outside of the pickle, and travel beside it."""
import collections
import copyreg
import importlib
import io
import pickle
import sys
import threading
import traceback
from enum import Enum

import torch

from .. import _core

# A call as it travels: what to run on the callee.
PythonUDF = collections.namedtuple("PythonUDF", ["func", "args", "kwargs"])
# A result that is an exception: its text, with the callee's traceback, and its class.
RemoteException = collections.namedtuple("RemoteException", ["msg", "exception_type"])


class RPCExecMode(Enum):
    """The ways to call, as they stand in profiling keys."""

    SYNC = "sync"
    ASYNC = "async"
    ASYNC_JIT = "async_jit"
    REMOTE = "remote"


class _Tables(threading.local):
    """What stays outside of the pickle that this thread writes, or reads."""

    tensors = None
    refs = None
    arrived_tensors = ()
    arrived_refs = ()


_tables = _Tables()


def _tensor_at(index):
    return _tables.arrived_tensors[index]


def _rref_at(index):
    from .rref import RRef

    return RRef._of(_tables.arrived_refs[index], arrived=True)


def _script_module_from(saved):
    return torch.jit.load(io.BytesIO(saved))


def _strided_tensor_at(index, stride):
    # Only the elements that a view shows are sent; here it gets its gaps back.
    tensor = _tables.arrived_tensors[index]
    if tensor.stride() == stride or 0 in stride:
        return tensor
    return torch.empty_strided(tensor.size(), stride, dtype=tensor.dtype, device=tensor.device).copy_(tensor)


def _reduce_tensor(tensor):
    _tables.tensors.append(tensor)
    if tensor.layout is torch.strided and not tensor.is_contiguous():
        return _strided_tensor_at, (len(_tables.tensors) - 1, tensor.stride())
    return _tensor_at, (len(_tables.tensors) - 1,)


def _reduce_rref(rref):
    rref._check_usable("Cannot call fork an UserRRef after deletion.")
    if _tables.refs is None:
        raise RuntimeError("Can not pickle rref in python pickler, it can only be sent in a call")
    _tables.refs.append(rref._ref)
    return _rref_at, (len(_tables.refs) - 1,)


def _reduce_script_module(module):
    buffer = io.BytesIO()
    torch.jit.save(module, buffer)
    return _script_module_from, (buffer.getvalue(),)


class _MissingName(AttributeError):
    """A call names something that this program does not have."""


_MISSING_TEXT = (
    "Default RPC pickler does not serialize function code: functions that are called must be "
    "defined under the same name in the caller and in the callee."
)


class _InternalRPCPickler:
    """Pickles a value into ``(bytes, tensors)`` and back. ``_register_reducer`` adds a way to pickle a class in calls."""

    def __init__(self):
        self._class_reducer_dict = {}
        self._table = None
        self._table_key = None

    def _register_reducer(self, obj_class, reducer):
        self._class_reducer_dict.setdefault(obj_class, reducer)
        if obj_class is torch.Tensor:
            allow_plain()

    def _dispatch_table(self):
        # Made again only when somebody has registered something.
        key = (len(copyreg.dispatch_table), len(self._class_reducer_dict))
        if self._table_key != key:
            from .rref import RRef

            self._table = {
                **copyreg.dispatch_table,
                torch.Tensor: _reduce_tensor,
                RRef: _reduce_rref,
                torch.jit.RecursiveScriptModule: _reduce_script_module,
                **self._class_reducer_dict,
            }
            self._table_key = key
        return self._table

    def serialize(self, obj):
        """The pickle of the value, and its tensors."""
        tables = _tables
        outer = tables.tensors
        tensors = tables.tensors = []
        try:
            buffer = io.BytesIO()
            pickler = pickle.Pickler(buffer, 5)
            pickler.dispatch_table = self._dispatch_table()
            pickler.dump(obj)
            return buffer.getvalue(), tensors
        finally:
            tables.tensors = outer

    def deserialize(self, binary_data, tensor_table):
        """The value. A name that this program does not have gives an ``AttributeError`` as the value."""
        tables = _tables
        outer = tables.arrived_tensors
        tables.arrived_tensors = tensor_table
        try:
            return pickle.loads(binary_data)
        except AttributeError as error:
            missing = _MissingName(f"{error} {_MISSING_TEXT}")
            missing.__cause__ = error
            return missing
        finally:
            tables.arrived_tensors = outer


_internal_rpc_pickler = _InternalRPCPickler()


def serialize(obj):
    """The pickle of the value, and its tensors; its references stay with whoever collects them."""
    return pack(obj)[:2]


def deserialize(binary_data, tensor_table):
    return _internal_rpc_pickler.deserialize(binary_data, tensor_table)


# Their pickles have no parts that could want a place outside.
_PLAIN_TYPES = frozenset((int, float, bool, str, bytes, complex, type(None)))


def pack(obj, pickler=_internal_rpc_pickler):
    """The value as the core sends it: ``(bytes, tensors, references)``."""
    if type(obj) in _PLAIN_TYPES:
        return pickle.dumps(obj, 5), (), ()
    tables = _tables
    outer = tables.refs
    refs = tables.refs = []
    try:
        data, tensors = pickler.serialize(obj)
        return data, tensors, refs
    finally:
        tables.refs = outer


def unpack(data, tensors, refs):
    """The value that was packed elsewhere."""
    tables = _tables
    outer = tables.arrived_refs
    tables.arrived_refs = refs
    try:
        value = _internal_rpc_pickler.deserialize(data, tensors)
    finally:
        tables.arrived_refs = outer
    if type(value) is _MissingName:
        raise RuntimeError(str(value)) from value.__cause__
    return value


def find_function(module, name):
    """The function that a caller means by these names."""
    try:
        return sys.modules[module].__dict__[name]
    except KeyError:
        pass  # not imported yet, or not there
    try:
        return getattr(importlib.import_module(module), name)
    except AttributeError as error:
        raise RuntimeError(f"{error} {_MISSING_TEXT}") from error


def allow_plain(pickler=_internal_rpc_pickler):
    """Lets the core send plain values without a pickle, if calls are pickled by that pickler, and it has no other ideas
    about them."""
    _core.allow_plain(pickler is _internal_rpc_pickler and torch.Tensor not in pickler._class_reducer_dict)


def result(data, tensors, refs):
    """The result of a call; raises what the call has raised."""
    value = unpack(data, tensors, refs)
    if type(value) is RemoteException:
        raise exception_from(value)
    return value


def describe(error, worker):
    """What the caller of a function learns of the exception that it raised."""
    text = f"On {worker}:\n{error!r}\n" + "".join(traceback.format_exception(error))
    # To a caller a TorchScript function is like any other.
    return RemoteException(text, RuntimeError if isinstance(error, torch.jit.Error) else type(error))


def _unescape(text):
    # The repr of an exception has escapes where its text has line ends.
    try:
        return text.encode("ascii").decode("unicode_escape")
    except UnicodeError:
        return text


def exception_from(remote):
    """The exception to raise for a RemoteException: of the same class, with the callee's traceback in its text."""
    text = _unescape(remote.msg)
    try:
        return remote.exception_type(text)
    except Exception:  # its class wants other arguments
        return RuntimeError(text)


def _handle_exception(result):
    if isinstance(result, RemoteException):
        raise exception_from(result)


def _build_rpc_profiling_key(exec_type, func_name, current_worker_name, dst_worker_name):
    """What a call is named in a profile."""
    return f"rpc_{exec_type.value}#{func_name}({current_worker_name} -> {dst_worker_name})"
