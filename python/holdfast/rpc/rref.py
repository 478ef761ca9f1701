"""RRef: a reference to an object that lives on one worker, its owner."""
import functools
import time
from typing import Any, Generic, TypeVar

import torch


from .. import _core
from . import functions, internal, state
from .constants import UNSET_RPC_TIMEOUT
from .futures import Future
from .worker_info import WorkerInfo

T = TypeVar("T")


class RRef(Generic[T]):
    """A distributed shared pointer. ``RRef(value)`` makes this worker the owner of the value; ``rpc.remote`` makes one
    elsewhere. It can be sent in calls and results; the value is freed, on its owner, when nobody holds a reference.
    """

    def __init__(self, value: Any, type_hint: Any = None):
        if isinstance(value, torch.jit.ScriptModule) and type_hint is None:
            raise RuntimeError(
                "The RRef being created contains a ScriptModule, must provide its ModuleInterface type hint."
            )
        self._ref = state.current_agent().worker.own(value)
        self._arrived = False
        self._type_hint = type_hint
        self._start()

    @classmethod
    def _of(cls, ref, arrived=False):
        self = cls.__new__(cls)
        self._ref = ref
        self._arrived = arrived
        self._type_hint = None
        self._start()
        return self

    def _start(self):
        self._agent = state.current_agent()
        self._agent.rrefs.add(self)
        self._type_future = None
        self._profiling_future = None

    def _check_usable(self, what):
        if self._ref is None:
            raise RuntimeError(f"{self._deleted_text} has been deleted. {what}")
        error = self._ref.creation_error
        if error is not None:
            raise state.creation_failed(error)

    def _delete(self):
        """Gives the reference up, though somebody still has this object: the worker ends."""
        if self._ref is not None:
            self._deleted_text = self._text()
            self._ref = None

    def is_owner(self) -> bool:
        """Whether the value is here."""
        return self._ref.is_owner

    def owner(self) -> WorkerInfo:
        """The worker that holds the value."""
        return WorkerInfo(self._ref.owner_name, self._ref.owner_rank)

    def owner_name(self) -> str:
        return self._ref.owner_name

    def confirmed_by_owner(self) -> bool:
        """Whether the owner knows of this reference. Of one that came in a call it soon does: this waits for that."""
        if self._ref.is_owner or self._ref.confirmed_by_owner():
            return True
        deadline = time.monotonic() + (state.get_rpc_timeout() if self._arrived else 0)
        while time.monotonic() < deadline and not self._ref.confirmed_by_owner():
            with _core.Blocking():
                time.sleep(0.0005)
        return self._ref.confirmed_by_owner()

    def local_value(self) -> T:
        """The value itself; on its owner only."""
        if not self._ref.is_owner:
            raise RuntimeError(
                f"For {self._text()}, can't call localValue() on user {state.current_agent().info}. "
                f"Call it on owner {self.owner()}"
            )
        value = self._kept_value()
        return value.python() if type(value) is _core.ScriptValue else value

    def _kept_value(self):
        failed, value = state.with_rref_errors(self._ref.local_value)
        if failed:
            raise internal.exception_from(value)
        return value

    def to_here(self, timeout: float = UNSET_RPC_TIMEOUT) -> T:
        """A copy of the value; on its owner the value itself. Waits until it is there."""
        self._check_usable("Cannot call to_here() on it after deletion.")
        if self._ref.is_owner:
            return self.local_value()
        return state.with_rref_errors(lambda: self._ref.fetch(state.timeout_of(timeout)))

    def rpc_sync(self, timeout: float = UNSET_RPC_TIMEOUT):
        """``rref.rpc_sync().method(args)``: runs the method where the value is, and waits for its result."""
        from .api import rpc_sync

        return _Proxy(self, rpc_sync, timeout)

    def rpc_async(self, timeout: float = UNSET_RPC_TIMEOUT):
        """The same; gives a future."""
        from .api import rpc_async

        return _Proxy(self, rpc_async, timeout)

    def remote(self, timeout: float = UNSET_RPC_TIMEOUT):
        """The same; the result stays there, and this gives a reference to it."""
        from .api import remote

        return _Proxy(self, remote, timeout)

    def backward(self, dist_autograd_ctx_id: int = -1, retain_graph: bool = False):
        """Runs a backward pass from the tensor that this refers to. Without a context: a local one, on the owner."""
        from .. import autograd

        if self.is_owner():
            _backward_here(self, dist_autograd_ctx_id, retain_graph)
            return
        if dist_autograd_ctx_id == -1:
            raise RuntimeError("User RRefs require 'dist_autograd_ctx_id' to be specified")
        autograd._retrieve_context(dist_autograd_ctx_id)
        from .api import rpc_sync

        rpc_sync(self.owner(), _backward_here, args=(self, dist_autograd_ctx_id, retain_graph))

    def _get_type(self, timeout: float = UNSET_RPC_TIMEOUT, blocking: bool = True):
        """The class of the value, or a future of it."""
        future = self._type_future
        if future is None or (future.done() and _failed(future)):
            from .api import rpc_async

            if self.is_owner():
                future = Future()
                future.set_result(type(self.local_value()))
            else:
                future = rpc_async(self.owner(), _rref_typeof_on_owner, args=(self,), timeout=timeout)
            self._type_future = future
        return future.wait() if blocking else future

    def _get_future(self):
        """Done when the value is there, or its creation has failed."""
        future = Future()
        self._ref.wait_async(state.get_rpc_timeout(), future)
        return future

    def _set_profiling_future(self, future):
        self._profiling_future = future

    def _get_profiling_future(self):
        return self._profiling_future

    def _serialize(self):
        self._check_usable("Cannot call fork an UserRRef after deletion.")
        return internal.serialize(self)

    def _text(self):
        if self._ref is None:
            return f"{self._deleted_text}, deleted"
        rref_rank, rref_counter, fork_rank, fork_counter = self._ref.ids
        text = f"GloballyUniqueId(created_on={rref_rank}, local_id={rref_counter})"
        if self._ref.is_owner:
            return f"OwnerRRef({text})"
        fork = f"GloballyUniqueId(created_on={fork_rank}, local_id={fork_counter})"
        return f"UserRRef(rref_id={text}, fork_id={fork})"

    def __str__(self):
        return self._text().replace("rref_id=", "RRefId = ").replace("fork_id=", "ForkId = ")

    def __repr__(self):
        return self._text()

    def _repr_html_(self):
        return f"<code>RRef</code> on <b>{self._ref.owner_name}</b> <small>{self._text()}</small>"

    def __reduce_ex__(self, protocol):
        raise RuntimeError("Can not pickle rref in python pickler, rref can only be pickled when it is sent in a call")


def _failed(future):
    try:
        future.value()
    except Exception:
        return True
    return False


def _rref_typeof_on_owner(rref):
    return type(rref.local_value())


def _backward_here(rref, context_id, retain_graph):
    from .. import autograd

    value = rref.local_value()
    if not isinstance(value, torch.Tensor):
        raise RuntimeError("RRef should contain a tensor for .backward()")
    if context_id == -1:
        value.backward(retain_graph=retain_graph)
    else:
        autograd.backward(context_id, [value], retain_graph=retain_graph)


def _invoke(rref, method, args, kwargs):
    return getattr(rref.local_value(), method)(*args, **kwargs)


@functions.async_execution
def _invoke_async(rref, method, args, kwargs):
    return getattr(rref.local_value(), method)(*args, **kwargs)


def _invoker(rref_type, method):
    # Of a ScriptModule only the object itself knows its methods.
    if issubclass(rref_type, (torch.jit.ScriptModule, torch._C.ScriptModule)):
        return _invoke
    is_async = hasattr(getattr(rref_type, method), "_wrapped_async_rpc_function")
    return _invoke_async if is_async else _invoke


class _Proxy:
    """What ``rref.rpc_sync()`` and its like give: attributes are the methods of the value."""

    def __init__(self, rref: RRef, api, timeout: float):
        self._rref = rref
        self._api = api
        self._timeout = timeout

    def __getattr__(self, method):
        return functools.partial(self._start, method)

    def _start(self, method, *args, **kwargs):
        from .api import rpc_async

        def start(rref_type):
            return self._api(
                self._rref.owner(),
                _invoker(rref_type, method),
                args=(self._rref, method, args, kwargs),
                timeout=self._timeout,
            )

        type_future = self._rref._get_type(timeout=self._timeout, blocking=False)
        if self._api is not rpc_async or type_future.done():
            return start(type_future.wait())

        result = Future()

        def pass_on(future):
            try:
                result.set_result(future.value())
            except Exception as error:
                _core.fail_future(result, error)

        def on_type(future):
            try:
                start(future.value()).add_done_callback(pass_on)
            except Exception as error:
                _core.fail_future(result, error)

        type_future.add_done_callback(on_type)
        return result
