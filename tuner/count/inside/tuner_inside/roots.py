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
    held = [(sum(id(one) in wanted for one in module.parameters()), module) for module in tops]
    most = max((count for count, _ in held), default=0)
    if most:
        return [module for count, module in held if count == most][:MOST_CANDIDATES]
    sizes = [(sum(one.numel() for one in module.parameters() if one.requires_grad), module) for module in tops]
    largest = max((size for size, _ in sizes), default=0)
    return [module for size, module in sizes if size == largest and largest][:MOST_CANDIDATES]


def _modules():
    base = sys.modules["torch"].nn.Module
    found = []
    for thing in gc.get_objects():
        kind = type(thing)  # asking a dead weak proxy for its class raises
        if isinstance(kind, type) and issubclass(kind, base) and "_modules" in vars(thing):
            found.append(thing)
    return found


def children(modules):
    """Return the modules one level below, which hold trained parameters."""
    found = [child for module in modules for child in module._modules.values() if child is not None]
    return [child for child in found if any(one.requires_grad for one in child.parameters())][:MOST_CANDIDATES]


def ranks(module):
    """Return which rank this process is, and which of the ranks' samples it trains on.

    Returns:
        A dictionary with `rank`, `world`, `data_rank`, `data_world` and `by`, what told the last two. They are None
        where nothing tells them: then ranks may share their samples.
    """
    group = sys.modules.get("torch.distributed")
    if group is None or not group.is_available() or not group.is_initialized():
        return {"rank": 0, "world": 1, "data_rank": 0, "data_world": 1, "by": "one process"}
    rank, world = group.get_rank(), group.get_world_size()
    known = {"rank": rank, "world": world, "data_rank": None, "data_world": None, "by": None}
    if world == 1:
        return dict(known, data_rank=0, data_world=1, by="one process")
    for by, find in (("Megatron", _by_megatron), ("DeepSpeed", _by_deepspeed), ("a device mesh", _by_mesh)):
        found = find(group, module)
        if found is not None:
            return dict(known, data_rank=found[0], data_world=found[1], by=by)
    for part in [module, *children([module])] if module is not None else []:
        own = getattr(part, "process_group", None)
        if own is not None and hasattr(own, "size"):
            return dict(known, data_rank=group.get_rank(own), data_world=own.size(), by=type(part).__name__)
    return known


def _by_megatron(_group, _module):
    state = sys.modules.get("megatron.core.parallel_state") or sys.modules.get("megatron.core.mpu")
    if state is None or not state.model_parallel_is_initialized():
        return None
    return state.get_data_parallel_rank(), state.get_data_parallel_world_size()


def _by_deepspeed(group, module):
    if "deepspeed" not in sys.modules or module is None:
        return None
    own = getattr(module, "data_parallel_group", None) or getattr(module, "seq_data_parallel_group", None)
    return None if own is None else (group.get_rank(own), own.size())


def _by_mesh(_group, module):
    """Read the mesh of parameters that are spread over it: the dimensions of data are those not named as a model's."""
    parameter = next(iter(module.parameters()), None) if module is not None else None
    mesh = getattr(parameter, "device_mesh", None)
    root = _whole_mesh(mesh)
    if root is None:
        return None
    names, place, sizes = root.mesh_dim_names, root.get_coordinate(), root.mesh.shape
    if names is None:
        return (int(place[0]), int(sizes[0])) if len(sizes) == 1 else None
    rank, world = 0, 1
    for name, own, size in zip(names, place, sizes):
        if not any(
            word in name for word in ("tp", "tensor", "cp", "context", "pp", "pipe", "sp", "seq", "ep", "model")
        ):
            rank, world = rank * int(size) + int(own), world * int(size)
    return rank, world


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
