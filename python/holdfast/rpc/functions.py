"""Decorators for functions that others call."""
import functools


def async_execution(fn):
    """Marks a function that returns a ``torch.futures.Future``: whoever calls it gets the future's value when that is
    there, and meanwhile no thread of the callee waits.

    With ``@staticmethod`` or ``@classmethod`` this is the inner decorator.
    """

    @functools.wraps(fn)
    def wrapper(*args, **kwargs):
        return fn(*args, **kwargs)

    wrapper._wrapped_async_rpc_function = fn  # how callers and callees recognise it
    return wrapper
