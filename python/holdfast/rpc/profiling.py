"""Calls in profiles of torch's autograd profiler."""
import torch

from . import internal, state


def enabled() -> bool:
    """Whether calls of this thread are to be recorded: by the profiler of old, which threads can join."""
    return torch.autograd._profiler_enabled() and (
        torch._C._autograd._profiler_type() == torch._C._profiler.ActiveProfilerType.LEGACY
    )


def _key(mode, name, info):
    return internal._build_rpc_profiling_key(mode, name, state.current_agent().info.name, info.name)


def call(mode, name, info, start):
    """Starts a call under its key; the event lasts until the result is there."""
    with torch.autograd.profiler.record_function(_key(mode, name, info)) as record:
        return record._call_end_callbacks_on_future(start())


def call_remote(name, info, start):
    with torch.autograd.profiler.record_function(_key(internal.RPCExecMode.REMOTE, name, info)) as record:
        rref = start()
        rref._set_profiling_future(record._call_end_callbacks_on_future(rref._get_future()))
        return rref
