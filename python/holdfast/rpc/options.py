"""How a worker is started."""
from typing import Dict, List, Optional

from . import constants, devices as device_options
from .devices import DeviceType


class RpcBackendOptions:
    """What all backends have: the default timeout of calls in seconds, and where workers meet."""

    def __init__(
        self,
        rpc_timeout: float = constants.DEFAULT_RPC_TIMEOUT_SEC,
        init_method: str = constants.DEFAULT_INIT_METHOD,
    ):
        if not isinstance(rpc_timeout, (int, float)):
            raise TypeError(
                f"incompatible constructor arguments: rpc_timeout is a number of seconds, not {type(rpc_timeout)}"
            )
        self.rpc_timeout = float(rpc_timeout)
        self.init_method = init_method


class TensorPipeRpcBackendOptions(RpcBackendOptions):
    """Options of a worker, by the name that programs know. ``_transports`` and ``_channels`` mean nothing here."""

    def __init__(
        self,
        *,
        num_worker_threads: int = constants.DEFAULT_NUM_WORKER_THREADS,
        rpc_timeout: float = constants.DEFAULT_RPC_TIMEOUT_SEC,
        init_method: str = constants.DEFAULT_INIT_METHOD,
        device_maps: Optional[Dict[str, Dict[DeviceType, DeviceType]]] = None,
        devices: Optional[List[DeviceType]] = None,
        _transports: Optional[List] = None,
        _channels: Optional[List] = None,
    ):
        super().__init__(rpc_timeout, init_method)
        if num_worker_threads <= 0:
            raise ValueError(f"num_worker_threads must be positive, but is {num_worker_threads}")
        self.num_worker_threads = num_worker_threads
        self.device_maps = {name: device_options.map_of(entries) for name, entries in (device_maps or {}).items()}
        self.devices = device_options.list_of(devices or [])

    def set_device_map(self, to: str, device_map: Dict[DeviceType, DeviceType]):
        """Adds to which devices of worker ``to`` tensors on devices of this worker go."""
        self.device_maps[to] = device_options.added(self.device_maps.get(to, {}), device_map)

    def set_devices(self, devices: List[DeviceType]):
        """Sets which of its devices this worker uses for calls."""
        self.devices = device_options.list_of(devices)


class FaultyTensorPipeRpcBackendOptions(TensorPipeRpcBackendOptions):
    """Options of a worker that makes faults on purpose: see docs/faults.md."""

    def __init__(
        self,
        num_worker_threads: int = constants.DEFAULT_NUM_WORKER_THREADS,
        rpc_timeout: float = constants.DEFAULT_RPC_TIMEOUT_SEC,
        init_method: str = constants.DEFAULT_INIT_METHOD,
        messages_to_fail: Optional[List[str]] = None,
        messages_to_delay: Optional[Dict[str, float]] = None,
        num_fail_sends: int = 0,
    ):
        super().__init__(num_worker_threads=num_worker_threads, rpc_timeout=rpc_timeout, init_method=init_method)
        self.messages_to_fail = list(messages_to_fail or [])
        self.messages_to_delay = dict(messages_to_delay or {})
        self.num_fail_sends = num_fail_sends
