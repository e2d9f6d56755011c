"""How many samples a batch has, and what a sample looks like. Only shapes are read: no device is waited for."""

import sys

PICTURE_DIMENSIONS = 3
"""A single picture has a channel, a height and a width."""


def first_tensor(value, depth=4, dimensions=1):
    """Return the first tensor with at least `dimensions` dimensions in nested lists and dictionaries; None without one.

    `depth` is how many levels are looked into.
    """
    if is_tensor(value):
        return value if value.dim() >= dimensions else None
    if depth:
        for part in _parts(value):
            tensor = first_tensor(part, depth - 1, dimensions)
            if tensor is not None:
                return tensor
    return None


def all_tensors(value, depth=4):
    """Yield the tensors in nested lists and dictionaries; `depth` is how many levels are looked into."""
    if is_tensor(value):
        yield value
    elif depth:
        for part in _parts(value):
            yield from all_tensors(part, depth - 1)


def is_tensor(value):
    """Return whether a value is a tensor of torch. A TensorDict is none: it is a dictionary of tensors."""
    return isinstance(value, sys.modules["torch"].Tensor)


def is_of_function(tensor):
    """Return whether a tensor is an input of a function of `torch.func`: `vmap` hides a dimension, and all its data."""
    functorch = getattr(sys.modules["torch"]._C, "_functorch", None)
    is_wrapped = getattr(functorch, "is_functorch_wrapped_tensor", None)  # None in an older torch
    return is_wrapped is not None and is_wrapped(tensor)


def samples(value):
    """Return how many samples a batch has; 0 where it has no tensor.

    This is the size of the first tensor's leading dimension, with four exceptions, numbered below.
    """
    sizes = getattr(value, "batch_sizes", None)
    if is_tensor(sizes):  # 1. a packed sequence: its first step has all samples; a card's number is not waited for
        return int(sizes[0]) if sizes.dim() and sizes.device.type == "cpu" else 0
    graphs = getattr(value, "num_graphs", None)
    if isinstance(graphs, int):  # 2. PyTorch Geometric joins all graphs of a batch into one
        return graphs
    if _is_list_of_samples(value):  # 3. each entry is a picture, or holds one
        return len(value)
    if isinstance(value, (list, tuple)) and value and _is_list_of_samples(value[0]):  # with its labels beside it
        return len(value[0])
    size = getattr(value, "batch_size", None)
    if not is_tensor(value) and hasattr(size, "numel") and len(size):  # 4. a TensorDict
        return int(size[0])
    tensor = first_tensor(value)
    return 0 if tensor is None else int(tensor.shape[0])


def key_of_samples(value):
    """Return the key or index of the tensor in a batch whose leading dimension is the samples.

    Later batches are then counted by that tensor's shape alone, which is quick. `...` where the batch is the tensor.
    None where that may go wrong: where no such tensor is there, or where a later one may be a single sample.
    """
    tensor = first_tensor(value)
    # with three dimensions it may be a single picture
    is_plain = type(tensor) is sys.modules["torch"].Tensor and tensor.dim() not in (0, PICTURE_DIMENSIONS)
    if not is_plain or samples(value) != int(tensor.shape[0]):
        return None
    if value is tensor:
        return ...
    if hasattr(value, "items"):
        parts = value.items()
    elif type(value) in (list, tuple):
        parts = enumerate(value)
    else:
        return None
    return next((key for key, part in parts if part is tensor), None)


def is_without_batch(value):
    """Return whether the first tensor in a module's inputs may be a single sample, without a dimension of the batch.

    It may be if it has one dimension, if its numbers are fractions and not labels or tokens, and if no other tensor has
    the same size. The labels of a batch would have the same size.
    """
    tensor = first_tensor(value)
    if tensor is None or tensor.dim() != 1 or not tensor.dtype.is_floating_point:
        return False
    tensors = [first_tensor(part) for part in _parts(value)]
    sizes = [int(part.shape[0]) for part in tensors if part is not None and part is not tensor]
    return int(tensor.shape[0]) not in sizes


def _is_list_of_samples(value):
    """Return whether a value is a list of single pictures, or of dictionaries that hold a picture each.

    Tensors of three dimensions are pictures if they have several sizes, or few channels. Others may be batches, as are
    those of one leading size, such as the past and the future of 32 series.
    """
    if not isinstance(value, (list, tuple)) or not value:
        return False
    if all(hasattr(part, "keys") for part in value):
        value = [first_tensor(part) for part in value]
    if not all(is_tensor(part) for part in value):
        return False
    shapes = [tuple(part.shape) for part in value]
    if any(len(shape) != PICTURE_DIMENSIONS for shape in shapes):
        return False
    # grey, RGB or with transparency
    have_few_channels = all(shape[0] in (1, 3, 4) for shape in shapes)
    if len({shape[1:] for shape in shapes}) > 1:
        return have_few_channels or len({shape[0] for shape in shapes}) > 1
    return have_few_channels and all(min(shape[1:]) > shape[0] for shape in shapes)


def common_label(value, least=8):
    """Return the number that stands for all samples of a batch, such as their class where a file has one class alone.

    None where no tensor of one dimension has whole numbers that are all equal, at least `least` of them: fewer may be
    equal by chance (chosen).
    """
    torch = sys.modules["torch"]
    for tensor in all_tensors(value):
        is_label = tensor.dim() == 1 and tensor.dtype in (torch.int64, torch.int32) and tensor.device.type == "cpu"
        if is_label and len(tensor) >= least and bool((tensor == tensor[0]).all()):
            return int(tensor[0])
    return None


def sample_form(value, known="", batch_dimension=0):
    """Return the shape of a sample without its batch, and its type: `3x224x224 float32`.

    `known` is the form of the samples before. A size that differs from it becomes `?`, as in `? int64` for sentences.
    """
    tensor = first_tensor(value, dimensions=2)  # labels have one dimension
    if tensor is None:
        tensor = first_tensor(value)
    if tensor is None:
        return known
    # a batch of one dimension has samples of one number
    sizes = [str(int(size)) for place, size in enumerate(tensor.shape) if place != batch_dimension] or ["1"]
    known_sizes = known.split(" ")[0].split("x") if known else sizes
    if len(known_sizes) == len(sizes):
        sizes = [size if size == known_size else "?" for size, known_size in zip(sizes, known_sizes)]
    return "%s %s" % ("x".join(sizes), str(tensor.dtype).replace("torch.", ""))


def _parts(value):
    """Return the parts of a list, tuple or dictionary in their order; the fields of another object."""
    if isinstance(value, (str, bytes, int, float, type(None))):
        return ()
    if hasattr(value, "values") and callable(value.values) and hasattr(value, "keys"):
        # a language model's words come first: its pictures have leading dimensions of their own
        words = (value[name] for name in ("input_ids", "inputs_embeds") if name in value)
        return (*words, *value.values())
    if isinstance(value, (list, tuple)):
        return value
    is_record = hasattr(value, "__dict__") and not callable(value)  # a function or a module holds no batch
    return tuple(vars(value).values()) if is_record else ()
