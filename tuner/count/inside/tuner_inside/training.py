"""What is trained: parameters, optimizer, precision, the losses of the first steps, and saves."""

import functools
import hashlib
import sys
import time

from tuner_inside.imports import when_imported
from tuner_inside.inputs import is_tensor
from tuner_inside.tell import guarded, tell_pause

LOSS_STEPS = 8
"""The losses of so many steps are kept, and so are the sums of so many inputs."""
MIB = 2.0**20
"""Bytes."""


def is_traced():
    """Return whether torch compiles the code that runs now: then nothing of it may be counted."""
    compiler = getattr(sys.modules.get("torch"), "compiler", None)
    return bool(compiler is not None and hasattr(compiler, "is_compiling") and compiler.is_compiling())


def parameter_count(optimizer):
    """Return how many numbers an optimizer trains in this process."""
    return sum(parameter.numel() for group in optimizer.param_groups for parameter in group["params"])


def facts(optimizer, modules):
    """Return what the optimizer trains and how, as far as this process shows it."""
    parameters = _trained(modules)
    shapes = sorted(str(tuple(parameter.shape)) for parameter in parameters)
    group = optimizer.param_groups[0] if optimizer.param_groups else {}
    return {
        "optimizer": type(optimizer).__name__,
        "learning_rate": _number(group.get("initial_lr", group.get("lr"))),
        "weight_decays": sorted({_number(group.get("weight_decay")) or 0.0 for group in optimizer.param_groups}),
        "parameters": sum(parameter.numel() for parameter in parameters) or parameter_count(optimizer),
        "shapes": hashlib.sha256(" ".join(shapes).encode()).hexdigest()[:16],
        "types": sorted({_type(parameter.dtype) for parameter in parameters}),
        "is_split": any(
            hasattr(parameter, "device_mesh") or hasattr(parameter, "_fsdp_flattened") for parameter in parameters
        ),
        "device": str(parameters[0].device.type) if parameters else None,
        "batch_norm": _batch_norm(modules),
        "compiled": any("OptimizedModule" in type(part).__name__ for module in modules for part in module.modules()),
    }


def _batch_norm(modules):
    """Return over whose batch the layers that normalise it take means: `each` rank's, or `all`; None without one."""
    layers = sys.modules["torch"].nn.modules.batchnorm
    parts = [part for module in modules[:1] for part in module.modules()]
    norms = [part for part in parts if isinstance(part, layers._BatchNorm) and part.training]
    synced = bool(norms) and all(isinstance(part, layers.SyncBatchNorm) for part in norms)
    return ("all" if synced else "each") if norms else None


def _trained(modules):
    """Return the parameters of some modules that are trained, each once."""
    parameters = [parameter for module in modules[:1] for parameter in module.parameters() if parameter.requires_grad]
    return list({id(parameter): parameter for parameter in parameters}.values())


def _number(value):
    """Return a number of an optimizer's settings. A tensor on a device is not read, because that waits for it."""
    if is_tensor(value):
        return float(value) if value.device.type == "cpu" else None
    return float(value) if isinstance(value, (int, float)) else None


def _type(dtype):
    return str(dtype).replace("torch.", "")


class Reading:
    """A number that lies on a device: it is copied in the background, and read once the copy is there."""

    def __init__(self, tensor):
        torch = sys.modules["torch"]
        self._event = None
        value = tensor.detach().double() if tensor.device.type == "cpu" else tensor.detach().float()
        if tensor.device.type == "cuda":
            self._value = torch.empty((), dtype=value.dtype, pin_memory=True)
            self._value.copy_(value, non_blocking=True)
            self._event = torch.cuda.Event()
            self._event.record()
        else:
            self._value = value.clone()

    def read(self):
        """Return the number; None while it is on its way."""
        if self._event is not None and not self._event.query():
            return None
        return float(self._value)


class Firsts:
    """The losses and the sums of the inputs of the first steps."""

    def __init__(self):
        self.begin_anew()

    def begin_anew(self):
        """Forget all steps, as in a forked process: what it trains is its own."""
        self.losses = {}
        """The step → readings of the losses whose gradients it adds up."""
        self.inputs = {}
        self.is_scaled = False
        self.step = 0

    def values(self):
        """Return the summed losses and inputs of each step whose readings are all there."""
        return {"losses": _sums(self.losses), "inputs": _sums(self.inputs)}


def _sums(readings):
    sums = {}
    for step, each in readings.items():
        numbers = [reading.read() for reading in each]
        if None not in numbers:
            sums[step] = sum(numbers)
    return sums


firsts = Firsts()


def after_step(step):
    """Note that a step is over: what comes now belongs to the next one."""
    firsts.step = step


@guarded("inputs")
def after_input(tensor, step):
    """Keep the sum of an input of the first `LOSS_STEPS` steps, by which ranks with the same samples are known."""
    if tensor is not None and tensor.device.type in ("cpu", "cuda") and not _is_captured(tensor):
        total = tensor.detach().float().sum() if tensor.dtype.is_floating_point else tensor.detach().sum()
        firsts.inputs.setdefault(step, []).append(Reading(total))


def _is_captured(tensor):
    cuda = sys.modules["torch"].cuda
    return tensor.device.type == "cuda" and cuda.is_current_stream_capturing()


def seen(step):
    """Return how numbers are rounded and, of the first steps, their losses and the sums of their inputs."""
    return dict(precision=precision(), **(firsts.values() if step <= 2 * LOSS_STEPS else {}))


class Autocast:
    """The types in which autocast has computed."""

    types = set()


def precision():
    """Return how numbers are rounded: autocast's types, and whether matrices may be multiplied in TF32."""
    torch = sys.modules["torch"]
    tf32 = torch.get_float32_matmul_precision() != "highest"
    return {"autocast": sorted(Autocast.types), "tf32": bool(tf32), "scaled": Scaler.is_used}


def memory():
    """Return the allocator's peak and how often it freed its cache to try again; nothing where no card is in use."""
    cuda = sys.modules["torch"].cuda
    if not cuda.is_initialized():
        return {}
    stats = cuda.memory_stats()
    return {
        "reserved_mib": stats.get("reserved_bytes.all.peak", 0) / MIB,
        "alloc_retries": stats.get("num_alloc_retries", 0),
    }


class Saves:
    """How long the training has saved."""

    seconds = 0.0


class Scaler:
    """Whether a gradient scaler makes losses larger, and how many steps it has skipped."""

    is_used = False
    skipped = 0


before_backward, after_backward = [], []
"""Functions that are called around each backward pass."""


@guarded("losses")
def _note_loss(tensors, grad_tensors):
    """Keep a loss of the first steps: a single number with a single gradient, unlike what a pipeline sends on."""
    given = [*tensors, *(grad_tensors or ())]
    loss = given[0] if given else None
    if (
        firsts.step < LOSS_STEPS
        and all(tensor is None or tensor.numel() == 1 for tensor in given)
        and is_tensor(loss)
        and not is_traced()
        and not _is_captured(loss)
    ):
        firsts.losses.setdefault(firsts.step, []).append(Reading(loss.reshape(())))


@guarded("losses")
def _wrap_engine(module):
    """Watch the engine that computes gradients: `Tensor.backward` calls it, and so does Megatron-LM by itself."""

    class Engine(type(module.Variable._execution_engine)):
        def run_backward(self, tensors, grad_tensors, *args, **kwargs):
            if not kwargs.get("accumulate_grad"):  # torch.autograd.grad
                return super().run_backward(tensors, grad_tensors, *args, **kwargs)
            if firsts.step < LOSS_STEPS:
                _note_loss(tensors, grad_tensors)
            for function in before_backward:
                function()
            try:
                return super().run_backward(tensors, grad_tensors, *args, **kwargs)
            finally:
                for function in after_backward:
                    function()

        run_backward._torchdynamo_disable = True  # a compiled function breaks off here, as it does at torch's own

    module.Variable._execution_engine = Engine()


@guarded("saves")
def _wrap_save(module):
    own = module.save

    @functools.wraps(own)
    def save(*args, **kwargs):
        begin_s = time.monotonic()
        if firsts.step:
            tell_pause()
        try:
            return own(*args, **kwargs)
        finally:
            Saves.seconds += time.monotonic() - begin_s

    module.save = save
    if sys.modules.get("torch") is not None and getattr(sys.modules["torch"], "save", None) is own:
        sys.modules["torch"].save = save


@guarded("precision")
def _wrap_autocast(module):
    own = module.autocast.__enter__

    @functools.wraps(own)
    def enter(self):
        entered = own(self)
        _note_autocast(self)
        return entered

    module.autocast.__enter__ = enter


@guarded("precision")
def _note_autocast(context):
    if getattr(context, "_enabled", False):
        Autocast.types.add(_type(getattr(context, "fast_dtype", "unknown")))


@guarded("scaler")
def _wrap_scaler(module):
    own = module.GradScaler._maybe_opt_step

    @functools.wraps(own)
    def step(self, *args, **kwargs):
        result = own(self, *args, **kwargs)
        Scaler.is_used = True
        Scaler.skipped += result is None
        return result

    module.GradScaler._maybe_opt_step = step


def install():
    """Watch losses, saves, autocast and gradient scalers, from torch's import on."""
    when_imported("torch.autograd.variable", _wrap_engine)
    when_imported("torch.serialization", _wrap_save)
    when_imported("torch.amp.autocast_mode", _wrap_autocast)
    when_imported("torch.amp.grad_scaler", _wrap_scaler)
