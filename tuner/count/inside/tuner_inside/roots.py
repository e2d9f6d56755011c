"""Finds the module that an optimizer trains, and which ranks train on the same samples."""

import gc
import sys

MOST_CANDIDATES = 16
"""At most so many modules are watched for their inputs (chosen)."""
DATA_WORDS = ("dp", "data", "replicate", "shard")
"""Parts of the names of a mesh's dimensions whose ranks train on samples of their own."""


def outermost(optimizer):
    """Return the modules that no other module holds and that have most of an optimizer's parameters: usually one.

    Mixed precision may give the optimizer copies of the parameters, which no module holds. Then the modules with most
    trained parameters are returned.
    """
    optimizer_ids = {id(parameter) for group in optimizer.param_groups for parameter in group["params"]}
    modules = _modules()
    inner_ids = {id(child) for module in modules for child in module._modules.values() if child is not None}
    tops = [module for module in modules if id(module) not in inner_ids]
    sizes = [sum(id(parameter) in optimizer_ids for parameter in module.parameters()) for module in tops]
    if not any(sizes):
        sizes = [_trained_size(module) for module in tops]
    largest = max(sizes, default=0)
    return [module for size, module in zip(sizes, tops) if size == largest > 0][:MOST_CANDIDATES]


def _modules():
    """Return all modules that live in this process."""
    base = sys.modules["torch"].nn.Module
    modules = []
    for thing in gc.get_objects():
        kind = type(thing)  # not __class__, which raises for a dead weak proxy
        if isinstance(kind, type) and issubclass(kind, base) and "_modules" in vars(thing):
            modules.append(thing)
    return modules


def children(modules):
    """Return the direct children of modules that hold trained parameters, up to `MOST_CANDIDATES`."""
    inner = [child for module in modules for child in module._modules.values() if child is not None]
    return [child for child in inner if _trained_size(child)][:MOST_CANDIDATES]


def _trained_size(module):
    return sum(parameter.numel() for parameter in module.parameters() if parameter.requires_grad)


def ranks(module):
    """Return which rank this process is, and which part of the samples it trains on.

    Returns:
        A dictionary with `rank`, `world` (the number of ranks) and `data_rank`. The data rank is None where nothing
        shows it: then several ranks may train on the same samples.
    """
    distributed = sys.modules.get("torch.distributed")
    if distributed is None or not distributed.is_available() or not distributed.is_initialized():
        return {"rank": 0, "world": 1, "data_rank": 0}
    world = distributed.get_world_size()
    answers = (find(distributed, module) for find in (_by_megatron, _by_mesh, _by_wrapper))  # the surest first
    data_rank = 0 if world == 1 else next((answer for answer in answers if answer is not None), None)
    return {"rank": distributed.get_rank(), "world": world, "data_rank": data_rank}


def _by_wrapper(distributed, module):
    """Return this process's rank in the group of a data-parallel wrapper, torch's or DeepSpeed's; None without one.

    The wrapper is the module itself, or one of its children.
    """
    for part in [module, *children([module])] if module is not None else []:
        for name in ("process_group", "data_parallel_group", "seq_data_parallel_group"):
            group = getattr(part, name, None)
            if group is not None and hasattr(group, "size"):
                return distributed.get_rank(group)
    return None


def _by_megatron(_distributed, _module):
    """Return the data rank that Megatron-LM gives this process; None without it."""
    state = sys.modules.get("megatron.core.parallel_state") or sys.modules.get("megatron.core.mpu")
    if state is None or not state.model_parallel_is_initialized():
        return None
    return state.get_data_parallel_rank()


def _by_mesh(_distributed, module):
    """Return the data rank by the mesh of all ranks over which parameters are spread; None without one.

    The names of the mesh's dimensions say which of them are of data.
    """
    mesh = getattr(next(iter(module.parameters()), None), "device_mesh", None) if module is not None else None
    meshes = getattr(sys.modules.get("torch.distributed.device_mesh"), "_mesh_resources", None)
    if mesh is not None and hasattr(meshes, "get_root_mesh"):
        mesh = meshes.get_root_mesh(mesh)
    names = getattr(mesh, "mesh_dim_names", None) or ()
    if not any(word in name for name in names for word in DATA_WORDS):
        return None
    rank = 0
    for name, place, size in zip(names, mesh.get_coordinate(), mesh.mesh.shape):
        if any(word in name for word in DATA_WORDS):
            rank = rank * int(size) + int(place)
    return rank
