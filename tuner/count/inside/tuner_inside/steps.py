"""Counts optimizer steps, and the samples that the trained module takes between them. It never waits for a device.

A tally holds the counts of one optimizer; the main tally is that of the optimizer with most parameters. What each step
does is only noted: a note is a call that `notes.py` makes later, a few times a second.
"""

import os
import sys
import weakref
from time import monotonic

from tuner_inside import calls, notes
from tuner_inside.environments import REUSING, environments
from tuner_inside.flops import count_operations, flops
from tuner_inside.imports import when_imported
from tuner_inside.inputs import first_tensor, is_tensor, is_without_batch, sample_form, samples
from tuner_inside.loaders import loaders
from tuner_inside.notes import note, pace, work_through
from tuner_inside.roots import children, outermost, ranks
from tuner_inside.tell import around, guarded, off, switch_off, tell, tell_pause
from tuner_inside.training import LOSS_STEPS, facts, keep_input_sum, observations, training, watch_backward

TOLD_EVERY_S = 0.2
"""The least seconds between two records."""
FIRST_STEPS = 12
"""So many first steps are told one by one, because they show what is trained."""
COUNTS = ("steps", "rows", "forwards", "backwards", "joint", "again", "repeats", "unlearnt")
"""The counts of a tally that are told. They go on where another optimizer becomes the main one.

- `backwards`: the backward passes that came after a forward pass
- `joint`: the backward passes that came after several forward passes
- `again`: the forward passes of the same tensor as the one before, in the same step
- `repeats`: the steps whose first tensor is the last one of the step before
- `unlearnt`: the forward passes without gradients in training mode, as rollouts make them
"""


class Tally(calls.CallWatcher):
    """What the module of one optimizer has taken so far, and how often the optimizer has stepped."""

    __slots__ = ("__dict__", "optimizer", "step_note")  # a step looks at the last two

    def __init__(self, optimizer):
        super().__init__()
        sizes = {id(parameter): parameter.numel() for group in optimizer.param_groups for parameter in group["params"]}
        self.torch = sys.modules["torch"]
        self.optimizer = weakref.ref(optimizer)
        self.parameters = set(sizes)
        self.size = sum(sizes.values())
        for name in COUNTS:
            setattr(self, name, 0)
        self.evaluates_s = 0.0
        """The seconds of the evaluations that are over."""
        self.evaluates_from_s = None
        """When the evaluation that runs now began; None while none runs."""
        self.calls = 0
        """The forward passes since the last step."""
        self.pending_rows = []
        """The samples of each forward pass since the last backward pass."""
        self.last_input = None
        """A weak reference to the tensor of the last forward pass; None where it has no version."""
        self.last_version = None
        """The version of that tensor, which torch counts up when it is changed."""
        self.mode = None
        """Whether the module is in training mode when it trains, as it was before the last step; None if unknown."""
        self.last_mode = None
        """Whether the module was in training mode in its last call that counted and was looked at."""
        self.is_recomputed = False
        """Whether a backward pass has computed a forward pass again. Then all calls are looked at."""
        self.modules = []
        """Weak references to the modules that are watched."""
        self.input_module = None
        """A weak reference to the watched module that is called first: its inputs count."""
        self.batch_is_second = False
        """Whether the samples are the second dimension of the inputs, as in `[sequence, batch]`."""
        self.level = 0
        """How many levels below the outermost modules the watched ones are."""
        self.inner = None
        """The watcher of an inner module, before it has said which dimension the samples are; None afterwards."""
        self.form = ""
        """The form of a sample: `3x224x224 float32`."""
        self.why = None
        """Why the module's inputs are not counted; None where they are."""
        self.step_note = (self.step,)
        """The note of a step, made once because it is always the same."""
        self.told_s = 0.0
        """When the counts were told last."""

    def follow(self, replaced):
        """Take over the counts of the tally `replaced`, whose optimizer is no longer the main one."""
        for name in (*COUNTS, "evaluates_s"):
            setattr(self, name, getattr(replaced, name))
        replaced.watch_only(())

    def watch_only(self, modules):
        """Count the inputs of these modules, and of no others."""
        for module in _living(self.modules):
            self.forget(module)
        self.modules, self.input_module, self.usual_mode = [weakref.ref(module) for module in modules], None, None
        for module in modules:
            self.watch(module)

    @guarded("steps")
    def look(self, module, args, kwargs):
        """Count a call of a watched module if it trains; if it evaluates, an evaluation begins or goes on.

        A call evaluates without gradients, or in another mode than that of the training.
        """
        work_through()  # earlier calls first
        has_gradients = self.torch.is_grad_enabled()
        if calls.in_backward():  # a forward pass is computed again for its gradients: it was counted
            self.is_recomputed = True
            return
        if not has_gradients or self.mode not in (None, module.training):
            self._begin_evaluation(is_rollout=module.training and not has_gradients)
            return
        self._end_evaluation()
        if self.input_module is None:
            self.input_module = weakref.ref(module)
        if self.input_module() is module:
            self._count_call(module, args, kwargs)
        else:  # another watched module works on the same samples, which count once; their batch has trained
            loaders.trains = True

    def _count_call(self, module, args, kwargs):
        """Count a call that trains, and read from the calls of the first steps what a sample looks like.

        Once the shape of the first tensor shows the number of samples, the next calls like this one are only noted.
        """
        if args and samples(args):
            inputs = args
        else:  # samples may come by keyword, after other positional arguments
            inputs = kwargs or args
        tensor = first_tensor(inputs)
        rows = self._rows(inputs, tensor)
        if tensor is None or tensor.is_inference():  # of an inference tensor, torch counts no changes
            self.take(rows, None, None)
        else:
            self.take(rows, weakref.ref(tensor), tensor._version)
        self.last_mode = module.training
        batch_dimension = int(self.batch_is_second)
        if self.steps < FIRST_STEPS:
            self.form = sample_form(inputs, self.form, batch_dimension)
        elif type(tensor) is self.torch.Tensor and tensor.dim() > 1 and rows == tensor.shape[batch_dimension]:
            self._only_note_calls_like(module, tensor, args, kwargs)
        if self.steps < LOSS_STEPS:
            keep_input_sum(tensor)

    def _begin_evaluation(self, is_rollout):
        """Take a call that evaluates into account: an evaluation begins, unless one runs already.

        `is_rollout`: whether the module is in training mode, but without gradients, as in reinforcement learning.
        """
        loaders.on_evaluation()
        tell_pause()
        self.unlearnt += is_rollout
        self.usual_mode = None  # the call that ends the evaluation must be looked at
        if self.evaluates_from_s is None:
            self.evaluates_from_s = monotonic()

    def _end_evaluation(self):
        """Count the seconds of the evaluation that runs, if any does: a call trains again."""
        if self.evaluates_from_s is not None:
            self.evaluates_s += monotonic() - self.evaluates_from_s
            self.evaluates_from_s = None

    def _only_note_calls_like(self, module, tensor, args, kwargs):
        """Let the next calls like this one only be noted, which is cheaper than a look, and watch no other module.

        Args:
            module: the module that is called.
            tensor: the first tensor of its inputs, whose shape shows the samples.
            args: its positional arguments. If there are any, a note reads the first one, which must be `tensor`.
            kwargs: its named arguments. Without positional ones, a note reads the one that is `tensor`.
        """
        self.key = next((name for name, value in kwargs.items() if value is tensor), None)
        can_be_noted = args[0] is tensor if args else self.key is not None
        self.usual_mode = module.training if can_be_noted and not self.is_recomputed else None
        for watched in _living(self.modules):
            if watched is not module:
                self.forget(watched)

    def _rows(self, inputs, tensor):
        """Return the number of samples in a module's inputs, whose first tensor is `tensor`; 0 where it is unknown.

        They are the first dimension, unless an inner module has shown in its first call that they are the second one.
        """
        if not inputs:  # the module takes nothing
            return 0
        second_size = int(tensor.shape[1]) if tensor is not None and tensor.dim() > 1 else None
        if isinstance(inputs, dict) and len(inputs) > 1:
            count = samples(inputs)
        else:
            values = tuple(inputs.values()) if isinstance(inputs, dict) else inputs
            # of several positional inputs the first one counts, unless only all together are the samples
            count = samples(values[0]) or samples(values)
        if self.inner is not None and self.inner.batch:
            inner_batch, self.inner = self.inner.batch, None  # needed once
            self.batch_is_second = inner_batch != count and inner_batch == second_size
            if self.batch_is_second:
                self.form = ""  # the form so far has the batch in it
        if self.batch_is_second and second_size is not None:
            return second_size
        if is_without_batch(inputs):
            self.why = "the module takes single samples, or a batch without another dimension"
            return 0
        return count

    def take(self, rows, tensor, version):
        """Count a forward pass, and whether it takes its samples once more: the same tensor as the pass before.

        Args:
            rows: the samples of the pass.
            tensor: a weak reference to its first tensor; None where it has no version. Python makes a single reference
                to each tensor, so that `is` compares the tensors.
            version: how often torch has seen the tensor changed; None where nobody has looked.
        """
        loaders.trains = True
        if self.last_input is tensor and tensor is not None:
            self.is_reusing = True
            is_unchanged = version is not None and version == self.last_version
            self.again += is_unchanged and self.calls > 0
            self.repeats += is_unchanged and not self.calls  # the pass before belonged to the step before
        self.last_input = tensor
        self.last_version = version
        self.calls += 1
        self.forwards += 1
        self.pending_rows.append(rows)

    def take_usual(self, shape, tensor, version):
        """Count a forward pass of which only a note was taken."""
        self.take(shape[self.batch_is_second], tensor, version)

    def step(self):
        """Count a step of the optimizer. If it is the main one, the counts since its last step are complete now."""
        self.steps += 1
        if self is not _now.main:
            return
        if not self.backwards:  # backward passes cannot be watched: all forward passes count
            self.rows += sum(self.pending_rows)
        self.pending_rows = []
        self.mode = self.last_mode if self.calls else None
        self.calls = 0
        training.steps = self.steps
        loaders.after_step()


class Inner(calls.CallWatcher):
    """Watches an inner module that says which dimension of its input is that of the samples."""

    def __init__(self, module):
        super().__init__()
        self.batch = 0
        """The samples of its first input; 0 before its first call."""
        self.watch(module)

    @guarded("inner")
    def look(self, module, args, kwargs):
        """Read the number of samples from the shape of the first input, in the first call alone."""
        self.forget(module)
        tensor = args[0] if args else None
        if tensor is not None and hasattr(tensor, "batch_sizes"):  # a packed sequence
            self.batch = int(tensor.batch_sizes[0])
        elif is_tensor(tensor) and tensor.dim() > 2:  # with two, it is a single sequence
            self.batch = int(tensor.shape[0 if module.batch_first else 1])


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
        """How often another optimizer has replaced the main one because that was no more."""
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
            self.main, pace.due_s = tally, 0.0
            if main is not None:
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
            main_ids = {id(parameter) for module in _living(self.main.modules) for parameter in module.parameters()}
            living = [tally for tally in self.tallies.values() if tally.optimizer() is not None]
            self._is_apart = bool(main_ids) and any(not tally.parameters & main_ids for tally in living)
        return self._is_apart


_now = Now()


def _living(references):
    """Return the things of weak references that still live."""
    return [thing for thing in (reference() for reference in references) if thing is not None]


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
        tally.watch_only(children(_living(tally.modules)))
    if not flops.is_over:
        # changes when an evaluation begins, and when it ends
        evaluations = tally.evaluates_s + bool(tally.evaluates_from_s)
        count_operations(tally.steps, _living(tally.modules), evaluations)
    if tally.steps <= FIRST_STEPS or now_s - tally.told_s >= TOLD_EVERY_S:
        tally.told_s = now_s
        _tell(tally, now_s)
    pace.due_s = tally.told_s + TOLD_EVERY_S if tally.steps >= FIRST_STEPS else 0.0


def _watch_module(tally, optimizer):
    """Watch the module that an optimizer trains, and tell what is trained."""
    modules = outermost(optimizer)
    training_facts = facts(optimizer, modules)
    tally.watch_only(modules)
    # a compiled module does not call its inner ones
    inner_modules = modules[0].modules() if modules and not training_facts["compiled"] else ()
    with_dimension = (part for part in inner_modules if type(getattr(part, "batch_first", None)) is bool)
    tally.inner = next(map(Inner, with_dimension), None)
    reuses = any(name in sys.modules for name in REUSING)
    tell("start", **ranks(modules[0] if modules else None), reuses=reuses, **training_facts)


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
