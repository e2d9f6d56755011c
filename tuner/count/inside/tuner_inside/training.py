"""Observes what a process trains: parameters, optimizer, precision, the losses of the first steps, and saves."""

import functools
import hashlib
import os
import sys
import time

from tuner_inside.imports import when_imported
from tuner_inside.inputs import is_of_function, is_tensor
from tuner_inside.records import around, errors_switch_off, record_pause
from tuner_inside.steady_steps import steady

LOSS_STEPS = 8
"""The losses of so many first steps are kept, and the sums of their inputs (chosen)."""


class Training:
    """What was observed of the training of this process so far."""

    def __init__(self):
        """Observe a training that has made no step yet."""
        self.steps = 0
        self.losses = {}
        """Step → the losses whose gradients that step adds up, as `DeviceNumber`: to read one now would make a step
        wait for the device."""
        self.inputs = {}
        """Step → readings of the sums of its inputs, by which ranks with the same samples are known."""
        self.autocast = set()
        """The types in which autocast has computed."""
        self.is_scaled = False
        """Whether a gradient scaler makes losses larger."""
        self.skipped = 0
        """The optimizer steps that the gradient scaler has skipped."""
        self.saves_s = 0.0
        """The seconds that saving has taken."""
        self.saves_to = []
        """The folders into which it was saved, each once; 16 at most (chosen)."""


training = Training()


def facts(optimizer, modules):
    """Return what an optimizer trains and how, for the record at its first step.

    The first of several modules, such as the copies of an ensemble, stands for all.
    """
    parameters = [parameter for module in modules[:1] for parameter in module.parameters() if parameter.requires_grad]
    shapes = sorted(str(tuple(parameter.shape)) for parameter in parameters)
    first_group = optimizer.param_groups[0] if optimizer.param_groups else {}
    layers = sys.modules["torch"].nn.modules.batchnorm
    parts = [part for module in modules[:1] for part in module.modules()]
    norms = [part for part in parts if isinstance(part, layers._BatchNorm) and part.training]
    are_synced = all(isinstance(part, layers.SyncBatchNorm) for part in norms)
    optimizer_parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    return {
        "torch": str(sys.modules["torch"].__version__),
        "seed": sys.modules["torch"].initial_seed(),  # a random one where the script sets none
        "optimizer": type(optimizer).__name__,
        # `initial_lr` is that before a schedule, such as a warm-up, has changed it
        "learning_rate": _number(first_group.get("initial_lr", first_group.get("lr"))),
        "weight_decays": sorted({_number(group.get("weight_decay")) or 0.0 for group in optimizer.param_groups}),
        # those of the optimizer where no module holds them
        "parameters": sum(parameter.numel() for parameter in parameters or optimizer_parameters),
        "shapes": hashlib.sha256(" ".join(shapes).encode()).hexdigest()[:16],
        "types": sorted({_type(parameter.dtype) for parameter in parameters}),
        "is_split": any(  # sharded by a mesh, or by FSDP
            hasattr(parameter, "device_mesh") or hasattr(parameter, "_fsdp_flattened") for parameter in parameters
        ),
        "device": str(parameters[0].device.type) if parameters else None,
        # whose samples batch normalisation takes means over: `each` rank's, or those of `all`; None without it
        "batch_norm": None if not norms else "all" if are_synced else "each",
        "compiled": any(
            "OptimizedModule" in type(part).__name__ or getattr(part, "_compiled_call_impl", None)
            for module in modules
            for part in module.modules()
        ),
    }


def _number(value):
    """Return a number of an optimizer's settings; None for a tensor on a device, because to read it would wait."""
    if is_tensor(value):
        return float(value) if value.device.type == "cpu" else None
    return float(value) if isinstance(value, (int, float)) else None


def _type(dtype):
    return str(dtype).replace("torch.", "")


class DeviceNumber:
    """A number that may lie on a device: it is copied in the background, and read once the copy is there."""

    def __init__(self, tensor):
        """Copy the number in a tensor from its device, without waiting for it."""
        torch = sys.modules["torch"]
        self._event = None
        # not every device has double
        value = tensor.detach().double() if tensor.device.type == "cpu" else tensor.detach().float()
        if tensor.device.type == "cuda":  # only a copy into pinned memory does not wait
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


def _sums_by_step(readings):
    """Return step → the sum of its numbers, for the steps whose numbers have all come from the device.

    `readings`: step → the numbers, as `DeviceNumber`.
    """
    sums = {}
    for step, step_readings in readings.items():
        numbers = [reading.read() for reading in step_readings]
        if None not in numbers:
            sums[step] = sum(numbers)
    return sums


@errors_switch_off("inputs")
def keep_input_sum(tensor):
    """Keep the sum of an input, in the first steps: ranks with the same sums train on the same samples."""
    if tensor is not None and tensor.device.type in ("cpu", "cuda") and not _is_unreadable(tensor):
        total = tensor.detach().float().sum() if tensor.dtype.is_floating_point else tensor.detach().sum()
        training.inputs.setdefault(training.steps, []).append(DeviceNumber(total))


def _is_unreadable(tensor):
    """Return whether nothing may be read of a tensor, now or later.

    It is so on a card where a CUDA graph is captured, and for the tensors inside functions of `torch.func`.
    """
    torch = sys.modules["torch"]
    is_in_graph = tensor.device.type == "cuda" and torch.cuda.is_current_stream_capturing()
    return is_in_graph or is_of_function(tensor)


def observations():
    """Return what was observed so far: precision, skipped steps, time of saves, memory, losses and inputs.

    Losses and inputs are those of the first steps. They are left out once these are long over.
    """
    torch = sys.modules["torch"]
    counts = {
        "precision": {
            "autocast": sorted(training.autocast),
            "tf32": torch.get_float32_matmul_precision() != "highest",
            "scaled": training.is_scaled,  # the losses, by a gradient scaler
        },
        "skipped": training.skipped,
        "saves_s": training.saves_s,
        "saves_to": training.saves_to,
    }
    if torch.cuda.is_initialized():
        stats = torch.cuda.memory_stats_as_nested_dict()
        counts["reserved_mib"] = stats.get("reserved_bytes", {}).get("all", {}).get("peak", 0) / 2.0**20
        counts["alloc_retries"] = stats.get("num_alloc_retries", 0)
    if training.steps <= 2 * LOSS_STEPS:
        counts.update(losses=_sums_by_step(training.losses), inputs=_sums_by_step(training.inputs))
    return counts


@errors_switch_off("losses")
def _note_loss(tensors, grad_tensors):
    """Keep the loss that a backward pass begins from, if it is a single number; of several, the first one.

    torch computes the gradients of `tensors`, and begins with the gradients `grad_tensors`, one for each. Of a loss
    these are empty, None, or Nones. A pipeline's stage begins with larger tensors, which the next stage has sent back.
    """
    loss = tensors[0] if tensors else None
    are_single_numbers = all(tensor is None or tensor.numel() == 1 for tensor in (*tensors, *(grad_tensors or ())))
    if are_single_numbers and is_tensor(loss) and not _is_unreadable(loss):
        training.losses.setdefault(training.steps, []).append(DeviceNumber(loss.reshape(())))


def watch_backward(count_pass):
    """Call `count_pass` before each backward pass that trains; it takes no arguments and must not raise.

    While the steps are steady, which means alike, the pass is only added to the sums of `steady`: that is cheaper.
    """

    @errors_switch_off("losses")
    def wrap(module):
        """Watch the engine that computes gradients: `Tensor.backward` calls it, and so does Megatron-LM by itself."""

        engine = module.Variable._execution_engine
        original, sums = engine.run_backward, steady

        def run_backward(
            tensors, grad_tensors, keep_graph, create_graph, inputs=(), allow_unreachable=0, accumulate_grad=0, **new
        ):
            """Compute gradients as without this wrapper, after the pass was counted and its loss was kept."""
            if accumulate_grad:  # else torch.autograd.grad, which trains nothing
                rows = sums.unlearned_rows  # of a forward pass whose backward pass was awaited
                if rows is not None:
                    sums.unlearned_rows = None
                    sums.rows += rows
                    sums.backwards += 1
                elif sums.module_id is None:  # the steps are not steady
                    if training.steps < LOSS_STEPS:
                        _note_loss(tensors, grad_tensors)
                    count_pass()
            # by their order, because names become dictionaries; `new` are those of a later torch
            given = tensors, grad_tensors, keep_graph, create_graph, inputs, allow_unreachable, accumulate_grad
            if not new:
                return original(*given)
            return original(*given[:5], allow_unreachable=allow_unreachable, accumulate_grad=accumulate_grad, **new)

        run_backward._torchdynamo_disable = True  # a compiled function breaks off here, as it does at torch's own
        # a static method: its arguments pass through as they are
        kind = type("Engine", (type(engine),), {"run_backward": staticmethod(run_backward)})
        module.Variable._execution_engine = kind()

    when_imported("torch.autograd.variable", wrap)


def _before_save(obj=None, f=None, *_, **__):
    """Return the time at which a save to `f` begins; record a pause if the process has trained already."""
    if isinstance(f, (str, os.PathLike)):
        folder = os.path.dirname(os.path.abspath(os.fsdecode(f)))
        if folder not in training.saves_to and len(training.saves_to) < 16:
            training.saves_to.append(folder)
    if training.steps:
        record_pause()
    return time.monotonic()


def _after_save(begin_s, _):
    training.saves_s += time.monotonic() - begin_s


@errors_switch_off("precision")
def _note_autocast(context):
    """Note in which type an autocast computes."""
    if getattr(context, "_enabled", False):
        training.autocast.add(_type(getattr(context, "fast_dtype", "unknown")))


def _wrap_autocast(module):
    """Note in which types autocast computes in the first steps."""
    original = module.autocast.__enter__

    @functools.wraps(original)
    def enter(self):
        if training.steps <= LOSS_STEPS:
            _note_autocast(self)
        return original(self)

    module.autocast.__enter__ = enter


def install():
    """Watch saves and autocast, from torch's import on."""
    when_imported("torch.serialization", lambda module: around("saves", module, "save", _before_save, _after_save))
    when_imported("torch.amp.autocast_mode", errors_switch_off("precision")(_wrap_autocast))
