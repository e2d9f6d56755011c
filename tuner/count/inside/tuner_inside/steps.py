"""Counts optimizer steps, and the samples that the trained module takes between them. It never waits for a device."""

import sys
import time
import weakref

from tuner_inside import training
from tuner_inside.calls import before_call, forget
from tuner_inside.environments import REUSING, environments
from tuner_inside.imports import when_imported
from tuner_inside.inputs import first_tensor, is_tensor, sample_form, samples, tokens
from tuner_inside.loaders import loaders
from tuner_inside.roots import children, outermost, ranks
from tuner_inside.tell import guarded, tell, tell_pause

TOLD_EVERY_S = 0.2
"""A record is written at most so often, in seconds: a few times a second."""
FIRST_STEPS = 12
"""Each of the first steps is told, because they show what is trained."""
MEMORY_EVERY_S = 1.0
"""The allocator is asked at most so often, in seconds."""
MOST_LEVELS = 6
"""So many levels of modules are tried, from the outermost one down, until one of them is called."""


class Tally:
    """What the module of one optimizer has taken so far, and how often the optimizer has stepped."""

    def __init__(self, optimizer):
        self.optimizer = weakref.ref(optimizer)
        self.size = training.parameter_count(optimizer)
        self.steps = 0
        self.rows = 0
        self.tokens = 0
        self.forwards = 0
        self.calls = 0
        """The forward passes since the last step."""
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
    if not sys.modules["torch"].is_grad_enabled():
        tell_pause()
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
    given = args if first_is_data(args) else (tuple(kwargs.values()) or args)
    tally.calls += 1
    tally.forwards += 1
    tally.rows += _rows(tally, given)
    tally.tokens += tokens(given)
    if tally.steps < FIRST_STEPS:
        tally.form = sample_form(given, tally.form)
    training.after_input(given, tally.steps)


def _rows(tally, given):
    """Return the samples of a module's inputs. They may be the second dimension, as for an inner module."""
    count = samples(given[0]) or samples(given)
    if tally.inner is not None and tally.inner.batch and tally.inner.batch != count:
        tensor = first_tensor(given)
        if tensor is not None and tensor.dim() > 1 and int(tensor.shape[1]) == tally.inner.batch:
            tally.is_second = True
        tally.inner = None
    elif tally.inner is not None and tally.inner.batch:
        tally.inner = None
    if tally.is_second:
        tensor = first_tensor(given)
        return int(tensor.shape[1]) if tensor is not None and tensor.dim() > 1 else count
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
    found = [part for module in modules[:1] for part in module.modules()]
    if any("OptimizedModule" in type(part).__name__ or getattr(part, "_compiled_call_impl", None) for part in found):
        return None
    return next((Inner(part) for part in found if isinstance(getattr(part, "batch_first", None), bool)), None)


def first_is_data(args):
    """Return whether the positional inputs hold a tensor."""
    return bool(args) and samples(args) > 0


tallies = {}
_last = {"main": None, "begun": None, "memory_s": 0.0, "memory": {}}
"""The main tally, the one whose module is watched, and when the allocator was asked, and its answer."""


def _tally_of(optimizer):
    """Return the tally of an optimizer, and make the one with most parameters that still lives the main one."""
    tally = tallies.get(id(optimizer))
    if tally is None or tally.optimizer() is not optimizer:
        tally = tallies[id(optimizer)] = Tally(optimizer)
        living = [other for other in tallies.values() if other.optimizer() is not None]
        _last["main"] = max(living, key=lambda other: other.size)
    return tally


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
    if tally is not _last["begun"]:
        _last["begun"] = tally
        _begin(tally, optimizer)
    elif not tally.calls and tally.level < MOST_LEVELS and not tally.rows:
        tally.level += 1
        tally.watch(children(tally.modules))
    if tally.steps <= FIRST_STEPS or now_s - tally.told_s >= TOLD_EVERY_S:
        tally.told_s = now_s
        _tell(tally, optimizer, now_s)
    tally.calls = 0


def _begin(tally, optimizer):
    """Find the module of an optimizer, and tell what is trained."""
    found = outermost(optimizer)
    tally.watch(found)
    tally.inner = _inner(found)
    root = found[0] if found else None
    tell(
        "start",
        **ranks(root),
        root=type(root).__name__ if found else None,
        steps=tally.steps,
        reuses=any(name in sys.modules for name in REUSING),
        **training.facts(optimizer, found),
    )


def _tell(tally, optimizer, now_s):
    data = loaders.training
    evaluates_s = tally.evaluates_s
    if tally.evaluates_from_s is not None:
        evaluates_s += now_s - tally.evaluates_from_s
    counts = {
        "at_s": now_s,
        "steps": tally.steps,
        "rows": tally.rows,
        "tokens": tally.tokens,
        "forwards": tally.forwards,
        "form": tally.form,
        "is_second": tally.is_second,
        "evaluates_s": evaluates_s,
        "saves_s": training.saves.seconds,
        "saves": training.saves.count,
        "skipped": training.scaler.skipped,
        "others": sum(other.steps for other in tallies.values()) - tally.steps,
    }
    if data is not None:
        counts["loader"] = {
            "rows": data.rows,
            "batches": data.batches,
            "feeds": data.feeds,
            "passes": data.passes,
            "wait_s": data.wait_s,
            "size": data.size,
            "workers": data.workers,
        }
    if environments.training:
        counts["environments"] = {"steps": environments.training, "rollouts": environments.rollouts}
    if now_s - _last["memory_s"] >= MEMORY_EVERY_S:
        _last["memory_s"] = now_s
        _last["memory"] = training.memory()
    counts.update(_last["memory"])
    counts.update(training.seen(optimizer, tally.steps))
    tell("count", **counts)


def _begin_anew():
    """Forget everything in a forked process: what it trains is its own."""
    tallies.clear()
    loaders.data.clear()
    training.firsts.begin_anew()
    _last.update(main=None, begun=None, memory_s=0.0, memory={})


@guarded("steps")
def _install(module):
    import os

    module.register_optimizer_step_post_hook(after_step)
    os.register_at_fork(after_in_child=_begin_anew)


def install():
    """Count from the import of torch's optimizers on."""
    when_imported("torch.optim.optimizer", _install)
    training.install()
