"""How a worker is started."""
from typing import Dict, List, Optional, Union

import torch

from . import constants

DeviceType = Union[int, str, torch.device]


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


def _cuda_device(device: DeviceType) -> torch.device:
    device = torch.device(device)
    if device.type != "cuda":
        raise ValueError(f"only CUDA devices can be chosen for calls, not {device}")
    return device


def _device(device: DeviceType) -> torch.device:
    if isinstance(device, int) and device < 0:
        raise RuntimeError(f"Device index must not be negative, but is {device}")
    return torch.device(device)


def _one_to_one(device_map: Dict[DeviceType, DeviceType]) -> Dict[torch.device, torch.device]:
    devices: Dict[torch.device, torch.device] = {}
    sources: Dict[torch.device, torch.device] = {}
    for source, target in device_map.items():
        source, target = _device(source), _device(target)
        if target in sources:
            raise ValueError(f"both {sources[target]} and {source} would go to {target}: a device map is one to one")
        devices[source], sources[target] = target, source
    return devices


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
        self.device_maps = {name: _one_to_one(entries) for name, entries in (device_maps or {}).items()}
        self.devices = [_cuda_device(device) for device in devices or []]

    def set_device_map(self, to: str, device_map: Dict[DeviceType, DeviceType]):
        """Adds to which devices of worker ``to`` tensors on devices of this worker go."""
        known = self.device_maps.get(to, {})
        new = _one_to_one(device_map)
        for source, target in new.items():
            if known.get(source, target) != target:
                raise ValueError(
                    "`set_device_map` only supports 1-to-1 mapping, trying to map "
                    f"{source} to {target} and {known[source]}"
                )
        self.device_maps[to] = {**known, **new}

    def set_devices(self, devices: List[DeviceType]):
        """Sets which of its devices this worker uses for calls."""
        self.devices = [_cuda_device(device) for device in devices]


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
