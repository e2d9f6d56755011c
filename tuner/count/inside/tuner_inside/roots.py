"""Finds the module that an optimizer trains, and which ranks train on the same samples."""

import gc
import sys

MOST_CANDIDATES = 16
"""Modules beyond so many are not asked for their inputs."""
DATA = ("dp", "data", "replicate", "shard")
"""Parts of the names of a mesh's dimensions whose ranks train on samples of their own."""


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
    data_ranks = (find(group, module) for find in (_by_megatron, _by_mesh, _by_wrapper))
    data_rank = 0 if world == 1 else next((rank for rank in data_ranks if rank is not None), None)
    return {"rank": rank, "world": world, "data_rank": data_rank}


def _by_wrapper(group, module):
    """Ask the process group of a wrapper, torch's or DeepSpeed's, whose ranks train on samples of their own."""
    for part in [module, *children([module])] if module is not None else []:
        for name in ("process_group", "data_parallel_group", "seq_data_parallel_group"):
            own = getattr(part, name, None)
            if own is not None and hasattr(own, "size"):
                return group.get_rank(own)
    return None


def _by_megatron(_group, _module):
    state = sys.modules.get("megatron.core.parallel_state") or sys.modules.get("megatron.core.mpu")
    if state is None or not state.model_parallel_is_initialized():
        return None
    return state.get_data_parallel_rank()


def _by_mesh(_group, module):
    """Read the mesh of all ranks over which parameters are spread: names say which of its dimensions are of data."""
    mesh = getattr(next(iter(module.parameters()), None), "device_mesh", None) if module is not None else None
    meshes = getattr(sys.modules.get("torch.distributed.device_mesh"), "_mesh_resources", None)
    if mesh is not None and hasattr(meshes, "get_root_mesh"):
        mesh = meshes.get_root_mesh(mesh)
    names = getattr(mesh, "mesh_dim_names", None) or ()
    if not any(word in name for name in names for word in DATA):
        return None
    rank = 0
    for name, own, size in zip(names, mesh.get_coordinate(), mesh.mesh.shape):
        if any(word in name for word in DATA):
            rank = rank * int(size) + int(own)
    return rank
