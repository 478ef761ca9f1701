"""Calls, and the end of them."""
import collections
import contextlib
import functools
import logging
import threading
import time
from types import FunctionType
from typing import Callable, Dict, Set

import torch

from .. import _core
from . import internal, profiling, serve, state
from .constants import DEFAULT_SHUTDOWN_TIMEOUT, UNSET_RPC_TIMEOUT
from .futures import Future
from .internal import PythonUDF, RPCExecMode, _internal_rpc_pickler
from .rref import RRef
from .worker_info import WorkerInfo

logger = logging.getLogger(__name__)

# Whether shutdown() is silent about values that are still referred to.
_ignore_rref_leak = True
_default_pickler = _internal_rpc_pickler
_thread_local_var = threading.local()

get_rpc_timeout = state.get_rpc_timeout
_set_rpc_timeout = state.set_rpc_timeout
_is_current_rpc_agent_set = state.is_agent_set
_get_current_rpc_agent = state.current_agent


def _set_and_start_rpc_agent(agent):
    state.set_agent(agent)
    serve.start()


def _reset_current_rpc_agent():
    state.set_agent(None)


def _check_initialized():
    if state._agent is None:
        raise RuntimeError("RPC has not been initialized. Call torch.distributed.rpc.init_rpc first.")


def _require_initialized(func):
    @functools.wraps(func)
    def wrapper(*args, **kwargs):
        _check_initialized()
        return func(*args, **kwargs)

    return wrapper


@contextlib.contextmanager
def _use_rpc_pickler(rpc_pickler):
    """Calls inside the block are pickled by another pickler."""
    global _default_pickler
    _default_pickler = rpc_pickler
    internal.allow_plain(rpc_pickler)
    try:
        yield
    finally:
        _default_pickler = _internal_rpc_pickler
        internal.allow_plain()


# ---- calls


def _to_worker_info(to) -> WorkerInfo:
    if type(to) is str and (info := state.current_agent()._infos.get(to)) is not None:
        return info
    if isinstance(to, WorkerInfo):
        return to
    if isinstance(to, (str, int)):
        return state.current_agent().get_worker_info(to)
    raise ValueError(f"a worker goes by its name, its id or its WorkerInfo, not by {to!r}")


# By the operator's name. There are as many as torch has operators.
_builtins: Dict[str, serve.Builtin] = {}
_find_builtin = torch.jit._builtins._find_builtin


def _callee(func):
    """What is sent in the function's place, and its name for people."""
    name = _find_builtin(func)
    if name is not None:
        builtin = _builtins.get(name)
        if builtin is None:
            builtin = _builtins[name] = serve.Builtin(name)
        return builtin, name
    if type(func) is FunctionType and not func.__dict__:
        return func, func.__qualname__
    wrapped = getattr(func, "_wrapped_async_rpc_function", None)
    if isinstance(wrapped, torch.jit.ScriptFunction):
        name = torch._jit_internal._qualified_name(wrapped)
        return serve.ScriptFunction(name, True), name
    if isinstance(func, torch.jit.ScriptFunction):
        name = torch._jit_internal._qualified_name(func)
        return serve.ScriptFunction(name, False), name
    return func, getattr(func, "__qualname__", None) or repr(func)


def _check_script_arguments(callee, args):
    # What does not fit is found before anything is sent.
    if type(callee) is not serve.ScriptFunction:
        return
    function = torch.jit._state._python_cu.find_function(callee.name)
    if function is None:
        return
    most, given = len(function.schema.arguments), len(args or ())
    if given > most:
        raise RuntimeError(
            f"{function.name}() expected at most {most} argument(s) but received {given} argument(s). "
            f"Declaration: {function.schema}"
        )


def _pack_call(func, args, kwargs):
    """What the core sends if the call is not a plain one."""
    _check_script_arguments(func, args)
    if _default_pickler is _internal_rpc_pickler:
        return internal.pack((func, args or (), kwargs or {}))  # a plain tuple is less to write and to read
    return internal.pack(PythonUDF(func, args or (), kwargs or {}), _default_pickler)


def _check_call(func):
    _check_initialized()
    if not callable(func):
        raise TypeError(f"{func!r} cannot be called")


def rpc_sync(to, func, args=None, kwargs=None, timeout=UNSET_RPC_TIMEOUT):
    """Runs ``func(*args, **kwargs)`` on worker ``to`` (its name, id or WorkerInfo) and returns the result.

    ``func`` is a function that both programs have under the same name, an operator of torch, or a TorchScript function.
    What it raises is raised here, with the remote traceback in its text. ``timeout`` is in seconds; 0: none.
    """
    _check_call(func)
    info = _to_worker_info(to)
    callee, name = _callee(func)
    if profiling.calls_recorded():
        return _start_recorded(RPCExecMode.SYNC, name, info, callee, args, kwargs, timeout).wait()
    if type(callee) is serve.Builtin:
        result = _core.call_op(
            state._agent.worker, info.id, name, tuple(args or ()), kwargs or {}, state.timeout_of(timeout)
        )
        if result is not NotImplemented:
            return result
    return state._agent.worker.call(info.id, callee, args or (), kwargs, state.timeout_of(timeout))


def _start(info, callee, args, kwargs, timeout, convert=None):
    future = Future()
    worker, timeout = state._agent.worker, state.timeout_of(timeout)
    if type(callee) is serve.Builtin:
        if _core.call_op_async(worker, info.id, callee.name, tuple(args or ()), kwargs or {}, timeout, future, convert):
            return future
    worker.call_async(info.id, callee, args or (), kwargs, timeout, future, convert)
    return future


def _start_recorded(mode, name, info, callee, args, kwargs, timeout):
    def start(callee, add):
        return _start(info, callee, args, kwargs, timeout, add)

    return profiling.call(mode, name, info, callee, start)


def rpc_async(to, func, args=None, kwargs=None, timeout=UNSET_RPC_TIMEOUT):
    """The same as ``rpc_sync``, without waiting: returns a future, which can be waited for or awaited."""
    _check_call(func)
    info = _to_worker_info(to)
    callee, name = _callee(func)
    if profiling.calls_recorded():
        future = _start_recorded(RPCExecMode.ASYNC, name, info, callee, args, kwargs, timeout)
    else:
        future = _start(info, callee, args, kwargs, timeout)
    if "future_list" in _thread_local_var.__dict__:  # hasattr() takes its time to say no
        _thread_local_var.future_list.append(future)
    return future


def remote(to, func, args=None, kwargs=None, timeout=UNSET_RPC_TIMEOUT):
    """Runs ``func(*args, **kwargs)`` on worker ``to`` and leaves the result there; returns an RRef to it at once."""
    _check_call(func)
    info = _to_worker_info(to)
    callee, name = _callee(func)
    delay_s = state._agent.delay_to_itself(info, "REMOTE_CALL")
    if delay_s > 0:
        call = functools.partial(func, *(args or ()), **(kwargs or {}))
        key = id(call)
        _late_calls[key] = call
        callee, args, kwargs = _callee(_run_late)[0], (delay_s, key), None
    return _start_remote(info, callee, name, args, kwargs, timeout)


_late_calls: Dict[int, Callable] = {}  # of this process to itself: functions of TorchScript cannot be pickled


def _run_late(delay_s, key):
    call = _late_calls.pop(key)
    time.sleep(delay_s)
    return call()


def _start_remote(info, callee, name, args, kwargs, timeout):
    if type(callee) is serve.ScriptFunction:
        callee.keep = True

    def start(callee):
        if state._agent.fails_to_itself(info, "REMOTE_CALL"):
            return RRef._of(state._agent.worker.never_made(info.id, "REMOTE_CALL to itself failed by fault injection"))
        return RRef._of(
            state._agent.worker.remote(info.id, callee, args or (), kwargs, state.timeout_of(timeout))
        )

    if profiling.calls_recorded():
        return profiling.call_remote(name, info, callee, start)
    return start(callee)


@contextlib.contextmanager
def _wait_all():
    """Waits at the end of the block for all futures that ``rpc_async`` has given in it."""
    _thread_local_var.future_list = []
    try:
        yield
    finally:
        try:
            torch.futures.wait_all(_thread_local_var.future_list)
        finally:
            del _thread_local_var.future_list


@_require_initialized
def get_worker_info(worker_name=None) -> WorkerInfo:
    """Who the worker of that name is; without a name, this one."""
    return state.current_agent().get_worker_info(worker_name)


# ---- all workers together


class AllGatherStates:
    """One gathering: what has come in, and whether all of it is here."""

    def __init__(self):
        self.gathered_objects = {}
        self.proceed_signal = threading.Event()


_ALL_WORKER_NAMES: Set[str] = set()
_LOOK_EVERY_S = 1.0  # who waits for others looks that often whether they are alive
_gather_lock = threading.RLock()
_gather_counts: Dict[str, int] = {}
_gather_states = collections.defaultdict(AllGatherStates)


def _init_rpc_states(agent):
    global _ALL_WORKER_NAMES
    _ALL_WORKER_NAMES = {info.name for info in agent.get_worker_infos()}
    if not _is_current_rpc_agent_set():
        _set_and_start_rpc_agent(agent)


def _gather_to_leader(sequence_id, worker_name, obj, worker_names=None):
    """On the leader: one more has come."""
    with _gather_lock:
        worker_names = worker_names or _ALL_WORKER_NAMES
        assert worker_name in worker_names, f"{worker_name} came to {sequence_id}, which is not for it"
        gathering = _gather_states[sequence_id]
        assert worker_name not in gathering.gathered_objects, f"{worker_name} came twice to {sequence_id}"
        gathering.gathered_objects[worker_name] = obj
        if gathering.gathered_objects.keys() == set(worker_names):
            gathering.proceed_signal.set()


def _broadcast_to_followers(sequence_id, objects_map):
    """On the others: all have come."""
    with _gather_lock:
        gathering = _gather_states[sequence_id]
    assert not gathering.proceed_signal.is_set(), f"{sequence_id} ended twice"
    gathering.gathered_objects = objects_map
    gathering.proceed_signal.set()


def _tell_followers(sequence_id, followers, objects, timeout):
    futures = {
        name: rpc_async(name, _broadcast_to_followers, args=(sequence_id, objects), timeout=timeout)
        for name in followers
    }
    errors = []
    for name, future in futures.items():
        try:
            future.wait()
        except RuntimeError as error:
            # Who was lost before it needs to know nothing any more. Who is lost by it has failed in its own way.
            if not isinstance(error, _core.WorkerLost) or error.maybe_executed:
                errors.append((name, error))
    if errors:
        names = [name for name, _ in errors]
        raise RuntimeError(
            f"{', '.join(names)} timed out in _all_gather after {timeout:.2f} seconds: {errors[0][1]}"
        )


def _wait_until_gathered(gathering, worker_names, leader, timeout):
    """Waits for all, and for no one who is lost: such are left out. A leader that is lost is an error."""
    agent = state.current_agent()
    deadline = None if timeout is None else time.monotonic() + timeout
    while True:
        left = _LOOK_EVERY_S if deadline is None else min(_LOOK_EVERY_S, deadline - time.monotonic())
        with _core.Blocking():
            if gathering.proceed_signal.wait(timeout=max(0, left)):
                return
        if deadline is not None and time.monotonic() >= deadline:
            return
        present = {name for name, _ in agent.worker.workers()}
        if leader not in present:
            raise RuntimeError(f"{leader}, which led an _all_gather, is lost")
        with _gather_lock:
            if agent.info.name == leader and present & worker_names <= gathering.gathered_objects.keys():
                gathering.proceed_signal.set()


@_require_initialized
def _all_gather(obj, worker_names=None, timeout=UNSET_RPC_TIMEOUT):
    """Gives every one of the workers (all, if none are named) what each of them has called this with, by name.

    The worker whose name comes first leads: the others bring it theirs, and it hands out the whole.
    """
    worker_names = set(worker_names or _ALL_WORKER_NAMES)
    leader = min(worker_names)
    own_name = state.current_agent().info.name
    with _gather_lock:
        key = "".join(sorted(worker_names))
        count = _gather_counts.get(key, 0)
        _gather_counts[key] = count + 1
    sequence_id = f"{key}{count}"

    if timeout == UNSET_RPC_TIMEOUT:
        call_timeout, wait_timeout = get_rpc_timeout(), None
    else:
        call_timeout, wait_timeout = timeout, timeout or None

    if own_name == leader:
        _gather_to_leader(sequence_id, own_name, obj, worker_names)
    else:
        rpc_sync(leader, _gather_to_leader, args=(sequence_id, own_name, obj, worker_names), timeout=call_timeout)
    with _gather_lock:
        gathering = _gather_states[sequence_id]
    _wait_until_gathered(gathering, worker_names, leader, wait_timeout)
    if own_name == leader:
        followers = gathering.gathered_objects.keys() - {leader}
        _tell_followers(sequence_id, followers, gathering.gathered_objects, call_timeout)
    with _gather_lock:
        return _gather_states.pop(sequence_id).gathered_objects


@_require_initialized
def _barrier(worker_names):
    """Waits until each of the workers has come here."""
    try:
        _all_gather(None, set(worker_names))
    except RuntimeError as error:
        logger.error(f"not all of {sorted(worker_names)} came to a barrier: {error}")


@_require_initialized
def _wait_all_workers(timeout=DEFAULT_SHUTDOWN_TIMEOUT):
    """Waits until all workers have come here."""
    try:
        _all_gather(None, timeout=timeout)
    except RuntimeError as error:
        logger.error(f"not all workers came to shutdown(): {error}")
        raise


# ---- the end


def _delete_all_user_and_unforked_owner_rrefs(timeout=None):
    """Gives up all references that this worker holds to values of others; a step of shutdown()."""
    state.current_agent().delete_user_rrefs()


@_require_initialized
def shutdown(graceful=True, timeout=DEFAULT_SHUTDOWN_TIMEOUT):
    """Ends this worker. Gracefully: waits until all workers have come here and no call is under way; else at once."""
    agent = state.current_agent()
    try:
        if graceful:
            if agent.is_static_group and not agent.launched:
                _wait_all_workers(timeout)
            _delete_all_user_and_unforked_owner_rrefs()
            agent.join(shutdown=True, timeout=timeout)
    finally:
        agent.shutdown()
        _reset_current_rpc_agent()
    if graceful and not _ignore_rref_leak and agent.leaked_text:
        raise RuntimeError(f"Leaking RRefs: {agent.info.name} shuts down while others refer to\n{agent.leaked_text}")


__all__ = [
    "shutdown",
    "get_worker_info",
    "remote",
    "rpc_sync",
    "rpc_async",
    "RRef",
    "AllGatherStates",
]
