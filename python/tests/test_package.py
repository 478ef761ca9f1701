"""Tests of what the package has beyond the interface of torch.distributed.rpc, and of what that suite does not reach."""
import asyncio
import collections
import ctypes
import os
import pathlib
import signal
import tempfile
import time
import unittest
from unittest import mock

import holdfast
import holdfast.rpc as rpc
import torch
from holdfast import autograd, named
from holdfast.rpc import internal, secret, serve
from workers import free_port, with_workers


def add(a, b):
    return a + b


def echo(value):
    return value


def are_one(a, b):
    return a is b


def divmod_of(a, b):
    return divmod(a, b)


Point = collections.namedtuple("Point", ["x", "y"])


def pid():
    return os.getpid()


def fail(text):
    raise KeyError(text)


def hold_gil(holding, pipe):
    """Holds the GIL until somebody opens the named pipe for writing."""
    libc = ctypes.PyDLL(None)  # does not release the GIL around its calls
    open(holding, "w").close()
    libc.open(pipe.encode(), os.O_RDONLY)


kept = []


def keep(tensor):
    kept.append(tensor)


def first_of_kept():
    return kept[0][0].item()


def drop_kept():
    kept.clear()


def write_to_kept(value):
    kept[0][0] = value
    return kept[0][0].item()


class Counter:
    def __init__(self):
        self.count = 0

    def step(self):
        self.count += 1
        return self.count


@named.export("test.mean", "(list<f64>) -> f64")
def mean(values):
    return sum(values) / len(values)


@named.export("test.scale", "(tensor, f64) -> tensor")
def scale(tensor, factor):
    return tensor * factor


class PackageTest(unittest.TestCase):
    @with_workers(2)
    def test_calls_carry_values_errors_and_references(self):
        self.assertEqual(rpc.rpc_sync("worker1", add, args=(1, 2)), 3)
        self.assertTrue(torch.equal(rpc.rpc_async(1, torch.add, args=(torch.ones(2), 1)).wait(), torch.full((2,), 2.0)))
        with self.assertRaisesRegex(KeyError, "On WorkerInfo.*here it is"):
            rpc.rpc_sync("worker1", fail, args=("here it is",))
        counter = rpc.remote("worker1", Counter)
        self.assertEqual([counter.rpc_sync().step() for _ in range(3)], [1, 2, 3])
        self.assertIn("worker1", counter._repr_html_())
        del counter

    @with_workers(2)
    def test_values_arrive_as_they_are(self):
        # Those that the core sends by itself, and those that are pickled, for one reason or another.
        values = [None, True, 7, -(1 << 63), 1.5, "text", "", (), (1, ("a", None, (False, 2.5)))]
        values += [1 << 63, "\ud800", b"bytes", 2j, [1], {"a": (1, 2)}, Point(1, 2), tuple(range(100)), (1, [2]), add]
        for value in values:
            calls = (
                rpc.rpc_sync("worker1", echo, args=(value,)),
                rpc.rpc_sync("worker1", echo, kwargs={"value": value}),
                rpc.rpc_async("worker1", echo, args=(value,)).wait(),
                rpc.rpc_async("worker1", echo, args=[value]).then(lambda future: future.value()).wait(),
                rpc.remote("worker1", echo, args=(value,)).to_here(),
            )
            for result in calls:
                self.assertEqual(result, value)
                self.assertIs(type(result), type(value))
        matrix = torch.arange(6.0).reshape(2, 3)
        for tensor in (matrix, matrix.t(), matrix[:, 1], torch.nn.Parameter(matrix), torch.ones(2).to_sparse()):
            for result in (
                rpc.rpc_sync("worker1", echo, args=(tensor,)),
                rpc.rpc_async("worker1", echo, args=((tensor,),)).wait()[0],
            ):
                self.assertTrue(torch.equal(result.to_dense(), tensor.to_dense()))
                self.assertEqual((type(result), result.layout), (type(tensor), tensor.layout))
                if tensor.layout is torch.strided:
                    self.assertEqual(result.stride(), tensor.stride())
        self.assertTrue(rpc.rpc_sync("worker1", are_one, args=(matrix, matrix)))

    @with_workers(2)
    def test_lendable_tensors_are_shown_and_not_sent(self):
        tensor = holdfast.lendable(torch.ones(1 << 18))
        self.assertTrue(torch.equal(tensor, torch.ones(1 << 18)))
        self.assertTrue(torch.equal(rpc.rpc_sync("worker1", echo, args=(tensor,)), tensor))
        rpc.rpc_sync("worker1", keep, args=(tensor,))
        self.assertEqual(self.wait_for_loans(tensor, 1), 1)
        tensor[0] = 5  # which nobody should do now, but shows that there is no copy
        self.assertEqual(rpc.rpc_sync("worker1", first_of_kept), 5)
        self.assertEqual(rpc.rpc_sync("worker1", write_to_kept, args=(7,)), 7)
        self.assertEqual(tensor[0].item(), 5)
        rpc.rpc_sync("worker1", drop_kept)
        self.assertEqual(self.wait_for_loans(tensor, 0), 0)
        self.assertEqual(holdfast.loans(torch.ones(1)), 0)
        with self.assertRaisesRegex(holdfast.InvalidArgument, "quantised"):
            holdfast.lendable(torch.quantize_per_tensor(torch.ones(2), 1.0, 0, torch.qint8))

    def wait_for_loans(self, tensor, count):
        """Loans end when the receiver's message says so: soon."""
        until = time.monotonic() + 20
        while holdfast.loans(tensor) != count and time.monotonic() < until:
            time.sleep(0.005)
        return holdfast.loans(tensor)

    @with_workers(2)
    def test_other_picklers_are_used_for_plain_values_too(self):
        class Swapping:
            def serialize(self, call):
                return internal.serialize(internal.PythonUDF(call.func, tuple(reversed(call.args)), call.kwargs))

        with rpc.api._use_rpc_pickler(Swapping()):
            self.assertEqual(rpc.rpc_sync("worker1", divmod_of, args=(2, 7)), (3, 1))
        self.assertEqual(rpc.rpc_sync("worker1", divmod_of, args=(7, 2)), (3, 1))

    @with_workers(2)
    def test_futures_can_be_awaited(self):
        async def several():
            return await asyncio.gather(*(_one(i) for i in range(3)))

        async def _one(i):
            return await rpc.rpc_async("worker1", add, args=(i, 10))

        self.assertEqual(asyncio.run(several()), [10, 11, 12])

    @with_workers(2)
    def test_functions_by_name(self):
        self.assertEqual(named.call("worker1", "test.mean", "(list<f64>) -> f64", [1.0, 2.0, 6.0]), 3.0)
        scaled = named.call(1, "test.scale", "(tensor, f64) -> tensor", torch.ones(3), 2.0)
        self.assertTrue(torch.equal(scaled, torch.full((3,), 2.0)))
        with self.assertRaisesRegex(holdfast.Error, "f64"):
            named.call("worker1", "test.mean", "(list<i64>) -> f64", [1])
        with self.assertRaisesRegex(holdfast.RemoteError, "division by zero"):
            named.call("worker1", "test.mean", "(list<f64>) -> f64", [])

    @with_workers(3)
    def test_a_killed_worker_is_lost_and_shutdown_ends(self):
        victim = rpc.rpc_sync("worker2", pid)
        os.kill(victim, signal.SIGKILL)
        with self.assertRaises(holdfast.WorkerLost) as caught:
            while True:
                rpc.rpc_sync("worker2", add, args=(1, 1))
        self.assertIsInstance(caught.exception, RuntimeError)
        self.assertEqual(rpc.rpc_sync("worker1", add, args=(1, 1)), 2)

    @with_workers(2)
    def test_the_core_works_while_a_python_thread_never_lets_go(self):
        # Worker 1 computes a forward in C++, and then a Python function there holds the GIL: the backward pass, and
        # calls of operators, run all the same.
        weight = torch.ones(3, requires_grad=True)
        with autograd.context() as context:
            loss = rpc.rpc_sync("worker1", torch.mul, args=(weight, weight)).sum()
            with tempfile.TemporaryDirectory() as folder:
                holding, pipe = os.path.join(folder, "holding"), os.path.join(folder, "pipe")
                os.mkfifo(pipe)
                holder = rpc.rpc_async("worker1", hold_gil, args=(holding, pipe))
                while not os.path.exists(holding):
                    time.sleep(0.01)
                autograd.backward(context, [loss])
                doubled = rpc.rpc_sync("worker1", torch.add, args=(torch.ones(2), torch.ones(2)))
                self.assertFalse(holder.done())
                os.close(os.open(pipe, os.O_WRONLY))
                holder.wait()
            gradient = autograd.get_gradients(context)[weight]
        self.assertTrue(torch.equal(gradient, torch.full((3,), 2.0)))
        self.assertTrue(torch.equal(doubled, torch.full((2,), 2.0)))

    def test_a_worker_may_refuse_pickles(self):
        with mock.patch.dict(os.environ, {"HOLDFAST_PICKLE": "0"}):
            self.assertFalse(secret.pickle_allowed("", launched=True))
            with self.assertRaisesRegex(RuntimeError, "holdfast run"):
                secret.pickle_allowed("", launched=False)
        serve.install(rpc.WorkerInfo("worker0", 0), pickle_allowed=False)
        serve.start()
        pickled = internal.pack((add, (1, 2), {}))
        for outcome, error in (serve.run(*pickled), serve.run_named(__name__, "add", (1, 2))):
            self.assertEqual(outcome, serve._FAILED)
            self.assertIn("does not decode pickles", error.msg)

    def test_pickles_are_for_those_who_prove_themselves(self):
        with mock.patch.dict(os.environ, {"HOLDFAST_SECURITY": "plain"}):
            with self.assertRaisesRegex(RuntimeError, "HOLDFAST_SECRET_FILE.*HOLDFAST_PICKLE"):
                options = rpc.TensorPipeRpcBackendOptions(init_method=f"tcp://127.0.0.1:{free_port()}")
                rpc.init_rpc("worker0", rank=0, world_size=1, rpc_backend_options=options)
        with tempfile.TemporaryDirectory() as folder, mock.patch.dict(os.environ, {"XDG_STATE_HOME": folder}):
            file = secret.secret_file("127.0.0.1")
            self.assertTrue(file.startswith(folder))
            self.assertEqual(os.stat(file).st_mode & 0o777, 0o600)
            text = pathlib.Path(file).read_text()
            self.assertGreaterEqual(len(text.strip()), 64)
            self.assertEqual(pathlib.Path(secret.secret_file("127.0.0.1")).read_text(), text)
            self.assertTrue(secret.pickle_allowed(file, launched=False))
            # The user's own is no secret that other machines know.
            self.assertEqual(secret.secret_file("192.0.2.1"), "")


if __name__ == "__main__":
    unittest.main()
