"""Devices of tensors: what the options of a worker say of them, and whether that fits those of all others.

Said in the words of torch.distributed.rpc, before anybody joins. The core checks the same once more, for jobs in which
others are C++ programs.
"""
import json
from typing import Dict, List, NamedTuple, Union

import torch

DeviceType = Union[int, str, torch.device]
DeviceMap = Dict[torch.device, torch.device]


def _device(device: DeviceType) -> torch.device:
    if isinstance(device, int) and device < 0:
        raise RuntimeError(f"Device index must not be negative, but is {device}")
    return torch.device(device)


def map_of(device_map: Dict[DeviceType, DeviceType]) -> DeviceMap:
    devices: DeviceMap = {}
    sources: DeviceMap = {}
    for source, target in device_map.items():
        source, target = _device(source), _device(target)
        if target in sources:
            raise ValueError(
                "`device_map` only supports 1-to-1 mapping, trying to map "
                f"{source} and {sources[target]} to {target}"
            )
        devices[source], sources[target] = target, source
    return devices


def added(known: DeviceMap, device_map: Dict[DeviceType, DeviceType]) -> DeviceMap:
    """The map with more entries. What it has already cannot change."""
    new = map_of(device_map)
    for source, target in new.items():
        if known.get(source, target) != target:
            raise ValueError(
                "`set_device_map` only supports 1-to-1 mapping, trying to map "
                f"{source} to {target} and {known[source]}"
            )
    return {**known, **new}


def list_of(devices: List[DeviceType]) -> List[torch.device]:
    chosen = [_device(device) for device in devices]
    for device in chosen:
        if device.type in ("cpu", "meta"):
            raise ValueError(
                "`set_devices` expect a list of CUDA devices, or of another accelerator's, but got "
                f"device type {device.type}."
            )
    return chosen


class Facts(NamedTuple):
    """What a worker tells the others, as text: devices by their names, and how many of each type there are."""

    name: str
    counts: Dict[str, int]
    devices: List[str]
    maps: Dict[str, Dict[str, str]]

    def packed(self) -> str:
        return json.dumps(self)

    @classmethod
    def unpack(cls, packed: str) -> "Facts":
        return cls(*json.loads(packed))


def facts_of(name, counts, options) -> Facts:
    maps = {
        to: {str(source): str(target) for source, target in entries.items()}
        for to, entries in options.device_maps.items()
    }
    return Facts(name, counts, [str(device) for device in options.devices], maps)


def _are_there(devices, counts) -> bool:
    for device in map(torch.device, devices):
        if device.type != "cpu" and (device.index is None or device.index >= counts.get(device.type, 0)):
            return False
    return True


def _check_map(source: Facts, target: Facts, entries: Dict[str, str]):
    def wrong(what, known):
        raise ValueError(
            f"Node {source.name} has {what} in its device map for {target.name}\ndevice map = {entries}\n{known}"
        )

    if len(set(entries.values())) != len(entries):
        wrong("duplicated target devices", "")
    for end, facts, devices in (("source", source, entries.keys()), ("target", target, entries.values())):
        if facts.devices and not set(devices) - {"cpu"} <= set(facts.devices):
            wrong(f"unexpected {end} devices", f"devices = {facts.devices}")
        if not _are_there(devices, facts.counts):
            wrong(f"{end} devices with invalid indices", f"device count = {facts.counts}")


def check(workers: List[Facts]):
    """Raises ValueError for the first thing that does not fit."""
    by_name = {facts.name: facts for facts in workers}
    for facts in workers:
        if len(set(facts.devices)) != len(facts.devices):
            raise ValueError(f"Node {facts.name} has duplicated devices\ndevices = {facts.devices}")
        if not _are_there(facts.devices, facts.counts):
            raise ValueError(
                f"Node {facts.name} has devices with invalid indices\n"
                f"devices = {facts.devices}\ndevice count = {facts.counts}"
            )
    for facts in workers:
        if not facts.maps.keys() <= by_name.keys():
            raise ValueError(
                f"Node {facts.name} has invalid target node names in its device maps\n"
                f"device maps = {list(facts.maps)}\nnode names = {list(by_name)}"
            )
        for to, entries in facts.maps.items():
            _check_map(facts, by_name[to], entries)
