"""rpc inside TorchScript functions: what the operators of core/script_ops.cc do."""
from .rpc import api, profiling, serve
from .rpc.internal import RPCExecMode


def call(to, name, args, kwargs, timeout):
    """``rpc_async`` of a TorchScript function by its qualified name: a future."""
    info = api._to_worker_info(to)
    callee = serve.ScriptFunction(name, False)
    if profiling.calls_recorded():
        return api._start_recorded(RPCExecMode.ASYNC_JIT, name, info, callee, args, kwargs, timeout)
    return api._start(info, callee, args, kwargs, timeout)


def remote(to, name, args, kwargs, timeout):
    """``remote`` of a TorchScript function by its qualified name: an RRef."""
    return api._start_remote(api._to_worker_info(to), serve.ScriptFunction(name, False), name, args, kwargs, timeout)
