"""Counts optimizer steps, and the samples that the trained module takes between them. It never waits for a device."""

import sys
import time
import weakref

from tuner_inside import flops, training
from tuner_inside.calls import before_call, forget
from tuner_inside.environments import REUSING, environments
from tuner_inside.imports import when_imported
from tuner_inside.inputs import first_tensor, is_tensor, is_without_batch, sample_form, samples
from tuner_inside.loaders import loaders
from tuner_inside.roots import children, outermost, ranks
from tuner_inside.tell import guarded, tell, tell_pause

TOLD_EVERY_S = 0.2
"""A record is written at most so often, in seconds: a few times a second."""
FIRST_STEPS = 12
"""Each of the first steps is told, because they show what is trained."""
LOADER_COUNTS = ("rows", "batches", "feeds", "passes", "wait_s", "size", "each")
"""What is told of the loaders."""
MOST_LEVELS = 6
"""So many levels of modules are tried, from the outermost one down, until one of them is called."""
COUNTS = ("steps", "rows", "forwards", "backwards", "joint", "again", "repeats", "unlearnt")
"""The counts of a tally that are told. They go on where another optimizer becomes the main one."""


class Tally:
    """What the module of one optimizer has taken so far, and how often the optimizer has stepped."""

    def __init__(self, optimizer):
        self.optimizer = weakref.ref(optimizer)
        self.size = training.parameter_count(optimizer)
        self.parameters = {id(parameter) for group in optimizer.param_groups for parameter in group["params"]}
        self.steps = 0
        self.rows = 0
        self.forwards = 0
        self.calls = 0
        """The forward passes since the last step."""
        self.open = []
        """The samples of each forward pass since the last backward pass."""
        self.backwards = 0
        """The backward passes that came after a forward pass."""
        self.joint = 0
        """Those of them that came after several."""
        self.again = 0
        """The forward passes of the same tensor as the one before, in the same step."""
        self.repeats = 0
        """The steps whose first tensor is the last one of the step before."""
        self.unlearnt = 0
        """The forward passes without gradients in training mode, as rollouts make them."""
        self.last = None
        self.mode = None
        """Whether the module is in training mode when it trains; None before that is known."""
        self.level = 0
        self.modules = []
        self.counter = _counter(weakref.ref(self))
        self.first = None
        """The module that is called first after a step; its inputs count."""
        self.form = ""
        self.told_s = 0.0
        self.evaluates_s = 0.0
        self.evaluates_from_s = None
        self.inner = None
        self.is_second = False
        """Whether the samples are the second dimension of the inputs, as in `[sequence, batch]`."""
        self.why = None
        """Why the module's inputs are not counted; None where they are."""

    def trains_any(self, parameters):
        """Return whether the optimizer lives and trains one of these parameters, or lives no more."""
        return self.optimizer() is None or bool(self.parameters & parameters)

    def follow(self, replaced):
        """Count on from another tally, whose optimizer this one replaces."""
        for name in (*COUNTS, "evaluates_s"):
            setattr(self, name, getattr(replaced, name))

    def backward(self):
        """Count the inputs that a loss was computed from: of several forward passes, the last one's."""
        self.backwards += 1
        self.joint += len(self.open) > 1
        self.keep(self.open[-1:])

    def keep(self, rows):
        """Count the samples of some forward passes, and forget the others."""
        self.rows += sum(rows)
        self.open = []

    def watch(self, modules):
        """Count the inputs of these modules instead of those before."""
        for module in self.modules:
            forget(module, self.counter)
        self.modules, self.first = list(modules), None
        for module in modules:
            before_call(module, self.counter)


def _counter(known):
    """Return a function that counts what is given to a module."""

    @guarded("steps")
    def counter(module, args, kwargs):
        tally = known()
        if tally is not None:
            _count(tally, module, args, kwargs)

    return counter


def _count(tally, module, args, kwargs):
    if _last["backwards"]:  # what is computed again during a backward pass is nothing new
        return
    torch = sys.modules["torch"]
    learns, mode = torch.is_grad_enabled(), module.training
    trains = learns and (tally.mode is None or tally.mode == mode)
    loaders.forward(trains)
    if not trains:
        tell_pause()
        tally.unlearnt += mode and not learns
        if tally.evaluates_from_s is None:
            tally.evaluates_from_s = time.monotonic()
        return
    if tally.evaluates_from_s is not None:
        tally.evaluates_s += time.monotonic() - tally.evaluates_from_s
        tally.evaluates_from_s = None
    if tally.first is None:
        tally.first = weakref.ref(module)
    if tally.first() is not module:
        return
    tensor = args[0] if args and type(args[0]) is torch.Tensor else None
    given = args
    if tensor is not None and tally.inner is None and tensor.dim() > 1:  # the usual case, which must be fast
        rows = int(tensor.shape[tally.is_second])
    else:
        given = args if args and samples(args) else (kwargs or args)
        tensor = first_tensor(given)
        rows = _rows(tally, given, tensor)
    _compare(tally, tensor)
    tally.calls += 1
    tally.forwards += 1
    tally.open.append(rows)
    if tally.steps < FIRST_STEPS:
        tally.form = sample_form(given, tally.form)
    if tally.steps < training.LOSS_STEPS:
        training.after_input(tensor, tally.steps)


def _compare(tally, tensor):
    """Note whether a module takes the very tensor that it has taken before: nobody has changed it."""
    before, tally.last = tally.last, None
    try:
        version = tensor._version
    except (AttributeError, RuntimeError):  # tensors of inference have no version
        return
    if before is not None and before[1] == version and before[0]() is tensor:
        tally.last = before
        if tally.calls:
            tally.again += 1
        else:
            tally.repeats += 1
    else:
        tally.last = (weakref.ref(tensor), version)


def _rows(tally, given, tensor):
    """Return the samples of a module's inputs. They may be the second dimension, as for an inner module."""
    parts = tuple(given.values()) if isinstance(given, dict) and len(given) == 1 else given
    count = samples(parts) if isinstance(parts, dict) else samples(parts[0]) or samples(parts)
    has_second = tensor is not None and tensor.dim() > 1
    if tally.inner is not None and tally.inner.batch:
        tally.is_second = tally.inner.batch != count and has_second and int(tensor.shape[1]) == tally.inner.batch
        tally.inner = None
    if tally.is_second and has_second:
        return int(tensor.shape[1])
    if is_without_batch(given):
        tally.why = "the module takes single samples, or a batch without another dimension"
        return 0
    return count


class Inner:
    """An inner module that says which dimension of its input is that of the samples, and how many there are."""

    def __init__(self, module):
        self.batch = 0
        self._read = guarded("inner")(self._called)
        before_call(module, self._read)

    def _called(self, module, args, _kwargs):
        forget(module, self._read)
        tensor = args[0] if args else None
        if tensor is not None and hasattr(tensor, "batch_sizes"):  # a packed sequence
            self.batch = int(tensor.batch_sizes[0])
        elif is_tensor(tensor) and tensor.dim() > 2:
            self.batch = int(tensor.shape[0 if module.batch_first else 1])


def _inner(modules):
    """Return the first inner module with a sequence, where none of the modules is compiled; None without one."""
    parts = [part for module in modules[:1] for part in module.modules()]
    if any("OptimizedModule" in type(part).__name__ or getattr(part, "_compiled_call_impl", None) for part in parts):
        return None
    return next((Inner(part) for part in parts if isinstance(getattr(part, "batch_first", None), bool)), None)


tallies = {}
_last = {"main": None, "begun": None, "others": 0, "is_apart": False, "backwards": 0}
"""The main tally, the one whose module is watched, how many optimizers there were when their networks were compared and
what that has shown, and the backward passes that run now."""


def _tally_of(optimizer):
    """Return the tally of an optimizer, and make the one with most parameters that still lives the main one."""
    tally = tallies.get(id(optimizer))
    if tally is None or tally.optimizer() is not optimizer:
        tally = tallies[id(optimizer)] = Tally(optimizer)
        main = _last["main"]
        if main is None or main.optimizer() is None or tally.size >= main.size:
            _last["main"] = tally
            if main is not None:
                tally.follow(main)
    return tally


@guarded("steps")
def _before_backward():
    tally = _last["main"]
    _last["backwards"] += 1
    if tally is not None and tally.open:
        tally.backward()


def _after_backward():
    _last["backwards"] -= 1


@guarded("steps")
def after_step(optimizer, *_):
    """Count a step of an optimizer, and tell what was counted where the last time is long enough ago."""
    tally = _tally_of(optimizer)
    tally.steps += 1
    if tally is not _last["main"]:
        return
    now_s = time.monotonic()
    loaders.after_step()
    environments.after_step()
    training.after_step(tally.steps)
    if tally.calls and tally.first is not None and tally.first() is not None:
        tally.mode = tally.first().training
    elif not tally.calls:
        tally.mode = None
    tally.keep([] if tally.backwards else tally.open)
    if tally is not _last["begun"]:
        _last["begun"] = tally
        _begin(tally, optimizer)
    elif not tally.calls and tally.level < MOST_LEVELS and not tally.rows:
        tally.level += 1
        tally.watch(children(tally.modules))
    if not flops.is_over():
        flops.after_step(tally.steps, tally.modules, tally.evaluates_s + bool(tally.evaluates_from_s))
    if tally.steps <= FIRST_STEPS or now_s - tally.told_s >= TOLD_EVERY_S:
        tally.told_s = now_s
        _tell(tally, now_s)
    tally.calls = 0


def _begin(tally, optimizer):
    """Find the module of an optimizer, and tell what is trained."""
    modules = outermost(optimizer)
    tally.watch(modules)
    tally.inner = _inner(modules)
    root = modules[0] if modules else None
    tell(
        "start",
        **ranks(root),
        reuses=any(name in sys.modules for name in REUSING),
        **training.facts(optimizer, modules),
    )


def _is_apart(tally):
    """Return whether another optimizer trains a network that is no part of the main one's."""
    if _last["others"] != len(tallies):
        _last["others"] = len(tallies)
        own = {id(parameter) for module in tally.modules for parameter in module.parameters()}
        _last["is_apart"] = bool(own) and any(not second.trains_any(own) for second in tallies.values())
    return _last["is_apart"]


def _tell(tally, now_s):
    evaluates_s = tally.evaluates_s
    if tally.evaluates_from_s is not None:
        evaluates_s += now_s - tally.evaluates_from_s
    counts = {
        "at_s": now_s,
        **{name: getattr(tally, name) for name in COUNTS},
        "is_apart": _is_apart(tally),
        "form": tally.form,
        "evaluates_s": evaluates_s,
        "saves_s": training.Saves.seconds,
        "skipped": training.Scaler.skipped,
        **training.memory(),
        "why": tally.why if not tally.rows else None,
        "flops": flops.counted(),
    }
    if loaders.feeds:
        counts["loader"] = {name: getattr(loaders, name) for name in LOADER_COUNTS}
    if environments.training:
        counts["environments"] = {"steps": environments.training, "rollouts": environments.rollouts}
    tell("count", **counts, **training.seen(tally.steps))


def _begin_anew():
    """Forget everything in a forked process: what it trains is its own."""
    tallies.clear()
    loaders.__init__()
    _last.update(main=None, begun=None, others=0, is_apart=False, backwards=0)
    training.firsts.begin_anew()
    flops.begin_anew()


@guarded("steps")
def _install(module):
    import os

    module.register_optimizer_step_post_hook(after_step)
    training.before_backward.append(_before_backward)
    training.after_backward.append(_after_backward)
    os.register_at_fork(after_in_child=_begin_anew)


def install():
    """Count from the import of torch's optimizers on."""
    when_imported("torch.optim.optimizer", _install)
    training.install()
