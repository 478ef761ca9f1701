"""RemoteModule: a module that lives on another worker, as in ``torch.distributed.nn``."""
import inspect
import linecache
import types
from typing import List

import torch
from torch import nn
from torch.distributed import _remote_device

from . import rpc
from .rpc import internal

# What travels when a RemoteModule is sent; everything else stays.
_REMOTE_MODULE_PICKLED_ATTRIBUTES = (
    "on",
    "device",
    "is_device_map_set",
    "is_scriptable",
    "generated_methods",
    "module_rref",
)

# Methods of a module that make no sense for one that is elsewhere.
_UNSUPPORTED = (
    "register_buffer register_parameter add_module apply cuda ipu xpu cpu type float double half bfloat16 to "
    "register_backward_hook register_forward_pre_hook register_forward_hook state_dict load_state_dict "
    "named_parameters buffers named_buffers children named_children modules named_modules requires_grad_ zero_grad "
    "share_memory extra_repr"
).split()


# ---- on the worker that has the module


def _create_module(module_cls, args, kwargs, device):
    module = module_cls(*args, **kwargs)
    if not isinstance(module, nn.Module):
        raise ValueError(
            "Expect `module_cls(*args, **kwargs)` returns an instance of <class nn.Module>, "
            f"but it returns an instance of {type(module)}."
        )
    return module.to(device)


def _run_forward(module_rref, device, is_device_map_set, args, kwargs):
    module = module_rref.local_value()
    place = torch.device(device)
    if place.type == "cpu":
        return module.forward(*args, **kwargs)
    args = [arg.to(place) if isinstance(arg, torch.Tensor) else arg for arg in args]
    kwargs = {key: arg.to(place) if isinstance(arg, torch.Tensor) else arg for key, arg in kwargs.items()}
    result = module.forward(*args, **kwargs)
    if is_device_map_set:
        return result
    if isinstance(result, torch.Tensor):
        return result.cpu()
    return tuple(part.cpu() if isinstance(part, torch.Tensor) else part for part in result)


def _param_rrefs(module_rref, recurse):
    return [rpc.RRef(param) for param in module_rref.local_value().parameters(recurse)]


# ---- on everybody else


def _forward_async(self, *args, **kwargs):
    return rpc.rpc_async(
        self.module_rref.owner(),
        _run_forward,
        args=(self.module_rref, self.device, self.is_device_map_set, args, kwargs),
    )


def _forward(self, *args, **kwargs):
    return rpc.rpc_sync(
        self.module_rref.owner(),
        _run_forward,
        args=(self.module_rref, self.device, self.is_device_map_set, args, kwargs),
    )


# Bound to a RemoteModule they are its attributes of these names, which is how they are pickled then.
_forward_async.__name__ = "forward_async"
_forward.__name__ = "forward"
_GENERATED = (_forward_async, _forward)


def _bind_methods(module):
    for method in module.generated_methods:
        module.__dict__[method.__name__] = types.MethodType(method, module)


def _not_supported(name):
    hint = " Please use ``remote_parameters`` instead." if name == "parameters" else ""

    def method(self, *args, **kwargs):
        raise ValueError(f"Method ``{name}`` not supported for RemoteModule.{hint}")

    method.__name__ = name
    return method


class _RemoteModule(nn.Module):
    """See RemoteModule. With ``_module_interface_cls``, a TorchScript interface, the handle can be scripted too."""

    def __new__(cls, *args, **kwargs):
        return super().__new__(cls)

    def __init__(self, remote_device, module_cls, args=None, kwargs=None, _module_interface_cls=None):
        super().__init__()
        self._place(remote_device)
        self.module_rref = rpc.remote(
            self.on, _create_module, args=(module_cls, args or (), kwargs or {}, self.device)
        )
        self._install(_module_interface_cls)

    def _place(self, remote_device):
        place = _remote_device(remote_device)
        self.on = place.worker_name() if place.worker_name() is not None else place.rank()
        self.device = str(place.device())
        agent = rpc._get_current_rpc_agent()
        self.is_device_map_set = bool(agent.options.device_maps.get(agent.get_worker_info(self.on).name))

    def _install(self, interface):
        self.is_scriptable = interface is not None
        self.generated_methods = _GENERATED
        if self.is_scriptable:
            _install_script_methods(self, interface)
        else:
            _bind_methods(self)

    @staticmethod
    def init_from_module_rref(remote_device, module_rref, _module_interface_cls=None):
        """A RemoteModule for a module that is on another worker already, and that ``module_rref`` refers to."""
        self = object.__new__(RemoteModule)
        nn.Module.__init__(self)
        self._place(remote_device)
        self.module_rref = module_rref
        self._install(_module_interface_cls)
        return self

    def remote_parameters(self, recurse: bool = True) -> List[rpc.RRef]:
        """RRefs to the parameters of the module, for a DistributedOptimizer."""
        return rpc.rpc_sync(self.on, _param_rrefs, args=(self.module_rref, recurse))

    def get_module_rref(self) -> rpc.RRef:
        """The RRef to the module itself."""
        return self.module_rref

    def train(self, mode: bool = True):
        return self.module_rref.rpc_sync().train(mode)

    def eval(self):
        return self.module_rref.rpc_sync().eval()

    @torch.jit.export
    def __getstate__(self):
        raise RuntimeError(
            "Cannot pickle RemoteModule in python pickler. RemoteModule can only be pickled when using RPC"
        )

    @torch.jit.export
    def __setstate__(self, state):
        raise RuntimeError(
            "Cannot unpickle RemoteModule in python pickler. RemoteModule can only be unpickled when using RPC"
        )


for _name in _UNSUPPORTED + ["parameters"]:
    setattr(_RemoteModule, _name, _not_supported(_name))


class RemoteModule(_RemoteModule):
    """Makes ``module_cls(*args, **kwargs)`` on another worker and device (``"worker1/cuda:0"``) and runs it there:
    ``forward`` waits for the result, ``forward_async`` gives a future. Autograd contexts go along."""

    def __init__(self, remote_device, module_cls, args=None, kwargs=None):
        super().__init__(remote_device, module_cls, args, kwargs)


# ---- sent


def _receive(values):
    self = object.__new__(RemoteModule)
    self.__dict__.update(zip(_REMOTE_MODULE_PICKLED_ATTRIBUTES, values))
    _bind_methods(self)
    return self


def _reduce(module):
    if module.is_scriptable:
        raise RuntimeError("Passing a script RemoteModule over RPC is not supported.")
    return _receive, (tuple(getattr(module, name) for name in _REMOTE_MODULE_PICKLED_ATTRIBUTES),)


def _reduce_scripted(module):
    if hasattr(module, "holdfast_handle"):
        raise RuntimeError(
            "Passing a script RemoteModule over RPC is not supported. Send its `get_module_rref()`, and make a RemoteModule "
            "of that with `init_from_module_rref` where it arrives."
        )
    return internal._reduce_script_module(module)


internal._internal_rpc_pickler._register_reducer(RemoteModule, _reduce)
internal._internal_rpc_pickler._register_reducer(_RemoteModule, _reduce)
internal._internal_rpc_pickler._register_reducer(torch.jit.RecursiveScriptModule, _reduce_scripted)


# ---- in TorchScript: the handle's methods have the interface's signature, and leave TorchScript for the call itself

_handles = []  # the RemoteModules that scripts call, by number
_SOURCE = """
@torch.jit.ignore
def call({typed}) -> R:
    return run(handle, {names})

@torch.jit.ignore
def call_async({typed}) -> Future[R]:
    return run_async(handle, {names})

def forward(self, {plain}) -> R:
    return call(self.holdfast_handle, {names})

@torch.jit.export
def forward_async(self, {plain}) -> Future[R]:
    return call_async(self.holdfast_handle, {names})
"""


def _install_script_methods(module, interface):
    signature = inspect.signature(interface.forward)
    parameters = [parameter for name, parameter in signature.parameters.items() if name != "self"]
    # Types and defaults go by name, so that they need not be written as text.
    scope = {
        "__name__": __name__,
        "torch": torch,
        "Future": torch._jit_internal.Future,
        "R": signature.return_annotation,
        "run": lambda handle, *args: _forward(_handles[handle], *args),
        "run_async": lambda handle, *args: _forward_async(_handles[handle], *args),
    }
    plain = []
    for index, parameter in enumerate(parameters):
        scope[f"T{index}"], scope[f"D{index}"] = parameter.annotation, parameter.default
        text = f"{parameter.name}: T{index}"
        plain.append(text if parameter.default is parameter.empty else f"{text} = D{index}")
    source = _SOURCE.format(
        typed=", ".join(["handle: int"] + [f"{each.name}: T{index}" for index, each in enumerate(parameters)]),
        plain=", ".join(plain),
        names=", ".join(each.name for each in parameters),
    )
    # TorchScript reads the source of what it compiles.
    file = f"<RemoteModule {len(_handles)}>"
    linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
    exec(compile(source, file, "exec"), scope)
    _handles.append(module)
    module.holdfast_handle = len(_handles) - 1
    methods = {name: scope[name] for name in ("forward", "forward_async")}
    module.__class__ = type("ScriptableRemoteModule", (_RemoteModule,), methods)
