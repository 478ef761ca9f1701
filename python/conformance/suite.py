"""The test classes that torch ships for torch.distributed.rpc, for the fixtures of its agents on CPU, with Holdfast in
torch's place. Nothing in them is changed; children import this module too, and so get the same place."""
import multiprocessing
import os
import sys

sys.path.append(os.path.dirname(os.path.abspath(__file__)))  # expecttest

import holdfast.compat  # noqa: E402

if not os.environ.get("HOLDFAST_CONFORMANCE_ORIGINAL"):
    holdfast.compat.install()

import torch.testing._internal.common_distributed as common_distributed  # noqa: E402
from torch.testing._internal.distributed import rpc_utils  # noqa: E402
from torch.testing._internal.distributed.rpc.faulty_rpc_agent_test_fixture import (  # noqa: E402
    FaultyRpcAgentTestFixture,
)
from torch.testing._internal.distributed.rpc.tensorpipe_rpc_agent_test_fixture import (  # noqa: E402
    TensorPipeRpcAgentTestFixture,
)


def _start_processes(self):
    # As the class does it, but from a process that has imported torch already: that is most of a test's time.
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])
    self._start_processes(context.Process)


common_distributed.MultiProcessTestCase._spawn_processes = _start_processes

CLASSES = {
    **rpc_utils.generate_tests(
        "TensorPipe",
        TensorPipeRpcAgentTestFixture,
        rpc_utils.GENERIC_TESTS + rpc_utils.TENSORPIPE_TESTS,
        __name__,
    ),
    **rpc_utils.generate_tests("Faulty", FaultyRpcAgentTestFixture, rpc_utils.FAULTY_AGENT_TESTS, __name__),
}
globals().update(CLASSES)
