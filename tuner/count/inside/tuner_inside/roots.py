"""Finds the module that an optimizer trains, and which ranks train on the same samples."""

import gc
import sys

MOST_CANDIDATES = 16
"""Modules beyond so many are not asked for their inputs."""


def outermost(optimizer):
    """Return the outermost modules that hold an optimizer's parameters: at best one.

    An optimizer may hold copies of the parameters, as mixed precision makes them. Then the outermost modules with
    trained parameters are returned.
    """
    wanted = {id(parameter) for group in optimizer.param_groups for parameter in group["params"]}
    modules = _modules()
    inner = {id(child) for module in modules for child in module._modules.values() if child is not None}
    tops = [module for module in modules if id(module) not in inner]
    held = [(sum(id(parameter) in wanted for parameter in module.parameters()), module) for module in tops]
    most = max((count for count, _ in held), default=0)
    if most:
        return [module for count, module in held if count == most][:MOST_CANDIDATES]
    sizes = [(_size(module), module) for module in tops]
    largest = max((size for size, _ in sizes), default=0)
    return [module for size, module in sizes if size == largest and largest][:MOST_CANDIDATES]


def _modules():
    base = sys.modules["torch"].nn.Module
    modules = []
    for thing in gc.get_objects():
        kind = type(thing)  # asking a dead weak proxy for its class raises
        if isinstance(kind, type) and issubclass(kind, base) and "_modules" in vars(thing):
            modules.append(thing)
    return modules


def children(modules):
    """Return the modules one level below, which hold trained parameters."""
    inner = [child for module in modules for child in module._modules.values() if child is not None]
    return [child for child in inner if _size(child)][:MOST_CANDIDATES]


def _size(module):
    return sum(parameter.numel() for parameter in module.parameters() if parameter.requires_grad)


def ranks(module):
    """Return which rank this process is, and which of the ranks' samples it trains on.

    Returns:
        A dictionary with `rank`, `world` and `data_rank`, which is None where nothing tells it: then ranks may share
        their samples.
    """
    group = sys.modules.get("torch.distributed")
    if group is None or not group.is_available() or not group.is_initialized():
        return {"rank": 0, "world": 1, "data_rank": 0}
    rank, world = group.get_rank(), group.get_world_size()
    data_ranks = (find(group, module) for find in (_by_megatron, _by_deepspeed, _by_mesh, _by_wrapper))
    data_rank = 0 if world == 1 else next((rank for rank in data_ranks if rank is not None), None)
    return {"rank": rank, "world": world, "data_rank": data_rank}


def _by_wrapper(group, module):
    for part in [module, *children([module])] if module is not None else []:
        own = getattr(part, "process_group", None)
        if own is not None and hasattr(own, "size"):
            return group.get_rank(own)
    return None


def _by_megatron(_group, _module):
    state = sys.modules.get("megatron.core.parallel_state") or sys.modules.get("megatron.core.mpu")
    if state is None or not state.model_parallel_is_initialized():
        return None
    return state.get_data_parallel_rank()


def _by_deepspeed(group, module):
    if "deepspeed" not in sys.modules or module is None:
        return None
    own = getattr(module, "data_parallel_group", None) or getattr(module, "seq_data_parallel_group", None)
    return None if own is None else group.get_rank(own)


def _by_mesh(_group, module):
    """Read the mesh of parameters that are spread over it: the dimensions of data are those not named as a model's."""
    parameter = next(iter(module.parameters()), None) if module is not None else None
    mesh = getattr(parameter, "device_mesh", None)
    root = _whole_mesh(mesh)
    if root is None:
        return None
    names, place, sizes = root.mesh_dim_names, root.get_coordinate(), root.mesh.shape
    if names is None:
        return int(place[0]) if len(sizes) == 1 else None
    rank = 0
    for name, own, size in zip(names, place, sizes):
        if not any(
            word in name for word in ("tp", "tensor", "cp", "context", "pp", "pipe", "sp", "seq", "ep", "model")
        ):
            rank = rank * int(size) + int(own)
    return rank


def _whole_mesh(mesh):
    """Return the mesh of all ranks of which a parameter's mesh is a part; None without a mesh."""
    if mesh is None:
        return None
    module = sys.modules.get("torch.distributed.device_mesh")
    resources = getattr(module, "_mesh_resources", None)
    for find in (getattr(mesh, "_get_root_mesh", None), getattr(resources, "get_root_mesh", None)):
        if find is not None:
            try:
                return find() if find.__self__ is mesh else find(mesh)
            except Exception:
                continue
    return mesh
