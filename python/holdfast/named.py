"""Calls between Python and C++: functions by name, typed by a signature in the wire's own words.

A C++ program exports ``at::Tensor scale(const at::Tensor&, double)`` with ``HOLDFAST_EXPORT_AS(scale, "scale")``; here
``call("worker1", "scale", "(tensor, f64) -> tensor", x, 2.0)`` runs it. ``export`` is the other way round: C++ calls
the Python function by ``peer.call_named<double>("mean", x)``. Nothing is pickled.

Types are bool, i8 to i64, u8 to u64, f32, f64, str, bytes, tensor, nil, list<T>, map<K,V>, tuple<A,B> and optional<T>.
"""
from . import _core
from .rpc import state
from .rpc.constants import UNSET_RPC_TIMEOUT


def call(to, name: str, signature: str, *args, timeout: float = UNSET_RPC_TIMEOUT):
    """Runs a function of worker ``to`` and returns its result. Signatures that differ are an error that shows both."""
    agent = state.current_agent()
    rank = agent.get_worker_info(to).id
    return _core.call_named(agent.worker, rank, name, signature, state.timeout_of(timeout), *args)


def export(name: str, signature: str):
    """A decorator: lets other programs call the function by that name."""

    def add(function):
        _core.export_function(name, signature, function)
        return function

    return add
