"""DistributedOptimizer: one optimizer over parameters on many workers, as in ``torch.distributed.optim``."""
import collections
import threading

import torch

from . import autograd, rpc


class _LocalOptimizer:
    """The optimizer of one worker's parameters. Lives there."""

    # One step at a time in a process: it lends gradients to parameters that others may use too.
    _step_lock = threading.Lock()

    def __init__(self, optimizer_class, params_rref, *args, **kwargs):
        self._params = [rref.local_value() for rref in params_rref]
        self.optim = optimizer_class(self._params, *args, **kwargs)

    def step(self, context_id):
        gradients = autograd.get_gradients(context_id)
        with self._step_lock:
            kept = [param.grad for param in self._params]
            try:
                for param in self._params:
                    param.grad = gradients.get(param)
                self.optim.step()
            finally:
                for param, gradient in zip(self._params, kept):
                    param.grad = gradient


def _make_local_optimizer(optimizer_class, params_rref, args, kwargs):
    return rpc.RRef(_LocalOptimizer(optimizer_class, params_rref, *args, **kwargs))


def _step_local_optimizer(optimizer_rref, context_id):
    optimizer_rref.local_value().step(context_id)


class DistributedOptimizer:
    """Runs ``optimizer_class(params, *args, **kwargs)`` on each worker that owns some of the parameters.

    ``params_rref`` are RRefs to parameters anywhere; ``step(context_id)`` applies the gradients of that context, on all
    workers at once. What goes wrong on any of them is raised here.
    """

    def __init__(self, optimizer_class, params_rref, *args, **kwargs):
        by_owner = collections.defaultdict(list)
        for rref in params_rref:
            by_owner[rref.owner()].append(rref)
        futures = [
            rpc.rpc_async(owner, _make_local_optimizer, args=(optimizer_class, params, args, kwargs))
            for owner, params in by_owner.items()
        ]
        self.is_functional_optim = False
        self.remote_optimizers = torch.futures.wait_all(futures)

    def step(self, context_id):
        """Applies the gradients of the context to the parameters."""
        if not autograd._is_valid_context(context_id):
            raise RuntimeError(f"Could not find autograd context with id: {context_id}")
        torch.futures.wait_all(
            [
                rpc.rpc_async(optimizer.owner(), _step_local_optimizer, args=(optimizer, context_id))
                for optimizer in self.remote_optimizers
            ]
        )


__all__ = ["DistributedOptimizer"]
