"""Calls in profiles of torch's autograd profiler: the caller's record shows each call, and what it did on the callee."""
import itertools
import threading
import uuid

import torch
from torch.autograd import profiler_legacy

from .. import _core
from . import internal, state
from .futures import Future

_REMOTE_OP = "#remote_op: "


def enabled() -> bool:
    """Whether calls of this thread are to be recorded: by the profiler of old, which threads can join."""
    return torch.autograd._profiler_enabled() and (
        torch._C._autograd._profiler_type() == torch._C._profiler.ActiveProfilerType.LEGACY
    )


# ---- the caller


class Profiled:
    """A callee that records what it does. ``kept``: under which name its owner keeps the record, for a call whose result
    stays there."""

    __slots__ = ("func", "config", "kept")

    def __init__(self, func, config, kept=None):
        self.func, self.config, self.kept = func, config, kept

    def __reduce__(self):
        return Profiled, (self.func, self.config, self.kept)

    def __call__(self, *args, **kwargs):
        return self.func(*args, **kwargs)


class ProfiledResult:
    """A result, and the record of what led to it."""

    __slots__ = ("value", "events")

    def __init__(self, value, events):
        self.value, self.events = value, events

    def __reduce__(self):
        return ProfiledResult, (self.value, self.events)


def _key(mode, name, info):
    return internal._build_rpc_profiling_key(mode, name, state.current_agent().info.name, info.name)


def call(mode, name, info, callee, start):
    """Starts a call under its key: ``start(callee, convert)`` gives the future of what ``convert`` makes of the result.
    The event lasts until that is there."""
    key = _key(mode, name, info)
    thread = _core.ThreadState()

    def add(result):
        if isinstance(result, ProfiledResult):
            with thread:
                _core.add_events(result.events, key + _REMOTE_OP)
            return result.value
        return result

    with torch.autograd.profiler.record_function(key) as record:
        return record._call_end_callbacks_on_future(start(Profiled(callee, _core.profiler_config()), add))


def call_remote(name, info, callee, start):
    """The same for a call whose result stays there: ``start(callee)`` gives the reference."""
    from .api import rpc_async

    key = _key(internal.RPCExecMode.REMOTE, name, info)
    kept = uuid.uuid4().hex
    thread = _core.ThreadState()
    with torch.autograd.profiler.record_function(key) as record:
        rref = start(Profiled(callee, _core.profiler_config(), kept))
        done = Future()

        def add(future):
            try:
                events = future.value()
                with thread:
                    _core.add_events(events, key + _REMOTE_OP)
            except Exception as error:
                _core.fail_future(done, error)
            else:
                done.set_result(None)

        with _unrecorded():
            rpc_async(info, _take_kept_events, args=(kept,)).add_done_callback(add)
        rref._set_profiling_future(record._call_end_callbacks_on_future(done))
        return rref


_thread = threading.local()


class _unrecorded:
    """Calls in this block are the profiler's own."""

    def __enter__(self):
        _thread.off = True

    def __exit__(self, *_):
        _thread.off = False


def calls_recorded() -> bool:
    return enabled() and not getattr(_thread, "off", False)


# ---- the callee

_kept_events = {}
_kept_changed = threading.Condition()


def _keep_events(kept, events):
    with _kept_changed:
        _kept_events[kept] = events
        _kept_changed.notify_all()


def _take_kept_events(kept):
    with _core.Blocking(), _kept_changed:
        _kept_changed.wait_for(lambda: kept in _kept_events)
        return _kept_events.pop(kept)


def _end(func, lists, value):
    for active in list(_global_records):
        active.extend(lists)
    if not isinstance(func, Profiled):
        return value
    events = _core.pack_events(lists)
    if func.kept is None:
        return ProfiledResult(value, events)
    _keep_events(func.kept, events)
    return value


def run(func, args, kwargs):
    """Runs a call of this worker under the profiler, if it or this whole process is to be recorded."""
    if not isinstance(func, Profiled) and not _global_records:
        return func(*args, **kwargs)
    config = func.config if isinstance(func, Profiled) else _global_configs[-1]
    recording = _core.Recording(config)
    try:
        value = func(*args, **kwargs)
    except BaseException:
        _end(func, recording.end(), None)
        raise
    if not is_async(func) or not isinstance(value, torch._C.Future):
        return _end(func, recording.end(), value)

    recording.leave()
    result = Future()

    def finish(future):
        try:
            result.set_result(_end(func, recording.end_elsewhere(), future.value()))
        except Exception as error:
            _core.fail_future(result, error)

    value.add_done_callback(finish)
    return result


def is_async(func) -> bool:
    """Whether a callee gives its result through a future."""
    if isinstance(func, Profiled):
        func = func.func
    return getattr(func, "_wrapped_async_rpc_function", None) is not None


# ---- all calls that this process serves

_global_records = []  # of each profile that is on: a list of lists of events
_global_configs = []


def _enable_server_process_global_profiler(config):
    _global_configs.append(_core.profiler_config_of(config))
    _global_records.append([])
    _core.set_operator_observer(lambda operator: run(operator, (), {}))


def _disable_server_process_global_profiler():
    _global_configs.pop()
    if not _global_configs:
        _core.set_operator_observer(None)
    return _global_records.pop()


class _server_process_global_profile(profiler_legacy.profile):
    """A profile of all calls that this process serves, on whichever thread. ``function_events`` has them all,
    ``process_global_function_events`` has them by call."""

    def __enter__(self):
        if not self.enabled:
            return None
        if self.entered:
            raise RuntimeError("this profile has been used already: make another one")
        self.entered = True
        kind = torch.autograd.ProfilerState.CUDA if self.use_cuda else torch.autograd.ProfilerState.CPU
        _enable_server_process_global_profiler(
            torch.autograd.ProfilerConfig(
                kind, self.record_shapes, self.profile_memory, False, False, False, torch.profiler._ExperimentalConfig()
            )
        )
        return self

    def __exit__(self, exc_type, exc_val, exc_tb):
        if not self.enabled:
            return None
        by_call = []
        for record in _disable_server_process_global_profiler():
            events = profiler_legacy._parse_legacy_records([record])
            events.sort(key=lambda event: (event.time_range.start, -event.time_range.end))
            by_call.append(events)
        self.process_global_function_events = by_call
        self.function_events = torch.autograd.profiler_util.EventList(
            list(itertools.chain(*by_call)), use_cuda=self.use_cuda, profile_memory=self.profile_memory
        )
        self.function_events._build_tree()
        return False
