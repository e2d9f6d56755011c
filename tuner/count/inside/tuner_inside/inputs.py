"""How many samples a batch has, and what a sample looks like. Only shapes are read: no device is waited for."""

import sys

PICTURE_DIMENSIONS = 3
"""A single picture has a channel, a height and a width."""


def first_tensor(value, depth=4, dimensions=1):
    """Return the first tensor with so many dimensions in a structure of lists and dictionaries; None without one."""
    if is_tensor(value):
        return value if value.dim() >= dimensions else None
    if depth:
        for part in _parts(value):
            tensor = first_tensor(part, depth - 1, dimensions)
            if tensor is not None:
                return tensor
    return None


def is_tensor(value):
    """Return whether a value is a tensor of torch. A TensorDict is none: it is a dictionary of tensors."""
    return isinstance(value, sys.modules["torch"].Tensor)


def samples(value):
    """Return how many samples a batch has; 0 where it has no tensor.

    This is the leading dimension of the first tensor. A list of pictures of their own, or of dictionaries and tuples of
    single samples, has as many samples as entries.
    """
    sizes = getattr(value, "batch_sizes", None)
    if is_tensor(sizes):  # a packed sequence: its first step has all samples
        return int(sizes[0]) if sizes.dim() and sizes.device.type == "cpu" else 0
    graphs = getattr(value, "num_graphs", None)
    if isinstance(graphs, int):  # PyTorch Geometric joins all graphs of a batch into one
        return graphs
    if _is_list_of_samples(value):
        return len(value)
    if isinstance(value, (list, tuple)) and value and _is_list_of_samples(value[0]):
        return len(value[0])
    size = getattr(value, "batch_size", None)
    if not is_tensor(value) and hasattr(size, "numel") and len(size):  # TensorDict
        return int(size[0])
    tensor = first_tensor(value)
    return 0 if tensor is None else int(tensor.shape[0])


def key_of_samples(value):
    """Return where a list or a dictionary has the tensor that leads with the samples; None where that is not sure."""
    tensor = first_tensor(value)
    is_plain = type(tensor) is sys.modules["torch"].Tensor and tensor.dim() not in (0, PICTURE_DIMENSIONS)
    if not is_plain or samples(value) != int(tensor.shape[0]):
        return None
    parts = value.items() if isinstance(value, dict) else enumerate(value) if type(value) in (list, tuple) else ()
    return next((key for key, part in parts if part is tensor), None)


def is_without_batch(value):
    """Return whether the first tensor may be a single sample: it has one dimension, and no other has its size."""
    tensor = first_tensor(value)
    if tensor is None or tensor.dim() != 1 or not tensor.dtype.is_floating_point:
        return False
    tensors = [first_tensor(part) for part in _parts(value)]
    beside = [second for second in tensors if second is not None and second is not tensor]
    return not any(int(second.shape[0]) == int(tensor.shape[0]) for second in beside)


def _is_list_of_samples(value):
    if not isinstance(value, (list, tuple)) or not value:
        return False
    if all(hasattr(part, "keys") for part in value):
        value = [first_tensor(part) for part in value]
    if not all(is_tensor(part) for part in value):
        return False
    shapes = [tuple(part.shape) for part in value]
    if any(len(shape) != PICTURE_DIMENSIONS for shape in shapes):
        return False
    ragged = len({shape[1:] for shape in shapes}) > 1
    return ragged or all(shape[0] in (1, 3, 4) and min(shape[1:]) > shape[0] for shape in shapes)


def sample_form(value, known="", batch_dimension=0):
    """Return the shape of a sample without its batch, and its type: `3x224x224 float32`; empty without a tensor.

    A size that differs from that of the `known` form is `?`, as where each batch has sequences of another length.
    """
    tensor = first_tensor(value, dimensions=2)
    tensor = first_tensor(value) if tensor is None else tensor
    if tensor is None:
        return known
    sizes = [str(int(size)) for place, size in enumerate(tensor.shape) if place != batch_dimension] or ["1"]
    before = known.split(" ")[0].split("x") if known else sizes
    if len(before) == len(sizes):
        sizes = [own if own == before_size else "?" for own, before_size in zip(sizes, before)]
    return "%s %s" % ("x".join(sizes), str(tensor.dtype).replace("torch.", ""))


def _parts(value):
    """Return the parts of a structure in their order; an object's fields where it is no structure."""
    if isinstance(value, (str, bytes, int, float, type(None))):
        return ()
    if hasattr(value, "values") and callable(value.values) and hasattr(value, "keys"):
        main = ("input_ids", "inputs_embeds")  # of a language model: pictures have leading dimensions of their own
        return (*(value[name] for name in main if name in value), *value.values())
    if isinstance(value, (list, tuple)):
        return value
    return tuple(vars(value).values()) if hasattr(value, "__dict__") and not callable(value) else ()
