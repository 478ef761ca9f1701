"""Runs programs that import ``torch.distributed.rpc`` on Holdfast, as they are.

``python3 -m holdfast.compat script.py ...`` runs a script; ``holdfast.compat.install()`` does the same for what is
imported after it. ``STAND_INS`` lists what takes the place of what.
"""
import importlib
import multiprocessing.spawn
import runpy
import sys

# Module of torch -> module of Holdfast.
STAND_INS = {
    "torch.distributed.rpc": "holdfast.rpc",
    "torch.distributed.rpc.api": "holdfast.rpc.api",
    "torch.distributed.rpc.backend_registry": "holdfast.rpc.backend_registry",
    "torch.distributed.rpc.constants": "holdfast.rpc.constants",
    "torch.distributed.rpc.functions": "holdfast.rpc.functions",
    "torch.distributed.rpc.internal": "holdfast.rpc.internal",
    "torch.distributed.rpc.options": "holdfast.rpc.options",
    "torch.distributed.rpc._testing": "holdfast.rpc._testing",
    "torch.distributed.rpc._testing.faulty_agent_backend_registry": (
        "holdfast.rpc._testing.faulty_agent_backend_registry"
    ),
    "torch.distributed.autograd": "holdfast.autograd",
    "torch.distributed.optim.optimizer": "holdfast.optim",
    "torch.distributed.nn.api.remote_module": "holdfast.nn",
}

_installed = False


def install():
    """Puts Holdfast's modules in the place of torch's, for everything that is imported from now on."""
    global _installed
    if _installed:
        return
    _installed = True
    import torch
    import torch.distributed

    from . import _core, script

    modules = {name: importlib.import_module(stand_in) for name, stand_in in STAND_INS.items()}
    sys.modules.update(modules)
    for name, module in modules.items():
        parent, _, leaf = name.rpartition(".")
        setattr(importlib.import_module(parent), leaf, module)
    torch.distributed.optim.DistributedOptimizer = modules["torch.distributed.optim.optimizer"].DistributedOptimizer
    torch.distributed.nn.RemoteModule = modules["torch.distributed.nn.api.remote_module"].RemoteModule

    _install_in_children()

    # Annotations in TorchScript: RRef[T].
    rref = sys.modules["torch.distributed.rpc"].RRef
    torch._jit_internal.RRef = torch._jit_internal.PyRRef = rref

    # rpc_async and its like in TorchScript.
    autograd = modules["torch.distributed.autograd"]
    _core.install_script_operators(script.call, script.remote, autograd.get_gradients, autograd.backward)
    builtins = torch.jit._builtins._get_builtin_table()
    builtins[id(autograd.get_gradients)] = "aten::get_gradients"
    builtins[id(autograd.backward)] = "aten::dist_backward"

    # What programs see of the graph has the names that they know.
    _core.set_function_form(
        "torch::distributed::autograd::SendRpcBackward", "torch::distributed::autograd::RecvRpcBackward", False
    )


def _install_in_children():
    """Lets processes that multiprocessing starts afresh begin with install()."""
    command_line = multiprocessing.spawn.get_command_line

    def with_install(**arguments):
        command = command_line(**arguments)
        if "-c" in command:
            place = command.index("-c") + 1
            command[place] = f"import holdfast.compat; holdfast.compat.install(); {command[place]}"
        return command

    multiprocessing.spawn.get_command_line = with_install


def main(arguments):
    if not arguments:
        print("usage: python3 -m holdfast.compat script.py [argument...]", file=sys.stderr)
        return 2
    install()
    sys.argv = list(arguments)
    runpy.run_path(arguments[0], run_name="__main__")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
