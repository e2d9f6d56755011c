"""Counts optimizer steps, and the samples that the trained module takes between them. It never waits for a device."""

import os
import sys
import time
import weakref

from tuner_inside import calls, notes
from tuner_inside.environments import REUSING, environments
from tuner_inside.flops import count_operations, flops
from tuner_inside.imports import when_imported
from tuner_inside.inputs import first_tensor, is_tensor, is_without_batch, sample_form, samples
from tuner_inside.loaders import loaders
from tuner_inside.notes import Pace, note, work_through
from tuner_inside.roots import children, outermost, ranks
from tuner_inside.tell import around, guarded, off, switch_off, tell, tell_pause
from tuner_inside.training import LOSS_STEPS, after_input, facts, seen, training, watch_backward

TOLD_EVERY_S = 0.2
"""A record is written at most so often, in seconds: a few times a second."""
FIRST_STEPS = 12
"""Each of the first steps is told, because they show what is trained."""
COUNTS = ("steps", "rows", "forwards", "backwards", "joint", "again", "repeats", "unlearnt")
"""The counts of a tally that are told. They go on where another optimizer becomes the main one.

`backwards` are the backward passes that came after a forward pass, and `joint` those of them that came after several.
`again` are the forward passes of the same tensor as the one before, in the same step, and `repeats` the steps whose
first tensor is the last one of the step before. `unlearnt` are forward passes without gradients in training mode, as
rollouts make them.
"""


class Tally(calls.ModuleWatcher):
    """What the module of one optimizer has taken so far, and how often the optimizer has stepped."""

    def __init__(self, optimizer):
        sizes = {id(parameter): parameter.numel() for group in optimizer.param_groups for parameter in group["params"]}
        self.torch = sys.modules["torch"]
        self.optimizer = weakref.ref(optimizer)
        self.parameters = set(sizes)
        self.size = sum(sizes.values())
        for name in COUNTS:
            setattr(self, name, 0)
        self.evaluates_s = 0.0
        self.evaluates_from_s = None
        self.calls = 0
        """The forward passes since the last step."""
        self.open = []
        """The samples of each forward pass since the last backward pass."""
        self.last = (None, None)
        """A weak reference to the tensor of the last forward pass, and its version."""
        self.mode = self.last_mode = None
        """Whether the module is in training mode when it trains, and in its last forward pass; None before that is
        known."""
        self.modules = []
        """Weak references to the modules that are watched."""
        self.first = None
        """One to the module that is called first; its inputs count."""
        self.level = 0
        self.inner = None
        self.form = ""
        self.why = None
        """Why the module's inputs are not counted; None where they are."""
        self.step_note = (self.step,)
        self.told_s = 0.0

    def follow(self, replaced):
        """Count on from another tally, whose optimizer this one replaces."""
        for name in (*COUNTS, "evaluates_s"):
            setattr(self, name, getattr(replaced, name))
        replaced.watch_only(())

    def watch_only(self, modules):
        """Count the inputs of these modules instead of those before."""
        for module in _living(self.modules):
            self.forget(module)
        self.modules, self.first, self.usual_mode = [weakref.ref(module) for module in modules], None, None
        for module in modules:
            self.watch(module)

    @guarded("steps")
    def look(self, module, args, kwargs):
        """Count a call that trains, and note one that evaluates."""
        work_through()
        learns, mode = self.torch.is_grad_enabled(), module.training
        if calls.in_backward():  # what is computed again during a backward pass is nothing new
            return
        if not learns or self.mode not in (None, mode):
            loaders.evaluates()
            tell_pause()
            self.unlearnt += mode and not learns
            self.usual_mode = None
            if self.evaluates_from_s is None:
                self.evaluates_from_s = time.monotonic()
            return
        if self.evaluates_from_s is not None:
            self.evaluates_s += time.monotonic() - self.evaluates_from_s
            self.evaluates_from_s = None
        self.first = self.first or weakref.ref(module)
        if self.first() is not module:
            loaders.trains = True
            return
        given = args if args and samples(args) else (kwargs or args)
        tensor = first_tensor(given)
        rows = self._rows(given, tensor)
        has_version = tensor is not None and hasattr(tensor, "_version") and not tensor.is_inference()
        self.take(rows, *((weakref.ref(tensor), tensor._version) if has_version else (None, None)))
        self.last_mode = mode
        if self.steps < FIRST_STEPS:
            self.form = sample_form(given, self.form, int(self.is_second))
        elif type(tensor) is self.torch.Tensor and tensor.dim() > 1 and rows == tensor.shape[self.is_second]:
            self.key = next((name for name, value in kwargs.items() if value is tensor), None)
            is_usual = args[0] is tensor if args else self.key is not None
            self.usual_mode = mode if is_usual else None
            for watched in _living(self.modules):
                if watched is not module:
                    self.forget(watched)
        if self.steps < LOSS_STEPS:
            after_input(tensor)

    def _rows(self, given, tensor):
        """Return the samples of a module's inputs. They may be the second dimension, as for an inner module."""
        parts = tuple(given.values()) if isinstance(given, dict) and len(given) == 1 else given
        count = samples(parts) if isinstance(parts, dict) else samples(parts[0]) or samples(parts)
        has_second = tensor is not None and tensor.dim() > 1
        if self.inner is not None and self.inner.batch:
            self.is_second = self.inner.batch != count and has_second and int(tensor.shape[1]) == self.inner.batch
            self.inner = None
            self.form = "" if self.is_second else self.form  # the first form had the batch in it
        if self.is_second and has_second:
            return int(tensor.shape[1])
        if is_without_batch(given):
            self.why = "the module takes single samples, or a batch without another dimension"
            return 0
        return count

    def take(self, rows, tensor, version):
        """Count a forward pass, and whether it takes the very tensor of the one before, which nobody has changed."""
        loaders.trains = True
        if self.last[0] is tensor and self.last[1] == version and tensor is not None:
            if self.calls:
                self.again += 1
            else:
                self.repeats += 1
        self.last = (tensor, version)
        self.calls += 1
        self.forwards += 1
        self.open.append(rows)

    def step(self):
        """Count a step of the optimizer. Without any backward pass, all forward passes count."""
        self.steps += 1
        if self is not _now.main:
            return
        if not self.backwards:
            self.rows += sum(self.open)
        self.open = []
        self.mode = self.last_mode if self.calls else None
        self.calls = 0
        training.steps = self.steps
        loaders.after_step()


class Inner(calls.ModuleWatcher):
    """An inner module that says which dimension of its input is that of the samples, and how many there are."""

    def __init__(self, module):
        self.batch = 0
        self.watch(module)

    @guarded("inner")
    def look(self, module, args, kwargs):
        """Read the shape of the first input."""
        self.forget(module)
        tensor = args[0] if args else None
        if tensor is not None and hasattr(tensor, "batch_sizes"):  # a packed sequence
            self.batch = int(tensor.batch_sizes[0])
        elif is_tensor(tensor) and tensor.dim() > 2:
            self.batch = int(tensor.shape[0 if module.batch_first else 1])


class Now:
    """What is counted now."""

    def __init__(self):
        self.tallies = {}
        """The number of an optimizer → its tally."""
        self.main = None
        """The tally of the optimizer with most parameters that still lives."""
        self.latest = None
        """The tally of the optimizer that has stepped last."""
        self.begun = None
        """The tally whose module is watched."""
        self.gone = 0
        """How often another optimizer has replaced the main one because that was no more."""
        self._compared = 0
        self._is_apart = False

    def tally_of(self, optimizer):
        """Return the tally of an optimizer. A new one is the main one if it has most parameters."""
        tally = self.tallies.get(id(optimizer))
        if tally is None or tally.optimizer() is not optimizer:
            work_through()
            tally, main = Tally(optimizer), self.main
            self.tallies[id(optimizer)] = tally
            is_gone = main is not None and main.optimizer() is None
            self.gone += is_gone
            if self.gone > 8 and main.steps < 10 * self.gone:  # to look for what one trains takes 50 ms
                raise RuntimeError("the training makes a new optimizer every few steps")
            if main is None or is_gone or tally.size >= main.size:
                self.main, Pace.due_s = tally, 0.0
                if main is not None:
                    tally.follow(main)
        return tally

    def before_backward(self):
        """Count the inputs that a loss was computed from: of several forward passes, the last one's."""
        tally = self.main
        if tally is not None and tally.open:
            tally.backwards += 1
            tally.joint += len(tally.open) > 1
            tally.rows += tally.open[-1]
            tally.open = []

    def is_apart(self):
        """Return whether another optimizer trains a network that is no part of the main one's."""
        if self._compared != len(self.tallies):
            self._compared = len(self.tallies)
            own = {id(parameter) for module in _living(self.main.modules) for parameter in module.parameters()}
            living = [tally for tally in self.tallies.values() if tally.optimizer() is not None]
            self._is_apart = bool(own) and any(not tally.parameters & own for tally in living)
        return self._is_apart


_now = Now()


def _living(references):
    return [thing for thing in (reference() for reference in references) if thing is not None]


def after_step(optimizer, *_):
    """Note a step of an optimizer, and tell what was counted where the last time is long enough ago."""
    if "steps" in off:
        return
    try:
        tally = _now.latest
        if tally is None or tally.optimizer() is not optimizer:
            tally = _now.latest = _now.tally_of(optimizer)
        note(tally.step_note)
        if tally is _now.main:
            if environments.last is not None:
                environments.after_step()
            now_s = time.monotonic()
            if now_s >= Pace.due_s:
                work_through()
                _worked_through(tally, optimizer, now_s)
    except Exception as error:
        switch_off("steps", error)


def _worked_through(tally, optimizer, now_s):
    """Tell what was counted where it is time, and look for the trained module in the first steps.

    Where no call of the outermost modules was seen, the modules one level further in are watched instead, up to six.
    """
    if tally is not _now.begun:
        _now.begun = tally
        _begin(tally, optimizer)
    elif tally.first is None and tally.level < 6 and not tally.rows:
        tally.level += 1
        tally.watch_only(children(_living(tally.modules)))
    if not flops.is_over:
        count_operations(tally.steps, _living(tally.modules), tally.evaluates_s + bool(tally.evaluates_from_s))
    if tally.steps <= FIRST_STEPS or now_s - tally.told_s >= TOLD_EVERY_S:
        tally.told_s = now_s
        _tell(tally, now_s)
    Pace.due_s = tally.told_s + TOLD_EVERY_S if tally.steps >= FIRST_STEPS else 0.0


def _begin(tally, optimizer):
    """Find the module of an optimizer, and tell what is trained."""
    modules = outermost(optimizer)
    known = facts(optimizer, modules)
    tally.watch_only(modules)
    parts = [part for module in modules[:1] for part in module.modules() if not known["compiled"]]
    tally.inner = next((Inner(part) for part in parts if type(getattr(part, "batch_first", None)) is bool), None)
    reuses = any(name in sys.modules for name in REUSING)
    tell("start", **ranks(modules[0] if modules else None), reuses=reuses, **known)


def _tell(tally, now_s):
    counts = {
        "at_s": now_s,
        **{name: getattr(tally, name) for name in COUNTS},
        "is_apart": _now.is_apart(),
        "form": tally.form,
        "evaluates_s": tally.evaluates_s,
        "why": tally.why if not tally.rows else None,
        "flops": flops.counted,
    }
    if loaders.feeds:
        names = ("rows", "batches", "feeds", "passes", "wait_s", "size", "each")
        counts["loader"] = {name: getattr(loaders, name) for name in names}
    if environments.training:
        counts["environments"] = {"steps": environments.training, "rollouts": environments.rollouts}
    tell("count", **counts, **seen())


def _begin_anew():
    """Forget everything in a forked process: what it trains is its own."""
    for part in (_now, loaders, training, flops):
        part.__init__()
    for module in (notes, calls):
        module.begin_anew()


@guarded("steps")
def _install(module):
    module.register_optimizer_step_post_hook(after_step)
    os.register_at_fork(after_in_child=_begin_anew)


def _scales(scaler, *_, **__):
    if not scaler.is_enabled():
        return None
    training.is_scaled, _now.latest = True, None
    return scaler


def _scaled(*_):
    training.skipped += _now.latest is None  # no optimizer has made a step


@guarded("compiler")
def _leave(module):
    """Let torch's compiler leave the code of the counting as it is."""
    after_step._torchdynamo_disable = True
    codes = [
        thing.__code__
        for name, part in list(sys.modules.items())
        if name.startswith("tuner_inside")
        for kind in (part, *(kind for kind in vars(part).values() if isinstance(kind, type)))
        for thing in vars(kind).values()
        if hasattr(thing, "__code__")
    ]
    while codes:
        code = codes.pop()
        module.skip_code(code)
        codes += [part for part in code.co_consts if isinstance(part, type(code))]


def install():
    """Count from the import of torch's optimizers on."""
    when_imported("torch._dynamo.eval_frame", _leave)
    when_imported("torch.amp.grad_scaler", lambda module: around("scaler", module.GradScaler, "step", _scales, _scaled))
    when_imported("torch.optim.optimizer", _install)
    watch_backward(_now.before_backward)
