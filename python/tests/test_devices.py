"""Tensors on devices, from Python. The device is the fake one of the C++ tests (fake_device_test_support.h), which has
three of its kind; HOLDFAST_FAKE_DEVICE names the library that holds it."""
import os
import unittest

import holdfast.rpc as rpc
import torch
from holdfast.rpc.devices import Facts, check
from workers import fork_workers, free_port, with_workers

torch.ops.load_library(os.environ["HOLDFAST_FAKE_DEVICE"])


def fake(index):
    return torch.device("privateuseone", index)


def map_to_worker1(rank, options):
    if rank == 0:
        options.set_device_map("worker1", {fake(0): "privateuseone:1"})
        options.set_device_map("worker1", {fake(1): fake(2)})


def device_of(tensor):
    return str(tensor.device)


def echo(value):
    return value


def make_on(index):
    return torch.ones(3).to(fake(index))


class DevicesTest(unittest.TestCase):
    def expect_ones_on(self, tensor, device):
        self.assertEqual(tensor.device, device)
        self.assertEqual(tensor.cpu().tolist(), [1.0] * 3)

    @with_workers(2, map_to_worker1)
    def test_tensors_go_by_the_map_and_come_back(self):
        for index in (0, 1):
            self.assertEqual(rpc.rpc_sync("worker1", device_of, args=(make_on(index),)), f"privateuseone:{index + 1}")
            self.expect_ones_on(rpc.rpc_sync("worker1", echo, args=(make_on(index),)), fake(index))
            self.expect_ones_on(rpc.rpc_async("worker1", echo, args=(make_on(index),)).wait(), fake(index))
            rref = rpc.remote("worker1", make_on, args=(index + 1,))
            self.expect_ones_on(rref.to_here(), fake(index))
        self.assertEqual(rpc.rpc_sync("worker1", device_of, args=(torch.ones(1),)), "cpu")

    @with_workers(2, map_to_worker1)
    def test_without_an_entry_the_error_says_what_to_set(self):
        with self.assertRaisesRegex(RuntimeError, "privateuseone:2 of worker0.*`set_device_map` on"):
            rpc.rpc_sync("worker1", echo, args=(make_on(2),))
        with self.assertRaisesRegex(RuntimeError, "privateuseone:0 of worker1.*`set_device_map` on"):
            rpc.rpc_sync("worker1", make_on, args=(0,))

    def expect_refused(self, set_options, text):
        """On every worker of a job of two, before it has joined."""
        init_method = f"tcp://127.0.0.1:{free_port()}"

        def join(rank):
            options = rpc.TensorPipeRpcBackendOptions(init_method=init_method)
            set_options(rank, options)
            with self.assertRaisesRegex(ValueError, text):
                rpc.init_rpc(f"worker{rank}", rank=rank, world_size=2, rpc_backend_options=options)
            self.assertFalse(rpc._is_current_rpc_agent_set())

        (child,) = fork_workers([1], join)
        join(0)
        self.assertEqual(os.waitpid(child, 0)[1], 0)

    def test_a_map_for_nobody_is_refused(self):
        self.expect_refused(
            lambda rank, options: rank == 0 and options.set_device_map("nobody", {fake(0): fake(0)}),
            "Node worker0 has invalid target node names in its device maps",
        )

    def test_a_map_to_a_device_that_is_not_used_there_is_refused(self):
        def set_options(rank, options):
            map_to_worker1(rank, options)
            if rank == 1:
                options.set_devices([fake(0)])

        self.expect_refused(set_options, "Node worker0 has unexpected target devices in its device map for worker1")

    def test_what_the_options_take(self):
        options = rpc.TensorPipeRpcBackendOptions(device_maps={"worker1": {0: 1, "cpu": "cpu"}}, devices=[0, "cuda:1"])
        self.assertEqual(options.devices, [torch.device("cuda:0"), torch.device("cuda:1")])
        options.set_device_map("worker1", {1: 0})
        expected = {"cuda:0": "cuda:1", "cpu": "cpu", "cuda:1": "cuda:0"}
        self.assertEqual({str(a): str(b) for a, b in options.device_maps["worker1"].items()}, expected)
        with self.assertRaisesRegex(ValueError, "`set_device_map` only supports 1-to-1 mapping"):
            options.set_device_map("worker1", {0: 0})
        with self.assertRaisesRegex(ValueError, "`device_map` only supports 1-to-1 mapping"):
            options.set_device_map("worker2", {0: 0, 1: 0})
        with self.assertRaisesRegex(ValueError, "`set_devices` expect a list of CUDA devices"):
            options.set_devices(["cpu"])
        with self.assertRaisesRegex(RuntimeError, "Device index must not be negative"):
            options.set_device_map("worker1", {-1: 0})

    def test_what_does_not_fit_is_said_in_the_words_that_programs_know(self):
        def facts(devices=(), maps=None, name="worker0", count=2):
            return Facts(name, {"cuda": count}, list(devices), maps or {})

        other = facts(name="worker1")
        check([facts(["cuda:0", "cuda:1"], {"worker1": {"cuda:0": "cuda:1", "cpu": "cuda:0"}}), other])
        for wrong, text in (
            (facts(["cuda:0", "cuda:0"]), "has duplicated devices"),
            (facts(["cuda:2"]), "has devices with invalid indices"),
            (facts(["cuda"]), "has devices with invalid indices"),
            (facts(maps={"worker1": {"cuda:2": "cuda:0"}}), "source devices with invalid indices .* for worker1"),
            (facts(maps={"worker1": {"cuda:0": "cuda:2"}}), "target devices with invalid indices .* for worker1"),
            (facts(maps={"worker1": {"cuda:0": "cuda:0", "cuda:1": "cuda:0"}}), "duplicated target devices"),
            (facts(["cuda:0"], {"worker1": {"cuda:1": "cuda:0"}}), "unexpected source devices"),
        ):
            with self.assertRaisesRegex(ValueError, "^Node worker0 .*" + text):
                check([wrong, other])
        with self.assertRaisesRegex(ValueError, "target devices with invalid indices"):
            check([facts(maps={"worker1": {"cuda:0": "cuda:0"}}), facts(name="worker1", count=0)])


if __name__ == "__main__":
    unittest.main()
