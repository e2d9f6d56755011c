"""Runs a training with tensors that have no data, to see how much memory it would take: nothing is computed.

Tensors are torch's own fake ones. What the script puts on a GPU stays on the fake CPU, and it reads 1.0, 0 and False.
Only small tensors that hold nothing random have data: a model's sizes come from them, and which way it takes.
The process ends after `STEPS` optimizer steps: the first one makes the optimizer's states, the second one needs most.
"""

import itertools
import json
import os
import sys
import weakref
from types import SimpleNamespace

from tuner_inside.allocator import Allocator
from tuner_inside.imports import when_imported

STEPS = 2
"""The optimizer steps to see."""
SMALL = 1 << 16
"""The most elements of a tensor that has data: as many as a large batch has words."""


def install(path):
    """Use fake tensors from torch's import on, and write to the file `path` what torch would take from the card."""
    os.environ.update(PYTORCH_JIT="0", TORCH_COMPILE_DISABLE="1", TORCHDYNAMO_DISABLE="1")
    when_imported("torch", lambda torch: _begin(torch, path))
    # else transformers takes a training for a graph that is traced, and makes masks that are not needed
    when_imported("transformers.utils.import_utils", lambda module: setattr(module, "is_fake_tensor", lambda _: False))


def _begin(torch, path):
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.optim.optimizer import register_optimizer_step_post_hook

    _pretend_loaders()
    FakeTensorMode(allow_non_fake_inputs=True).__enter__()
    _pretend_cuda(torch)
    memory = _tracker(torch)()
    memory.library = torch.library.Library("aten", "IMPL")  # what it replaces ends with it
    memory.library.impl("dropout", _dropped(torch), "AutogradCPU")
    memory.__enter__()
    _pretend_ranks(torch)
    _redirection(torch, memory)().__enter__()
    steps = itertools.count(1)

    def stepped(*_):
        if next(steps) >= STEPS:
            with open(path, "w") as file:
                json.dump({"taken_bytes": memory.allocator.taken}, file)
            sys.stdout.flush()
            os._exit(0)

    register_optimizer_step_post_hook(stepped)


def _tracker(torch):
    """Return the class of what follows which tensors are on the card."""
    from torch._subclasses.fake_tensor import FakeTensor, unset_fake_temporarily
    from torch.utils._python_dispatch import TorchDispatchMode
    from torch.utils._pytree import tree_leaves, tree_map_only

    class Memory(TorchDispatchMode):
        """Gives memory to the tensors on the card: those made there, moved there, or computed from such tensors."""

        def __init__(self):
            super().__init__()
            self.allocator = Allocator()
            self.forced = None
            """Whether the tensors that are made now are on the card; None where their inputs decide."""
            self._held = {}
            """The storage's address → a weak reference, and its block on the card; None where it is on the host."""

        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            kwargs = kwargs or {}
            made, inputs = tensors_in(results := function(*args, **kwargs)), tensors_in((args, kwargs))
            on_card = any(map(self.has, inputs)) if self.forced is None else self.forced
            data = computed(function, args, kwargs, [*inputs, *made]) or [None] * len(made)
            for tensor, each in zip(made, data):
                self._see(tensor, on_card)
                tensor.own_data = each
            return results

        def has(self, tensor):
            """Return whether a tensor is on the card."""
            storage = _storage(tensor)
            return storage is not None and self._held.get(storage._cdata, (None, None))[1] is not None

        def moved(self, tensor, to_card):
            """Return a tensor on the card, or off it: a copy where it is not there yet."""
            if self.has(tensor) == to_card:
                return tensor
            return self.on_card(tensor.clone, is_card=to_card)

        def on_card(self, make, *args, is_card=True, **kwargs):
            """Return what a function returns, whose tensors are made on the card, or off it."""
            before, self.forced = self.forced, is_card
            try:
                return make(*args, **kwargs)
            finally:
                self.forced = before

        def _see(self, tensor, on_card):
            storage = _storage(tensor)
            if storage is None or storage._cdata in self._held:
                return
            key = storage._cdata
            block = self.allocator.take(storage.nbytes()) if on_card else None
            self._held[key] = (weakref.ref(storage, lambda _: self._free(key)), block)

        def _free(self, key):
            _, block = self._held.pop(key)
            if block:
                self.allocator.give(*block)

    def tensors_in(tree):
        return [each for each in tree_leaves(tree) if isinstance(each, torch.Tensor)]

    def data_of(tensor):
        return getattr(tensor, "own_data", None) if isinstance(tensor, FakeTensor) else tensor

    def computed(function, args, kwargs, tensors):
        """Return the data that a function makes, where all is small and comes from data; else nothing."""
        is_small = all(each.numel() <= SMALL and each.device.type == "cpu" for each in tensors)
        is_random = torch.Tag.nondeterministic_seeded in function.tags or "empty" in str(function)
        if is_random or not is_small or any(data_of(each) is None for each in tensors_in((args, kwargs))):
            return None
        with unset_fake_temporarily():
            args, kwargs = tree_map_only(FakeTensor, data_of, (args, kwargs))
            return tensors_in(function(*args, **kwargs))

    return Memory


def _storage(tensor):
    try:
        return tensor.untyped_storage()
    except (RuntimeError, NotImplementedError):  # a sparse tensor has none
        return None


READ = {"item": 1.0, "__float__": 1.0, "__int__": 0, "__index__": 0, "__bool__": False}
"""Methods that read a number → the number that a fake tensor answers with."""

IN_FLOAT = frozenset(
    "__pow__ __rpow__ pow exp expm1 log log2 log10 log1p reciprocal rsqrt tan sum prod cumsum cumprod norm normalize"
    " softmax log_softmax softmin softplus layer_norm group_norm cross_entropy nll_loss mse_loss l1_loss smooth_l1_loss"
    " binary_cross_entropy_with_logits kl_div cosine_similarity cdist dist".split()
)
"""Functions that CUDA's autocast computes in fp32 (torch's documentation of `torch.amp`, CUDA ops)."""


def _redirection(torch, memory):
    """Return the class of what keeps tensors on the fake CPU, casts as CUDA's autocast does, and answers reads."""
    from torch._subclasses.fake_tensor import unset_fake_temporarily
    from torch.nn import functional
    from torch.overrides import TorchFunctionMode

    reads = {getattr(torch.Tensor, name): answer for name, answer in READ.items()}
    readers = {*reads, torch.Tensor.numpy}
    homes = (torch, torch.Tensor, functional)
    in_float = {getattr(home, name) for home in homes for name in IN_FLOAT if hasattr(home, name)}

    def in_fp32(value):
        """Return a tensor of 16 bits in fp32, and anything else as it is."""
        is_half = isinstance(value, torch.Tensor) and value.dtype in (torch.float16, torch.bfloat16)
        return value.float() if is_half else value

    def card_in(values):
        """Return whether a device among some values is a card, as a number is; None where no value is a device."""
        for value in values:
            if type(value) is int:
                return True
            if isinstance(value, torch.device) or (isinstance(value, str) and value.split(":")[0] in ("cuda", "cpu")):
                return torch.device(value).type == "cuda"
            if isinstance(value, torch.Tensor):
                return memory.has(value)
        return None

    class OnFakeCpu(TorchFunctionMode):
        def __torch_function__(self, function, types, args=(), kwargs=None):
            kwargs = dict(kwargs or {})
            data = getattr(args[0], "own_data", None) if function in readers else None
            if data is not None:
                with unset_fake_temporarily():
                    return function(data)
            if function in reads:
                return 0 if function is torch.Tensor.item and not args[0].is_floating_point() else reads[function]
            if function is torch.Tensor.pin_memory:
                return args[0]
            if function is torch.Tensor.numpy:
                return _zero_array(args[0])
            if function in (torch.Tensor.cuda, torch.Tensor.cpu):
                return memory.moved(args[0], function is torch.Tensor.cuda)
            kwargs.pop("pin_memory", None)
            if function is torch.Tensor.to:
                return self._to(function, args, kwargs)
            if kwargs.get("device") is not None:
                return self._made(function, args, kwargs)
            if function is functional.scaled_dot_product_attention:
                return _attended(torch, *args, **kwargs)
            if function in in_float and torch.is_autocast_enabled("cpu"):
                args = tuple(map(in_fp32, args))
                kwargs = {name: in_fp32(value) for name, value in kwargs.items()}
            return function(*args, **kwargs)

        def _to(self, function, args, kwargs):
            """Return what `Tensor.to` returns: converted on the fake CPU, and moved."""
            to_card = card_in([*args[1:], *kwargs.values()])
            kwargs.pop("device", None)
            settings = [value for value in args[1:] if card_in([value]) is None]
            types = [value for value in (*settings, *kwargs.values()) if isinstance(value, torch.dtype)]
            types += [value.dtype for value in args[1:] if isinstance(value, torch.Tensor)]
            made = function(args[0], types[0]) if types else args[0]
            return made if to_card is None else memory.moved(made, to_card)

        def _made(self, function, args, kwargs):
            """Return what a function makes on a device."""
            device = kwargs.pop("device")
            place = "meta" if str(device) == "meta" else "cpu"
            return memory.on_card(function, *args, is_card=card_in([device]) or False, device=place, **kwargs)

    return OnFakeCpu


def _attended(torch, query, key, value, attn_mask=None, dropout_p=0.0, *more, **settings):
    """Return an attention's output, and keep what CUDA keeps for its gradient.

    CUDA computes it by parts where its fused kernels refuse the mask's layout, or heads that share keys in fp32
    (aten/src/ATen/native/transformers/cuda/sdp_utils.cpp). The others keep nothing for the dropout, unlike the CPU's.
    """
    from torch.nn import attention

    is_whole = attn_mask is None or attn_mask.shape[-1] == 1 or attn_mask.stride(-1) == 1
    is_float = query.dtype == torch.float32 and not torch.is_autocast_enabled("cpu")
    own = torch.nn.functional.scaled_dot_product_attention
    if is_whole and not (is_float and query.shape[-3] != key.shape[-3]):
        mask = None if attn_mask is None else attn_mask.detach()  # for a gradient of it, the CPU goes by parts
        return own(query, key, value, mask, 0.0, *more, **settings)
    with attention.sdpa_kernel(attention.SDPBackend.MATH):
        return own(query, key, value, attn_mask, dropout_p, *more, **settings)


def _dropped(torch):
    """Return dropout as CUDA computes it: its mask has one byte an element."""
    return lambda tensor, p, train: torch.native_dropout(tensor, p, True)[0] if train and p > 0.0 else tensor


def _zero_array(tensor):
    import numpy

    kind = "float32" if tensor.is_floating_point() else "int64"
    return numpy.zeros(tuple(tensor.shape), kind)


def _pretend_cuda(torch):
    """Let the script find the card of the study, without which it may take another way; it computes as an H100 does."""
    cuda = torch.cuda
    memory_mib, card = os.environ["TUNER_CARD"].split(" ", 1)
    free = int(memory_mib) << 20
    answers = {"is_available": True, "device_count": 1, "current_device": 0, "is_bf16_supported": True}
    answers.update(get_device_capability=(9, 0), get_device_name=card)
    answers.update(is_initialized=True, is_current_stream_capturing=False)
    answers.update(memory_allocated=0, max_memory_allocated=0, memory_reserved=0, max_memory_reserved=0)
    answers.update(mem_get_info=(free, free), current_stream=_Nothing(), default_stream=_Nothing())
    answers["get_device_properties"] = SimpleNamespace(
        name=card, total_memory=free, major=9, minor=0, multi_processor_count=132, warp_size=32
    )
    for name, answer in answers.items():
        setattr(cuda, name, lambda *_, answer=answer, **__: answer)
    idle = "synchronize set_device empty_cache manual_seed manual_seed_all init _lazy_init reset_peak_memory_stats"
    for name in (idle + " reset_max_memory_allocated set_per_process_memory_fraction").split():
        setattr(cuda, name, _doing_nothing())
    cuda.Event = cuda.Stream = _Nothing
    cuda.stream = lambda *_: _Nothing()
    torch.compile = lambda model=None, *_, **__: (lambda each: each) if model is None else model
    torch.save, torch.Tensor.record_stream = _doing_nothing(), _doing_nothing()
    own_to = torch.nn.Module.to
    torch.nn.Module.to = lambda module, *args, **kwargs: own_to(
        module, *("cuda" if type(each) is int else each for each in args), **kwargs
    )
    torch.nn.Module.cuda = lambda module, *_: module.to("cuda")
    torch.nn.Module._apply = _applied
    torch.amp.GradScaler._maybe_opt_step = lambda _, optimizer, __, *args, **kwargs: optimizer.step(*args, **kwargs)
    optimizers = sys.modules["torch.optim.optimizer"]  # as on CUDA, whose usual steps hold copies for a moment
    optimizers._get_foreach_kernels_supported_devices = lambda: ["cpu", "cuda"]
    optimizers._foreach_supported_types.append(torch._subclasses.fake_tensor.FakeTensor)
    own = torch.amp.autocast_mode.autocast.__init__

    def on_cpu(self, device_type="cuda", *args, **kwargs):
        dtype = kwargs.get("dtype", args[0] if args else None) or torch.float16
        own(self, "cpu", dtype=torch.bfloat16 if dtype == torch.float16 else dtype, enabled=kwargs.get("enabled", True))

    torch.amp.autocast_mode.autocast.__init__ = on_cpu
    torch.cuda.amp.autocast.__init__ = lambda self, enabled=True, dtype=torch.float16, *_: on_cpu(
        self, "cuda", dtype=dtype, enabled=enabled
    )


def _applied(module, function, recurse=True):
    """Convert a module's tensors as `Module._apply` does, which cannot swap fake ones."""
    for child in module.children() if recurse else ():
        child._apply(function)
    parameter_type, no_grad = sys.modules["torch"].nn.Parameter, sys.modules["torch"].no_grad
    for held, wrap in ((module._parameters, parameter_type), (module._buffers, lambda new, _: new)):
        for name, old in held.items():
            if old is not None:
                if not hasattr(old, "_tuner_moved"):  # modules may share a parameter
                    with no_grad():
                        new = function(old)
                    if new is old:
                        continue
                    old._tuner_moved = wrap(new, old.requires_grad)
                held[name] = old._tuner_moved
    return module


def _doing_nothing():
    """Return a function of its own, because torch tells functions apart."""
    return lambda *_, **__: None


class _Nothing:
    """A stream or an event in which nothing happens."""

    def __init__(self, *_, **__):
        pass

    def __getattr__(self, name):
        return lambda *_, **__: 0.0

    def __enter__(self):
        return self

    def __exit__(self, *_):
        return False


def _pretend_ranks(torch):
    """Let each rank go on alone: torch's fake backend answers for the others."""
    group = torch.distributed
    if not group.is_available():
        return
    own = group.init_process_group

    def init(*_, **kwargs):
        from torch.testing._internal.distributed.fake_pg import FakeStore

        rank, world = (int(os.environ.get(name, usual)) for name, usual in (("RANK", 0), ("WORLD_SIZE", 1)))
        asked = kwargs.get("world_size", -1)
        own("fake", store=FakeStore(), rank=max(kwargs.get("rank", -1), rank), world_size=max(asked, world))

    group.init_process_group = group.distributed_c10d.init_process_group = init
    group.is_nccl_available = _doing_nothing()
    torch.nn.parallel.DistributedDataParallel = _wrapper(torch)
    sys.modules["torch.nn.parallel.distributed"].DistributedDataParallel = torch.nn.parallel.DistributedDataParallel


def _wrapper(torch):
    """Return what stands in for `DistributedDataParallel`, which reads data: it holds as much for gradients."""

    class DistributedDataParallel(torch.nn.Module):
        def __init__(self, module, *_, gradient_as_bucket_view=False, **__):
            super().__init__()
            self.module, self.require_backward_grad_sync = module, True
            trained = [each for each in module.parameters() if each.requires_grad and not gradient_as_bucket_view]
            self._buckets = [torch.empty_like(each) for each in trained]

        def forward(self, *args, **kwargs):
            return self.module(*args, **kwargs)

        def no_sync(self):
            return _Nothing()

    return DistributedDataParallel


def _pretend_loaders():
    """Let loaders load in this process: a fake tensor cannot go from one process to another."""

    def without_workers(module):
        """Make the loaders of torch's module without what only workers have, and without pinned memory."""
        own = module.DataLoader.__init__

        def init(self, *args, **kwargs):
            """Make a loader; its first five parameters, up to `batch_sampler`, stay as they are."""
            kwargs.update(zip(("num_workers", "collate_fn", "pin_memory", "drop_last"), args[5:]))
            # no card needs pinned memory here
            for name in "num_workers pin_memory persistent_workers prefetch_factor multiprocessing_context".split():
                kwargs.pop(name, None)
            own(self, *args[:5], **{**kwargs, "timeout": 0})  # torch refuses another timeout without workers

        module.DataLoader.__init__ = init

    when_imported("torch.utils.data.dataloader", without_workers)
