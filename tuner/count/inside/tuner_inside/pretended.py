"""Lets a script find a card, ranks and loaders that are not there: torch's answers about them are replaced.

For a training with tensors that have no data, as `fake.py` runs it.
"""

import os
import sys
from types import SimpleNamespace

from tuner_inside.imports import when_imported


def pretend_cuda(torch):
    """Let the script find the card of the study, without which it may take another way; it computes as an H100 does."""
    cuda = torch.cuda
    memory_mib, card = os.environ["TUNER_CARD"].split(" ", 1)
    memory_bytes = int(memory_mib) << 20

    # questions about the card: it is there, and all of its memory is free
    answers = {"is_available": True, "device_count": 1, "current_device": 0, "is_bf16_supported": True}
    answers.update(get_device_capability=(9, 0), get_device_name=card)
    answers.update(is_initialized=True, is_current_stream_capturing=False)
    answers.update(memory_allocated=0, max_memory_allocated=0, memory_reserved=0, max_memory_reserved=0)
    answers.update(mem_get_info=(memory_bytes, memory_bytes), current_stream=_Nothing(), default_stream=_Nothing())
    answers["get_device_properties"] = SimpleNamespace(
        name=card, total_memory=memory_bytes, major=9, minor=0, multi_processor_count=132, warp_size=32
    )
    for name, answer in answers.items():
        setattr(cuda, name, lambda *_, answer=answer, **__: answer)

    # what would need a real card, or data, does nothing
    idle = "synchronize set_device empty_cache manual_seed manual_seed_all init _lazy_init reset_peak_memory_stats"
    for name in (idle + " reset_max_memory_allocated set_per_process_memory_fraction").split():
        setattr(cuda, name, _doing_nothing())
    cuda.Event = cuda.Stream = _Nothing
    cuda.stream = lambda *_: _Nothing()
    torch.compile = lambda model=None, *_, **__: (lambda decorated: decorated) if model is None else model
    torch.save, torch.Tensor.record_stream = _doing_nothing(), _doing_nothing()
    # a scaler would read whether gradients are infinite
    torch.amp.GradScaler._maybe_opt_step = lambda _, optimizer, __, *args, **kwargs: optimizer.step(*args, **kwargs)

    # modules are moved by our `Tensor.to`; torch's own would refuse the number of a card
    own_to = torch.nn.Module.to
    torch.nn.Module.to = lambda module, *args, **kwargs: own_to(
        module, *("cuda" if type(arg) is int else arg for arg in args), **kwargs
    )
    torch.nn.Module.cuda = lambda module, *_: module.to("cuda")
    torch.nn.Module._apply = _apply_to_fake

    # optimizers step by many tensors at once, as on CUDA: such steps hold copies for a moment
    optimizers = sys.modules["torch.optim.optimizer"]
    optimizers._get_foreach_kernels_supported_devices = lambda: ["cpu", "cuda"]
    optimizers._foreach_supported_types.append(torch._subclasses.fake_tensor.FakeTensor)
    _pretend_autocast(torch)


def _pretend_autocast(torch):
    """Let autocast for a card work on the fake CPU."""
    original = torch.amp.autocast_mode.autocast.__init__

    def on_cpu(self, device_type="cuda", *args, **kwargs):
        """Make an autocast as the script asks for it, with its type as third argument or by keyword."""
        dtype = kwargs.get("dtype", args[0] if args else None) or torch.float16
        if dtype == torch.float16:  # the CPU's autocast may not know it; bfloat16 takes as many bytes
            dtype = torch.bfloat16
        original(self, "cpu", dtype=dtype, enabled=kwargs.get("enabled", True))

    torch.amp.autocast_mode.autocast.__init__ = on_cpu
    torch.cuda.amp.autocast.__init__ = lambda self, enabled=True, dtype=torch.float16, *_: on_cpu(
        self, "cuda", dtype=dtype, enabled=enabled
    )


def _apply_to_fake(module, function, recurse=True):
    """Convert a module's tensors by a function, and return the module, as `Module._apply` does.

    torch's own puts new data into the old tensors, which fake ones do not allow. This one replaces them.
    """
    torch = sys.modules["torch"]
    for child in module.children() if recurse else ():
        child._apply(function)
    for tensors_by_name in (module._parameters, module._buffers):
        for name, old in tensors_by_name.items():
            if old is None:
                continue
            if not hasattr(old, "_tuner_moved"):  # another module that shares it has converted it
                with torch.no_grad():
                    new = function(old)
                if new is old:
                    continue
                is_parameter = tensors_by_name is module._parameters
                old._tuner_moved = torch.nn.Parameter(new, old.requires_grad) if is_parameter else new
            tensors_by_name[name] = old._tuner_moved
    return module


def _doing_nothing():
    """Return a function of its own, because torch distinguishes functions by their identity."""
    return lambda *_, **__: None


class _Nothing:
    """A stream, an event or a context in which nothing happens. All its methods return 0.0, as for a time."""

    def __init__(self, *_, **__):
        pass

    def __getattr__(self, name):
        return lambda *_, **__: 0.0

    def __enter__(self):
        return self

    def __exit__(self, *_):
        return False


def pretend_ranks(torch):
    """Let each rank go on alone: torch's fake backend answers for the others."""
    distributed = torch.distributed
    if not distributed.is_available():
        return
    original = distributed.init_process_group

    def init(*_, **kwargs):
        """Make the fake group. Rank and number come by keyword (-1: unknown) or from the launcher's variables."""
        from torch.testing._internal.distributed.fake_pg import FakeStore

        rank = max(kwargs.get("rank", -1), int(os.environ.get("RANK", "0")))
        world = max(kwargs.get("world_size", -1), int(os.environ.get("WORLD_SIZE", "1")))
        original("fake", store=FakeStore(), rank=rank, world_size=world)

    # scripts import the function and the class from either of two modules
    distributed.init_process_group = distributed.distributed_c10d.init_process_group = init
    distributed.is_nccl_available = lambda: False  # so that a script asks NCCL nothing, such as its version
    torch.nn.parallel.DistributedDataParallel = _parallel_class(torch)
    sys.modules["torch.nn.parallel.distributed"].DistributedDataParallel = torch.nn.parallel.DistributedDataParallel


def _parallel_class(torch):
    """Return a class in place of `DistributedDataParallel`, which reads data, and fake tensors have none.

    Like the real one, this class holds buckets as large as all gradients, unless the gradients are views of them.
    """

    class DistributedDataParallel(torch.nn.Module):
        def __init__(self, module, *_, gradient_as_bucket_view=False, **__):
            super().__init__()
            self.module, self.require_backward_grad_sync = module, True
            trained = [parameter for parameter in module.parameters() if parameter.requires_grad]
            self._buckets = [] if gradient_as_bucket_view else [torch.empty_like(parameter) for parameter in trained]

        def forward(self, *args, **kwargs):
            return self.module(*args, **kwargs)

        def no_sync(self):
            return _Nothing()

    return DistributedDataParallel


def pretend_loaders():
    """Let loaders load in this process: a fake tensor cannot go from one process to another."""

    def without_workers(module):
        """Let torch's module make its loaders without workers, and without pinned memory, which no card reads here."""
        original = module.DataLoader.__init__

        def init(self, *args, **kwargs):
            """Make a loader. Its first five arguments, up to `batch_sampler`, stay as they are."""
            kwargs.update(zip(("num_workers", "collate_fn", "pin_memory", "drop_last"), args[5:]))
            for name in "num_workers pin_memory persistent_workers prefetch_factor multiprocessing_context".split():
                kwargs.pop(name, None)
            kwargs["timeout"] = 0  # torch refuses any other one without workers
            original(self, *args[:5], **kwargs)

        module.DataLoader.__init__ = init

    when_imported("torch.utils.data.dataloader", without_workers)
