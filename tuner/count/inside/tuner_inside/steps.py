"""Counts optimizer steps, and writes the records of all counts. It never waits for a device.

A tally holds the counts of one optimizer; the main tally is that of the optimizer with most parameters.
"""

import os
import sys
from time import monotonic

from tuner_inside import calls
from tuner_inside.environments import RL_LIBRARIES, environments
from tuner_inside.flops import count_operations, flops
from tuner_inside.imports import when_imported
from tuner_inside.loaders import loaders
from tuner_inside.records import around, errors_switch_off, write_record
from tuner_inside.roots import children, outermost, ranks
from tuner_inside.steady_steps import steady
from tuner_inside.tally import COUNTS, FIRST_STEPS, Inner, Tally, living
from tuner_inside.training import facts, observations, training, watch_backward

RECORD_EVERY_S = 0.2
"""The least seconds between two records."""
STEADY_AFTER = 16
"""After so many steps in a row that have each made the counts larger by the same, a training is steady (chosen)."""


class State:
    """The counts of all optimizers of this process, and what decides whether the training is steady."""

    def __init__(self):
        """Hold the counts of all optimizers; none has stepped yet."""
        self.tallies = {}
        """The id of an optimizer → its tally."""
        self.main = None
        """The tally of the living optimizer with most parameters."""
        self.calls = 0
        """The steps of all optimizers, without those that steady steps have not added yet."""
        self.totals = [0] * (len(COUNTS) + 1)
        """The counts that show whether steps are equal, after the last step that was counted in full."""
        self.growth = self.steady_growth = None
        """The growth of `totals` in the last step that was counted in full, and in each steady step."""
        self.steady_arguments, self.full_count_s = (), 0.0
        """The arguments of `Steady.begin`, and the time, after five records, at which steps count in full again."""
        self.equal_steps = 0
        """How many steps in a row, up to the last one, have made `totals` larger by the same. It is -1 after steady
        steps: the growth up to the next step that counts in full has theirs in it, and shows nothing."""
        self.watched_tally = None
        """The tally whose module is watched."""
        self.replacements = 0
        """How often a new main optimizer was chosen because the old one was gone."""
        self._is_apart = False
        """The last answer of `is_apart`."""
        self._compared_tallies = 0
        """The number of tallies when `_is_apart` was worked out."""

    def tally_of(self, optimizer):
        """Return the tally of an optimizer, a new one at its first step.

        A new tally becomes the main one if its optimizer has most parameters, or if the main optimizer is gone.
        """
        tally = self.tallies.get(id(optimizer))
        if tally is not None and tally.optimizer() is optimizer:  # else the id is that of an optimizer that is gone
            return tally
        tally, main = Tally(optimizer), self.main
        self.tallies[id(optimizer)] = tally
        tally.main_steps_before = main.steps if main else 0
        is_gone = main is not None and main.optimizer() is None
        if is_gone:
            self.replacements += 1
        # to find the module that an optimizer trains takes 50 ms: too much every few steps (8 and 10 are chosen)
        if self.replacements > 8 and main.steps < 10 * self.replacements:
            raise RuntimeError("the training makes a new optimizer every few steps")
        if main is None or is_gone or tally.size >= main.size:
            self.main, steady.due_s = tally, 0.0
            if main is not None:
                tally.continue_counts(main)
        return tally

    def is_apart(self):
        """Return whether an optimizer beside the main one trains a network of its own, as in a GAN.

        It does if it has no parameter of the modules that the main optimizer trains. This takes long to work out, so
        the answer is cached until there is a new optimizer.
        """
        if self._compared_tallies != len(self.tallies):
            self._compared_tallies = len(self.tallies)
            main_ids = {id(parameter) for module in living(self.main.modules) for parameter in module.parameters()}
            tallies = [tally for tally in self.tallies.values() if tally.optimizer() is not None]
            self._is_apart = bool(main_ids) and any(not tally.parameters & main_ids for tally in tallies)
        return self._is_apart


_state = State()


def after_step(optimizer, _args, _kwargs):
    """Count a step of an optimizer. A step of a steady training between two records is only added to the sums."""
    if id(optimizer) == steady.optimizer_id and steady.unlearned_rows is None and monotonic() < steady.due_s:
        steady.steps += 1
        steady.backwards_at_step, steady.batches_at_step = steady.backwards, steady.batches
    else:
        _look_at_step(optimizer)


@errors_switch_off("steps")
def _look_at_step(optimizer):
    """Count a step of an optimizer in full, and write a record if the last one is `RECORD_EVERY_S` old."""
    was_steady = steady.end()
    _state.calls += 1
    tally = _state.tally_of(optimizer)
    tally.steps += 1
    if tally is _state.main:
        tally.end_step()
        environments.after_step()
        now_s = monotonic()
        if now_s >= steady.due_s:
            _find_module_and_record(tally, optimizer, now_s)
        if was_steady and now_s < _state.full_count_s and len(_state.tallies) == 1 and not environments.steps:
            steady.begin(*_state.steady_arguments)
        else:
            _begin_to_be_steady(tally, optimizer)
    else:
        _state.main.on_other_step(tally)


def _begin_to_be_steady(tally, optimizer):
    """Let the training be steady from now on, if each of the last steps has made all counts larger by the same.

    `steady_steps.py` then adds up its steps. The training must also be plain: one optimizer, one backward pass for each
    forward pass, a known module and input, no environments, and at most one loader.
    """
    totals = [*(getattr(tally, name) for name in COUNTS[3:]), loaders.batches, loaders.fed_steps, tally.evaluates_s]
    growth = [total - before for total, before in zip(totals, _state.totals)]
    _state.equal_steps = _state.equal_steps + 1 if growth == _state.growth else min(_state.equal_steps, 0) + 1
    _state.totals, _state.growth = totals, growth
    module = tally.input_module and tally.input_module()
    forwards, backwards, joint_backwards, repeated_forwards, repeated_inputs, no_gradient_forwards, _, batches, *_ = (
        growth
    )
    feed = loaders.last_feed if batches else None
    has_plain_passes = forwards > 0 and forwards == backwards and not joint_backwards and not no_gradient_forwards
    is_feed_known = not batches or (feed is not None and feed.key is not None and not feed.copies.is_comparing())
    can_be_added = (
        has_plain_passes
        and module is not None
        and tally.reading is not None
        and is_feed_known
        and flops.is_over
        and len(_state.tallies) == 1
        and not environments.steps
    )
    if not can_be_added or _state.equal_steps < (2 if growth == _state.steady_growth else STEADY_AFTER):
        return
    _state.steady_growth = growth

    def add_to_counts(sums):
        """Add the sums of steps that were alike to the counts. Each has repeated as many inputs as this step."""
        tally.pending_rows = [] if sums.unlearned_rows is None else [sums.unlearned_rows]
        tally.calls = sums.backwards_since_step + len(tally.pending_rows)
        tally.steps += sums.steps
        tally.rows += sums.rows
        tally.forwards += sums.backwards + len(tally.pending_rows)
        tally.backwards += sums.backwards
        tally.repeated_forwards += repeated_forwards * sums.steps
        tally.repeated_inputs += repeated_inputs * sums.steps
        if not repeated_inputs:
            tally.last_input = None  # the tensor of a step long ago is none that is given again
        training.steps = tally.steps
        _state.calls += sums.steps
        if feed is not None:
            loaders.add_steady(feed, sums)
        _state.equal_steps = -1  # this step did not count in full

    _state.steady_arguments = add_to_counts, tally.input_module, tally.last_mode, *tally.reading, feed, id(optimizer)
    _state.full_count_s = monotonic() + 5 * RECORD_EVERY_S  # (chosen)
    steady.begin(*_state.steady_arguments)


@errors_switch_off("steps")
def _before_backward():
    if _state.main is not None:
        _state.main.count_backward()


def _find_module_and_record(tally, optimizer, now_s):
    """Look for the module that the main optimizer trains, unless it is known, and write a record of all counts.

    `now_s` is the time of `monotonic`. The next record is due `RECORD_EVERY_S` later; in the first steps at once.
    """
    if tally is not _state.watched_tally:
        _state.watched_tally = tally
        _watch_module(tally, optimizer)
    elif tally.input_module is None and tally.level < 6 and not tally.rows:
        # the script calls none of the outermost modules: one level further in, up to six (chosen)
        tally.level += 1
        tally.watch_only(children(living(tally.modules)))
    if not flops.is_over:
        # changes when an evaluation begins, and when it ends
        evaluations = tally.evaluates_s + bool(tally.evaluates_from_s)
        count_operations(tally.steps, living(tally.modules), evaluations)
    _record(tally, now_s)
    steady.due_s = now_s + RECORD_EVERY_S if tally.steps >= FIRST_STEPS else 0.0


def _watch_module(tally, optimizer):
    """Watch the outermost modules that an optimizer trains, and record how they are trained.

    The first module inside them that has `batch_first` is watched, too: its input shows how many samples a batch has.
    """
    modules = outermost(optimizer)
    training_facts = facts(optimizer, modules)
    tally.watch_only(modules)
    # a compiled module does not call its inner ones
    inner_modules = modules[0].modules() if modules and not training_facts["compiled"] else ()
    with_batch_first = (part for part in inner_modules if type(getattr(part, "batch_first", None)) is bool)
    tally.inner = next(map(Inner, with_batch_first), None)
    uses_rl_library = any(name in sys.modules for name in RL_LIBRARIES)
    write_record("start", **ranks(modules[0] if modules else None), uses_rl_library=uses_rl_library, **training_facts)


def _record(tally, now_s):
    """Write a record of all counts so far."""
    counts = {
        "at_s": now_s,
        **{name: getattr(tally, name) for name in COUNTS},
        "is_apart": _state.is_apart(),
        "form": tally.form,
        "evaluates_s": tally.evaluates_s,
        "why": tally.why_uncounted if not tally.rows else None,
        "flops": flops.counted,
    }
    if loaders.fed_steps:
        names = ("rows", "batches", "fed_steps", "passes", "wait_s", "pass_rows", "batch_size", "copies", "labels")
        counts["loader"] = {name: getattr(loaders, name) for name in names}
    if environments.training:
        counts["environments"] = {"steps": environments.training, "rollouts": environments.rollouts}
    write_record("count", **counts, **observations())


def _begin_anew():
    """Forget everything in a forked process: what it trains is its own."""
    for part in (_state, loaders, training, flops, steady):  # the same objects, because hooks hold them
        part.__init__()
    calls.begin_anew()


@errors_switch_off("steps")
def _hook_optimizers(module):
    """Count the steps of all optimizers from now on, anew in each forked process."""
    module.register_optimizer_step_post_hook(after_step)
    os.register_at_fork(after_in_child=_begin_anew)


def _before_scaled_step(scaler, *_, **__):
    """Return how many steps optimizers have made, so that a skipped step shows; None if the scaler is off."""
    if not scaler.is_enabled():
        return None
    training.is_scaled = True
    return _state.calls + steady.steps


def _after_scaled_step(steps_before, _):
    training.skipped += _state.calls + steady.steps == steps_before


@errors_switch_off("compiler")
def _keep_from_compiler(module):
    """Let torch's compiler leave the code of the counting as it is: it runs beside what is compiled."""
    after_step._torchdynamo_disable = True  # an optimizer calls it, which may be compiled
    modules = [loaded for name, loaded in list(sys.modules.items()) if name.startswith("tuner_inside")]
    classes = [kind for loaded in modules for kind in vars(loaded).values() if isinstance(kind, type)]
    values = [value for owner in (*modules, *classes) for value in vars(owner).values()]
    functions = [getattr(value, "__wrapped__", value) for value in values]  # `errors_switch_off` wraps some
    codes = [function.__code__ for function in functions if hasattr(function, "__code__")]
    while codes:
        code = codes.pop()
        module.skip_code(code)
        codes += [part for part in code.co_consts if isinstance(part, type(code))]  # functions inside functions


def install():
    """Count from the import of torch's optimizers on."""
    when_imported("torch._dynamo.eval_frame", _keep_from_compiler)
    scaled = ("step", _before_scaled_step, _after_scaled_step)
    when_imported("torch.amp.grad_scaler", lambda module: around("scaler", module.GradScaler, *scaled))
    when_imported("torch.optim.optimizer", _hook_optimizers)
    watch_backward(_before_backward)
