"""Counts optimizer steps, and tells what was counted. It never waits for a device.

A tally holds the counts of one optimizer; the main tally is that of the optimizer with most parameters. What each step
does is only noted: a note is a call that `notes.py` makes later, a few times a second.
"""

import os
import sys
from time import monotonic

from tuner_inside import calls, notes
from tuner_inside.environments import RL_LIBRARIES, environments
from tuner_inside.flops import count_operations, flops
from tuner_inside.imports import when_imported
from tuner_inside.loaders import loaders
from tuner_inside.notes import note, pace, work_through
from tuner_inside.roots import children, outermost, ranks
from tuner_inside.tally import COUNTS, FIRST_STEPS, Inner, Tally, living
from tuner_inside.tell import around, guarded, off, switch_off, tell
from tuner_inside.training import facts, observations, training, watch_backward

TOLD_EVERY_S = 0.2
"""The least seconds between two records."""


class Now:
    """What is counted now."""

    __slots__ = ("_compared", "_is_apart", "latest", "main", "replacements", "tallies", "watched")

    def __init__(self):
        self.tallies = {}
        """The id of an optimizer → its tally."""
        self.main = None
        """The tally of the living optimizer with most parameters."""
        self.latest = None
        """The tally of the optimizer that has stepped last."""
        self.watched = None
        """The tally whose module is watched."""
        self.replacements = 0
        """How often a new main optimizer was chosen because the old one was gone."""
        self._is_apart = False
        self._compared = 0
        """How many tallies there were when `_is_apart` was found out."""

    def tally_of(self, optimizer):
        """Return the tally of an optimizer, a new one at its first step.

        A new tally becomes the main one if its optimizer has most parameters, or if the main optimizer is gone.
        """
        tally = self.tallies.get(id(optimizer))
        if tally is not None and tally.optimizer() is optimizer:  # else the id is that of an optimizer that is gone
            return tally
        work_through()  # what was noted belongs to the main tally so far
        tally, main = Tally(optimizer), self.main
        self.tallies[id(optimizer)] = tally
        is_gone = main is not None and main.optimizer() is None
        if is_gone:
            self.replacements += 1
        # to find the module that an optimizer trains takes 50 ms: too much every few steps (8 and 10 are chosen)
        if self.replacements > 8 and main.steps < 10 * self.replacements:
            raise RuntimeError("the training makes a new optimizer every few steps")
        if main is None or is_gone or tally.size >= main.size:
            self.main, tally.is_main, pace.due_s = tally, True, 0.0
            if main is not None:
                main.is_main = False
                tally.follow(main)
        return tally

    def before_backward(self):
        """Count a backward pass, and the samples of the last forward pass before it, whose loss it begins from.

        The samples of further forward passes before it are not counted: `joint` counts such backward passes.
        """
        tally = self.main
        if tally is not None and tally.pending_rows:
            tally.backwards += 1
            tally.joint += len(tally.pending_rows) > 1
            tally.rows += tally.pending_rows[-1]
            tally.pending_rows = []

    def is_apart(self):
        """Return whether another optimizer trains a network of its own, as in a GAN.

        It does if it has no parameter of the modules that the main optimizer trains. To find out takes long, so the
        answer is kept until there is another optimizer.
        """
        if self._compared != len(self.tallies):
            self._compared = len(self.tallies)
            main_ids = {id(parameter) for module in living(self.main.modules) for parameter in module.parameters()}
            tallies = [tally for tally in self.tallies.values() if tally.optimizer() is not None]
            self._is_apart = bool(main_ids) and any(not tally.parameters & main_ids for tally in tallies)
        return self._is_apart


_now = Now()


def after_step(optimizer, _args, _kwargs):
    """Note a step of an optimizer, and tell what was counted if the last record is old enough."""
    try:
        tally = _now.latest  # most trainings have one optimizer, whose tally need not be looked up
        if tally is None or tally.optimizer() is not optimizer:
            if "steps" in off:
                return
            tally = _now.latest = _now.tally_of(optimizer)
        note(tally.step_note)
        if tally is _now.main:
            if environments.latest is not None:
                environments.after_step()
            now_s = monotonic()
            if now_s >= pace.due_s and "steps" not in off:
                work_through()
                _find_module_and_tell(tally, optimizer, now_s)
    except Exception as error:
        switch_off("steps", error)


def _find_module_and_tell(tally, optimizer, now_s):
    """Look for the module that an optimizer trains, and tell what was counted if it is time.

    Args:
        tally: the main tally.
        optimizer: its optimizer, which has just made a step.
        now_s: the time of `time.monotonic`.
    """
    if tally is not _now.watched:
        _now.watched = tally
        _watch_module(tally, optimizer)
    elif tally.input_module is None and tally.level < 6 and not tally.rows:
        # the script calls none of the outermost modules: one level further in, up to six (chosen)
        tally.level += 1
        tally.watch_only(children(living(tally.modules)))
    if not flops.is_over:
        # changes when an evaluation begins, and when it ends
        evaluations = tally.evaluates_s + bool(tally.evaluates_from_s)
        count_operations(tally.steps, living(tally.modules), evaluations)
    if tally.steps <= FIRST_STEPS or now_s - tally.told_s >= TOLD_EVERY_S:
        tally.told_s = now_s
        _tell(tally, now_s)
    pace.due_s = tally.told_s + TOLD_EVERY_S if tally.steps >= FIRST_STEPS else 0.0


def _watch_module(tally, optimizer):
    """Watch the outermost modules that an optimizer trains, and tell the tuner how they are trained.

    The first module inside them that has `batch_first` is watched, too: its input shows how many samples a batch has.
    """
    modules = outermost(optimizer)
    training_facts = facts(optimizer, modules)
    tally.watch_only(modules)
    # a compiled module does not call its inner ones
    inner_modules = modules[0].modules() if modules and not training_facts["compiled"] else ()
    with_batch_first = (part for part in inner_modules if type(getattr(part, "batch_first", None)) is bool)
    tally.inner = next(map(Inner, with_batch_first), None)
    reuses_samples = any(name in sys.modules for name in RL_LIBRARIES)
    tell("start", **ranks(modules[0] if modules else None), reuses=reuses_samples, **training_facts)


def _tell(tally, now_s):
    """Tell all counts so far."""
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
    tell("count", **counts, **observations())


def _begin_anew():
    """Forget everything in a forked process: what it trains is its own."""
    for part in (_now, loaders, training, flops):  # the same objects, because hooks hold them
        part.__init__()
    for module in (notes, calls):
        module.begin_anew()


@guarded("steps")
def _hook_optimizers(module):
    """Note the steps of all optimizers from now on, anew in each forked process."""
    module.register_optimizer_step_post_hook(after_step)
    os.register_at_fork(after_in_child=_begin_anew)


def _before_scaled_step(scaler, *_, **__):
    """Forget which optimizer stepped last, so that a skipped step shows. Return None if the scaler is off."""
    if not scaler.is_enabled():
        return None
    training.is_scaled, _now.latest = True, None
    return scaler


def _after_scaled_step(*_):
    training.skipped += _now.latest is None  # no optimizer has made a step


def _wrap_scaler(module):
    around("scaler", module.GradScaler, "step", _before_scaled_step, _after_scaled_step)


@guarded("compiler")
def _keep_from_compiler(module):
    """Let torch's compiler leave the code of the counting as it is: it runs beside what is compiled."""
    after_step._torchdynamo_disable = True  # an optimizer calls it, which may be compiled
    ours = [part for name, part in list(sys.modules.items()) if name.startswith("tuner_inside")]
    classes = [kind for part in ours for kind in vars(part).values() if isinstance(kind, type)]
    functions = [thing for owner in (*ours, *classes) for thing in vars(owner).values()]
    codes = [function.__code__ for function in functions if hasattr(function, "__code__")]
    while codes:
        code = codes.pop()
        module.skip_code(code)
        codes += [part for part in code.co_consts if isinstance(part, type(code))]  # functions inside functions


def install():
    """Count from the import of torch's optimizers on."""
    when_imported("torch._dynamo.eval_frame", _keep_from_compiler)
    when_imported("torch.amp.grad_scaler", _wrap_scaler)
    when_imported("torch.optim.optimizer", _hook_optimizers)
    watch_backward(_now.before_backward)
