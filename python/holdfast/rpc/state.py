"""The worker of this process, for the modules of this package."""
from .. import _core
from .constants import UNSET_RPC_TIMEOUT

_agent = None
_timeout_sec = 60.0


def current_agent():
    if _agent is None:
        raise RuntimeError(
            "Current RPC agent is not set! Did you initialize the RPC framework (e.g. by calling `rpc.init_rpc`)?"
        )
    return _agent


def is_agent_set() -> bool:
    return _agent is not None


def set_agent(agent):
    global _agent
    _agent = agent


def get_rpc_timeout() -> float:
    """The timeout, in seconds, of calls that say none of their own."""
    return _timeout_sec


def set_rpc_timeout(timeout: float):
    global _timeout_sec
    _timeout_sec = float(timeout)


def timeout_of(timeout) -> float:
    return _timeout_sec if timeout is None or timeout == UNSET_RPC_TIMEOUT else float(timeout)


def with_rref_errors(fetch):
    """Runs what uses a value of another worker. That the value was not made in time is said in words of its own."""
    try:
        return fetch()
    except (_core.Timeout, _core.FaultInjected) as error:
        if not hasattr(error, "worker"):
            raise  # not the core's, but what the function there has raised
        raise creation_failed(error) from None


def creation_failed(error):
    """The error, if it is that a value was not made, in words that say so."""
    text = str(error)
    if isinstance(error, _core.FaultInjected) or "was not there in time" in text or "could not be created" in text:
        return type(error)(f"RRef creation via rpc.remote() timed out: {error}")
    return error
