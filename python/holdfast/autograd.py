"""Distributed autograd: the interface of ``torch.distributed.autograd``, on Holdfast."""
import threading

import torch

from . import _core
from .rpc import state

_open = {}  # contexts made by this process, until they end
_open_lock = threading.Lock()


def is_available() -> bool:
    return True


def _init(worker_id: int):
    """A step of init_rpc() that programs know by name."""


def _worker():
    return state.current_agent().worker


class DistAutogradContext:
    """A context, for those who look at what it has recorded."""

    def __init__(self, context_id: int):
        self._id = context_id

    def _context_id(self) -> int:
        return self._id

    def _send_functions(self):
        return _core.send_functions(_worker(), self._id)

    def _recv_functions(self):
        return _core.recv_functions(_worker(), self._id)

    def _known_worker_ids(self):
        return set(_core.known_workers(_worker(), self._id))


def _new_context() -> DistAutogradContext:
    if _core.current_context() is not None:
        raise RuntimeError("Already have an autograd context id for this thread.")
    opened = _core.OpenContext(_worker())
    with _open_lock:
        _open[opened.id] = opened
    return DistAutogradContext(opened.id)


def _release_context(context_id: int):
    with _open_lock:
        opened = _open.pop(context_id, None)
    if opened is None:
        _no_such_context(context_id)
    opened.close()


def _no_such_context(context_id):
    raise RuntimeError(f"Could not find autograd context with id: {context_id}")


def _retrieve_context(context_id: int) -> DistAutogradContext:
    _core.has_context(_worker(), context_id)
    return DistAutogradContext(context_id)


def _current_context() -> DistAutogradContext:
    context_id = _core.current_context()
    if context_id is None:
        raise RuntimeError("this thread is in no autograd context: use `with context() as context_id`")
    return DistAutogradContext(context_id)


def _is_valid_context(context_id: int) -> bool:
    try:
        _core.has_context(_worker(), context_id)
    except RuntimeError:
        return False
    return True


def _get_max_id() -> int:
    return (1 << 48) - 1 + (state.current_agent().info.id << 48)


def _get_debug_info():
    contexts, passes = _core.autograd_counts(_worker())
    return {"num_autograd_contexts": str(contexts), "num_current_backward_passes": str(passes)}


class context:
    """One distributed forward and backward: ``with context() as context_id``. Calls made in the block, and what they
    call, belong to it."""

    def __enter__(self) -> int:
        self._id = _new_context()._id
        return self._id

    def __exit__(self, *_):
        _release_context(self._id)


def _check_roots(roots):
    if not roots:
        raise RuntimeError("No tensors provided for gradient computation.")
    for root in roots:
        if not isinstance(root, torch.Tensor):
            continue  # the core says what it wants
        if not root.requires_grad:
            raise RuntimeError("requires_grad not set on root")
        if root.numel() != 1:
            raise RuntimeError(f"{root} is not a scalar, all roots need to be scalar")
        if root.grad_fn is None:
            raise RuntimeError(f"{root} does not have a valid gradient function.")


def backward(context_id: int, roots, retain_graph: bool = False):
    """Runs the backward pass of the context, from scalar tensors of this worker, over all workers that took part.
    Gradients gather in the context: see ``get_gradients``."""
    worker = _worker()
    if isinstance(roots, (list, tuple)) and isinstance(context_id, int):
        _core.has_context(worker, context_id)
        _check_roots(roots)
    try:
        if torch.autograd._profiler_enabled():
            with torch.autograd.profiler.record_function("torch::distributed::autograd::backward"):
                _core.backward(worker, context_id, roots, retain_graph)
        else:
            _core.backward(worker, context_id, roots, retain_graph)
    except _core.Error as error:
        if not error.worker:
            raise
        rank = state.current_agent().get_worker_info(error.worker).id
        raise type(error)(f"Error on Node {rank}: {error}") from None


def get_gradients(context_id: int):
    """The gradients that the context has for tensors of this worker: a dict from tensor to gradient."""
    return dict(_core.gradients(_worker(), context_id))
