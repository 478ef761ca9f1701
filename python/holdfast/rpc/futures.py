"""The future that ``rpc_async`` returns."""
import asyncio

import torch

from .. import _core


_Base = torch._C.Future


class Future(torch.futures.Future):
    """A ``torch.futures.Future`` that can also be awaited, and whose ``wait()`` never keeps a worker's other calls from
    being served."""

    def __init__(self, *, devices=None):
        _Base.__init__(self, [torch.device(device) for device in devices] if devices else [])

    def wait(self):
        if self.done():
            return _Base.wait(self)
        with _core.Blocking():
            return _Base.wait(self)

    def __await__(self):
        loop = asyncio.get_running_loop()
        waiting = loop.create_future()

        def wake(_):
            loop.call_soon_threadsafe(lambda: waiting.done() or waiting.set_result(None))

        self.add_done_callback(wake)
        yield from waiting
        return self.value()
