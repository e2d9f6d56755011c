"""Runs a training with tensors that have no data, to see how much memory it would take: nothing is computed.

Tensors are torch's own fake ones. To torch, all of them are on the CPU; we note which of them the script has put on the
card, a GPU that need not be there. Only small tensors without random numbers have data: a script reads sizes from them,
or takes a branch by them. A script that reads another number gets one of `SUBSTITUTES`.
The process ends after `STEPS` optimizer steps: the first step makes the optimizer's states, the second needs most.
"""

import itertools
import json
import os
import sys
import weakref

from tuner_inside.allocator import Allocator
from tuner_inside.imports import when_imported
from tuner_inside.pretended import pretend_cuda, pretend_loaders, pretend_ranks

STEPS = 2
"""The optimizer steps that the process makes before it ends."""
SMALL = 1 << 16
"""The most elements of a tensor that has data: as many as a large batch has words."""


def install(path):
    """Use fake tensors from torch's import on, and write to the file `path` what torch would take from the card."""
    os.environ.update(PYTORCH_JIT="0", TORCH_COMPILE_DISABLE="1", TORCHDYNAMO_DISABLE="1")
    when_imported("torch", lambda torch: _begin(torch, path))
    # else transformers takes a training for a graph that is traced, and makes masks that are not needed
    when_imported("transformers.utils.import_utils", lambda module: setattr(module, "is_fake_tensor", lambda _: False))


def _begin(torch, path):
    """Enter the modes that make tensors, card, loaders and ranks fake, and end the process after `STEPS` steps.

    The modes last until the process ends. `path`: the file to write the result into, as JSON.
    """
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.optim.optimizer import register_optimizer_step_post_hook

    def dropped(tensor, p, train):
        """Return what dropout returns, and keep the mask for the gradient as CUDA does: one byte for each element."""
        return torch.native_dropout(tensor, p, True)[0] if train and p > 0.0 else tensor

    pretend_loaders()
    FakeTensorMode(allow_non_fake_inputs=True).__enter__()
    pretend_cuda(torch)
    memory = _card_memory(torch)
    memory.library = torch.library.Library("aten", "IMPL")  # torch forgets what it replaces once nobody holds it
    memory.library.impl("dropout", dropped, "AutogradCPU")
    memory.__enter__()
    pretend_ranks(torch)
    _fake_card(torch, memory).__enter__()
    steps = itertools.count(1)

    def end_after_last_step(*_):
        if next(steps) >= STEPS:
            with open(path, "w") as file:
                json.dump({"taken_bytes": memory.allocator.taken}, file)
            sys.stdout.flush()  # `os._exit` does not flush
            os._exit(0)  # at once, without the script's exit handlers and without waiting for its threads

    register_optimizer_step_post_hook(end_after_last_step)


def _card_memory(torch):
    """Return the torch mode that notes which tensors are on the card, and gives them memory there."""
    from torch._subclasses.fake_tensor import FakeTensor, unset_fake_temporarily
    from torch.utils._python_dispatch import TorchDispatchMode
    from torch.utils._pytree import tree_leaves, tree_map_only

    def tensors_in(tree):
        return [leaf for leaf in tree_leaves(tree) if isinstance(leaf, torch.Tensor)]

    class CardMemory(TorchDispatchMode):
        """Adds up the memory of a card that need not be there, to see how much a training would take.

        It gives memory to the tensors on the card: those made there, moved there, or computed from such tensors.
        """

        def __init__(self):
            """Begin with an empty card."""
            super().__init__()
            self.allocator = Allocator()
            self.forced_on_card = None
            """Whether the tensors that are made now are on the card; None where their inputs decide."""
            self._storages = {}
            """A storage's address → a weak reference, and its block of the card's memory, None for one on the host."""
            self._without_known_data = set()
            """The addresses of storages into which an operation has written unknown data, such as random ones."""

        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            """Return the fake results of an operation; torch calls this in place of each of its operations.

            This notes of each result whether it is on the card, and its data if they are known.
            """
            kwargs = kwargs or {}
            results = function(*args, **kwargs)
            made, inputs = tensors_in(results), tensors_in((args, kwargs))
            on_card = any(map(self.has, inputs)) if self.forced_on_card is None else self.forced_on_card
            data = self._real_results(function, args, kwargs, [*inputs, *made])
            for tensor, own_data in zip(made, data or [None] * len(made)):
                self._take_memory(tensor, on_card)
                tensor.own_data = own_data
            if data is None and "non_finite" not in str(function):  # gradients are taken to be finite
                self._note_unknown_data(function, args, kwargs)
            return results

        def has(self, tensor):
            """Return whether a tensor is on the card."""
            storage = _storage(tensor)
            if storage is None:
                return False
            _, block = self._storages.get(storage._cdata, (None, None))
            return block is not None

        def moved(self, tensor, to_card):
            """Return a tensor on the card if `to_card`, else on the host: itself if it is there, else a copy."""
            if self.has(tensor) == to_card:
                return tensor
            return self.make_at(to_card, tensor.clone)

        def make_at(self, on_card, function, *args, **kwargs):
            """Return what `function` returns. Tensors that it makes are on the card if `on_card`, else on the host."""
            outer, self.forced_on_card = self.forced_on_card, on_card  # calls may be nested
            try:
                return function(*args, **kwargs)
            finally:
                self.forced_on_card = outer

        def _take_memory(self, tensor, on_card):
            """Give a new tensor's storage its block of the card, if it is there, until the storage is gone."""
            storage = _storage(tensor)
            if storage is None or storage._cdata in self._storages:  # a view has the storage of its base
                return
            key = storage._cdata
            block = self.allocator.take(storage.nbytes()) if on_card else None
            self._storages[key] = (weakref.ref(storage, lambda _: self._free(key)), block)

        def _free(self, key):
            self._without_known_data.discard(key)
            _, block = self._storages.pop(key)
            if block:
                self.allocator.give(*block)

        def data_of(self, tensor):
            """Return a real tensor with the data of a fake one; None where they are unknown."""
            if not isinstance(tensor, FakeTensor):
                return tensor
            storage = _storage(tensor)
            is_unknown = storage is not None and storage._cdata in self._without_known_data
            return None if is_unknown else getattr(tensor, "own_data", None)

        def _real_results(self, function, args, kwargs, tensors):
            """Return the results of an operation as real tensors, from which the script may read numbers.

            Returns None where the results are random or large, or where the data of an input are unknown. `tensors`:
            all fake tensors of the call, inputs and results.
            """
            # a tensor on `meta` has no data
            is_small = all(tensor.numel() <= SMALL and tensor.device.type == "cpu" for tensor in tensors)
            # what `empty` makes is as good as random
            is_random = torch.Tag.nondeterministic_seeded in function.tags or "empty" in str(function)
            if is_random or not is_small or any(self.data_of(tensor) is None for tensor in tensors_in((args, kwargs))):
                return None
            with unset_fake_temporarily():
                args, kwargs = tree_map_only(FakeTensor, self.data_of, (args, kwargs))
                return tensors_in(function(*args, **kwargs))

        def _note_unknown_data(self, function, args, kwargs):
            """Note that the data of tensors into which an operation wrote, and of all their views, are unknown now."""
            parameters = function._schema.arguments
            values = {**{parameter.name: value for parameter, value in zip(parameters, args)}, **kwargs}
            aliases = [parameter for parameter in parameters if parameter.alias_info]
            written = [values.get(parameter.name) for parameter in aliases if parameter.alias_info.is_write]
            storages = filter(None, map(_storage, tensors_in(written)))
            self._without_known_data |= {storage._cdata for storage in storages} & self._storages.keys()

    return CardMemory()


def _storage(tensor):
    try:
        return tensor.untyped_storage()
    except (RuntimeError, NotImplementedError):  # a sparse tensor has none
        return None


SUBSTITUTES = {"item": 1.0, "__float__": 1.0, "__int__": 0, "__index__": 0, "__bool__": False}
"""Methods that read a number from a tensor → the number that they return where the tensor has no data."""

FP32_NAMES = frozenset(
    "__pow__ __rpow__ pow exp expm1 log log2 log10 log1p reciprocal rsqrt tan sum prod cumsum cumprod norm normalize"
    " softmax log_softmax softmin softplus layer_norm group_norm cross_entropy nll_loss mse_loss l1_loss smooth_l1_loss"
    " binary_cross_entropy_with_logits kl_div cosine_similarity cdist dist".split()
)
"""Functions that CUDA's autocast computes in fp32 (torch's documentation of `torch.amp`, CUDA ops)."""


def _fake_card(torch, memory):
    """Return the torch mode in which each function of torch acts as if the card were there.

    Tensors stay on the fake CPU, casts are those of CUDA's autocast, and reads of data get a number.
    `memory`: the mode of `_card_memory`, which notes which tensors are on the card.
    """
    from torch._subclasses.fake_tensor import unset_fake_temporarily
    from torch.nn import functional
    from torch.overrides import TorchFunctionMode

    substitutes = {getattr(torch.Tensor, name): number for name, number in SUBSTITUTES.items()}
    reading_functions = {*substitutes, torch.Tensor.numpy}
    owners = (torch, torch.Tensor, functional)
    fp32_functions = {getattr(owner, name) for owner in owners for name in FP32_NAMES if hasattr(owner, name)}

    def in_fp32(value):
        """Return a tensor of 16 bits in fp32, and anything else as it is."""
        is_half = isinstance(value, torch.Tensor) and value.dtype in (torch.float16, torch.bfloat16)
        return value.float() if is_half else value

    def is_for_card(values):
        """Return True where the arguments of a call put its result on the card, False for the host, None for no place.

        The first argument that names one decides: a device, its name such as `cuda:0`, the number of a card, or a
        tensor, beside which the result goes.
        """
        for value in values:
            if type(value) is int:  # not a bool, such as `non_blocking`
                return True
            is_device_name = isinstance(value, str) and value.split(":")[0] in ("cuda", "cpu")
            if is_device_name or isinstance(value, torch.device):
                return torch.device(value).type == "cuda"
            if isinstance(value, torch.Tensor):
                return memory.has(value)
        return None

    class FakeCard(TorchFunctionMode):
        """Stands in for each function of torch that the script calls."""

        def __torch_function__(self, function, types, args=(), kwargs=None):
            """Return what a function of torch would return on a card; its tensors are fake, and have no data.

            torch calls this in place of each of its functions. So the script runs as on the card, and its memory there
            can be predicted. `memory` knows the data of the few tensors that the script may read.
            """
            kwargs = dict(kwargs or {})

            # reads of data: the true number where the data are known, else a substitute
            data = memory.data_of(args[0]) if function in reading_functions else None
            if data is not None:
                with unset_fake_temporarily():
                    return function(data)
            if function is torch.Tensor.item and not args[0].is_floating_point():
                return 0  # a whole number: the script may use it as an index
            if function in substitutes:
                return substitutes[function]
            if function is torch.Tensor.numpy:  # zeros, because a tensor without data has no array of its own
                import numpy

                return numpy.zeros(tuple(args[0].shape), "float32" if args[0].is_floating_point() else "int64")

            # places: all stays on the fake CPU, whose memory is never pinned
            if function is torch.Tensor.pin_memory:
                return args[0]
            kwargs.pop("pin_memory", None)
            if function in (torch.Tensor.cuda, torch.Tensor.cpu):
                return memory.moved(args[0], function is torch.Tensor.cuda)
            if function is torch.Tensor.to:
                return self._to(function, args, kwargs)
            if kwargs.get("device") is not None:
                return self._made(function, args, kwargs)

            # computing: on the CPU, these functions would keep other tensors for the gradients than CUDA does
            if function is functional.scaled_dot_product_attention:
                return _attended(torch, *args, **kwargs)
            if function in fp32_functions and torch.is_autocast_enabled("cpu"):  # the CPU's autocast has another list
                args = tuple(map(in_fp32, args))
                kwargs = {name: in_fp32(value) for name, value in kwargs.items()}
            return function(*args, **kwargs)

        def _to(self, function, args, kwargs):
            """Return what `Tensor.to` returns: the tensor in the type and at the place that the call names."""
            to_card = is_for_card([*args[1:], *kwargs.values()])
            types = [value for value in (*args[1:], *kwargs.values()) if isinstance(value, torch.dtype)]
            # `to(other)` takes both from another tensor
            types += [value.dtype for value in args[1:] if isinstance(value, torch.Tensor)]
            converted = function(args[0], types[0]) if types else args[0]
            return converted if to_card is None else memory.moved(converted, to_card)

        def _made(self, function, args, kwargs):
            """Return what a function makes on the device that its arguments name."""
            device = kwargs.pop("device")
            fake_device = "meta" if str(device) == "meta" else "cpu"  # `meta` tensors take no memory anywhere
            return memory.make_at(bool(is_for_card([device])), function, *args, device=fake_device, **kwargs)

    return FakeCard()


def _attended(torch, query, key, value, attn_mask=None, dropout_p=0.0, *more, **settings):
    """Return an attention's output, and let the same tensors be kept for its gradient as on CUDA.

    CUDA has fused kernels, which keep little. They refuse some layouts of a mask, and in fp32 heads that share keys
    (aten/src/ATen/native/transformers/cuda/sdp_utils.cpp). Then CUDA multiplies matrices, and keeps all products.
    """
    from torch.nn import attention

    attend = torch.nn.functional.scaled_dot_product_attention
    has_usual_mask = attn_mask is None or attn_mask.shape[-1] == 1 or attn_mask.stride(-1) == 1
    is_fp32 = query.dtype == torch.float32 and not torch.is_autocast_enabled("cpu")
    heads_share_keys = query.shape[-3] != key.shape[-3]
    if has_usual_mask and not (is_fp32 and heads_share_keys):
        # the CPU has no fused kernel for a mask with a gradient, nor for dropout: CUDA's keep nothing for either
        mask = None if attn_mask is None else attn_mask.detach()
        return attend(query, key, value, mask, 0.0, *more, **settings)
    with attention.sdpa_kernel(attention.SDPBackend.MATH):
        return attend(query, key, value, attn_mask, dropout_p, *more, **settings)
