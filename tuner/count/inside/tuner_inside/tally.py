"""Counts the samples that the module of an optimizer takes between two steps. It never waits for a device.

A tally holds the counts of one optimizer; the main tally is that of the optimizer with most parameters. Once steps are
alike, `steady_steps.py` counts in its place.
"""

import sys
import weakref
from time import monotonic

from tuner_inside import calls
from tuner_inside.inputs import first_tensor, is_of_function, is_tensor, is_without_batch, sample_form, samples
from tuner_inside.loaders import loaders
from tuner_inside.records import errors_switch_off, record_pause
from tuner_inside.steady_steps import steady
from tuner_inside.training import LOSS_STEPS, keep_input_sum, training

FIRST_STEPS = 12
"""The number of first steps that each write a record, because they show what is trained."""
COUNTS = (
    *("steps", "rows", "elements", "forwards", "backwards", "joint_backwards"),
    *("repeated_forwards", "repeated_inputs", "no_gradient_forwards", "generations"),
)
"""The counts of a tally that records have. They go on where another optimizer becomes the main one.

- `elements`: the numbers in the first tensors of the inputs, in the first steps alone
- `backwards`: the backward passes that came after a forward pass
- `joint_backwards`: the backward passes that came after several forward passes
- `repeated_forwards`: the forward passes of the same tensor as the forward pass before, in the same step
- `repeated_inputs`: the steps whose first tensor is the last one of the step before
- `no_gradient_forwards`: the forward passes without gradients in training mode, as rollouts make them
- `generations`: the evaluations in which the module writes words, one in each call
"""


class Tally:
    """What the module of one optimizer has taken so far, and how often the optimizer has stepped."""

    def __init__(self, optimizer):
        """Count for one optimizer, before it is known which module it trains."""
        sizes = {id(parameter): parameter.numel() for group in optimizer.param_groups for parameter in group["params"]}
        self.torch = sys.modules["torch"]
        self.optimizer = weakref.ref(optimizer, steady.end)
        self.parameters = set(sizes)
        self.size = sum(sizes.values())
        for name in COUNTS:
            setattr(self, name, 0)
        self.evaluates_s = 0.0
        """The seconds of the evaluations that are over."""
        self.evaluates_from_s = None
        """When the evaluation that runs now began; None while none runs."""
        self.evaluated_s = None
        """When the module was last called to evaluate."""
        self.words = None
        """The words of each sample in the last such call of this evaluation; None before it, and once it generates."""
        self.other_steps = 0
        """The steps of other optimizers since its last step."""
        self.main_steps_before = 0
        """The steps of the main optimizer before its first one."""
        self.trains_alone = False
        """Whether it has stepped on a batch that the main network had not evaluated, which a linear probe needs."""
        self.calls = 0
        """The forward passes since the last step."""
        self.pending_rows = []
        """The samples of each forward pass since the last backward pass."""
        self.last_input = self.last_version = None
        """A weak reference to the tensor of the last forward pass, and its version, which torch counts up when it is
        changed; None where it has no version."""
        self.mode = None
        """Whether the module is in training mode when it trains, as it was before the last step; None if unknown."""
        self.last_mode = None
        """Whether the module was in training mode in its last training call that counted in full."""
        self.is_recomputed = False
        """Whether a backward pass has computed a forward pass again. Then all calls count in full."""
        self.reading = None
        """Where the last call shows its samples, as `Steady.begin` takes it; None where its shape alone does not."""
        self.modules = []
        """Weak references to the modules that are watched."""
        self.input_module = None
        """A weak reference to the watched module that is called first: its inputs count."""
        self.batch_is_second = False
        """Whether the samples are the second dimension of the inputs, as in `[sequence, batch]`."""
        self.level = 0
        """How many levels below the outermost modules the watched ones are."""
        self.inner = None
        """The observer of an inner module, before it has said which dimension the samples are; None afterwards."""
        self.form = ""
        """The form of a sample: `3x224x224 float32`."""
        self.why_uncounted = None
        """Why the module's inputs are not counted; None where they are."""

    def continue_counts(self, replaced):
        """Continue the counts of the tally `replaced`, whose optimizer is no longer the main one."""
        for name in (*COUNTS, "evaluates_s"):
            setattr(self, name, getattr(replaced, name))
        replaced.watch_only(())

    def watch_only(self, modules):
        """Watch the calls of these modules, and of no others. Which of them is called first is open again."""
        for module in living(self.modules):
            calls.unwatch(module, self)
        self.modules, self.input_module, self.reading = [weakref.ref(module) for module in modules], None, None
        for module in modules:
            calls.watch(module, self)

    @errors_switch_off("steps")
    def look(self, module, args, kwargs):
        """Count a call of a watched module: as a forward pass of the training, or as part of an evaluation.

        A call is part of an evaluation if it computes no gradients, or runs in another mode than the training.
        """
        steady.end()  # the sums of earlier calls go into the counts first
        has_gradients = self.torch.is_grad_enabled()
        if calls.in_backward():  # activation checkpointing computes a counted forward pass again
            self.is_recomputed, self.reading = True, None
            return
        if not has_gradients or self.mode not in (None, module.training):
            loaders.on_evaluation()
            record_pause()
            self.no_gradient_forwards += module.training and not has_gradients  # as rollouts of reinforcement learning
            self.evaluated_s = monotonic()
            if self.evaluates_from_s is None:
                self.evaluates_from_s, self.words = self.evaluated_s, 0
            self._note_words(first_tensor(args or kwargs))
            return
        if self.evaluates_from_s is not None:
            self._end_evaluation(monotonic())
        if self.input_module is None:
            self.input_module = weakref.ref(module, steady.end)
        if self.input_module() is module:
            self._count_call(module, args, kwargs)
        else:  # another watched module works on the same samples, which count once; their batch has trained
            loaders.trains = True

    def _note_words(self, tensor):
        """Count an evaluation that generates: a call takes a word more than the call before, or the last word alone."""
        if self.words is not None and tensor is not None and tensor.dim() == 2 and not tensor.dtype.is_floating_point:
            words = int(tensor.shape[1])
            # inputs of a single number, such as a user's, stay so in each call
            generates = self.words > 0 and (words == self.words + 1 or words == 1 < self.words)
            self.generations += generates
            self.words = None if generates else words

    def _end_evaluation(self, end_s):
        """Count the seconds of the evaluation that is over."""
        self.evaluates_s += end_s - self.evaluates_from_s
        self.evaluates_from_s = None

    def on_other_step(self, other_tally):
        """Note that another optimizer has stepped: the last batch has trained, and calls before it were no evaluation.

        The generator of a GAN, for example, makes the samples with which a critic is trained several times. The other
        optimizer, whose tally is `other_tally`, trains in turn with the main one if it goes on after a main step, and
        if its network does not always learn from what the main network has evaluated.
        """
        other_tally.trains_alone = other_tally.trains_alone or loaders.has_batch_of_other()
        loaders.after_other_step(is_in_turn=other_tally.trains_alone and other_tally.main_steps_before < self.steps)
        self.other_steps += 1
        if self.other_steps > 50:  # (chosen) another network is trained for a while: this one does not hang
            record_pause()
        if self.evaluates_from_s is not None:
            self._end_evaluation(self.evaluated_s)

    def _count_call(self, module, args, kwargs):
        """Count a call that trains, and note where its inputs show the number of samples, for later calls.

        The calls of the first steps also show what a sample looks like.
        """
        self.last_mode = module.training
        tensor = self._tensor_as_before(args, kwargs)
        if tensor is not None:
            self.count_forward(tensor.shape[int(self.batch_is_second)], tensor)
            return
        if args and samples(args):
            inputs = args
        else:  # samples may come by keyword, after other positional arguments
            inputs = kwargs or args
        tensor = first_tensor(inputs)
        rows = self._rows(inputs, tensor)
        self.count_forward(rows, tensor)
        self.reading = None
        batch_dimension = int(self.batch_is_second)
        if self.steps < FIRST_STEPS:
            self.form = sample_form(inputs, self.form, batch_dimension)
            self.elements += tensor.numel() if tensor is not None else 0
        elif type(tensor) is self.torch.Tensor and tensor.dim() > 1 and rows == tensor.shape[batch_dimension]:
            # the tensor's shape shows the samples: later calls need to look at nothing else
            key = next((name for name, value in kwargs.items() if value is tensor), None)
            if not self.is_recomputed and (args[0] is tensor if args else key is not None):
                self.reading = (key, batch_dimension, tensor.dim())
            for watched in living(self.modules):  # from now on, only this one
                if watched is not module:
                    calls.unwatch(watched, self)
        if self.steps < LOSS_STEPS:
            keep_input_sum(tensor)

    def _tensor_as_before(self, args, kwargs):
        """Return the tensor at the place that showed the samples in the call before; None if it is of another form."""
        key, _, dimensions = self.reading or (None, None, None)
        tensor = args[0] if args else kwargs.get(key)
        return tensor if type(tensor) is self.torch.Tensor and tensor.dim() == dimensions else None

    def _rows(self, inputs, tensor):
        """Return the number of samples in a module's inputs, whose first tensor is `tensor`; 0 where it is unknown.

        It is the size of the first dimension, or of the second one, if the first call of an inner module has shown that
        the samples are there: see `Inner`. `inputs`: the positional arguments, or the named ones as a dictionary.
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
            self.why_uncounted = "the module takes single samples, or a batch without another dimension"
            return 0
        if tensor is not None and is_of_function(tensor):
            self.why_uncounted = "the module is called by a function of torch.func"
            return 0
        return count

    def count_forward(self, rows, tensor):
        """Count a forward pass of `rows` samples, and whether the pass before took the same samples.

        It did if `tensor`, the first tensor of the inputs or None, is that of the pass before, unchanged.
        """
        loaders.trains = True
        has_version = tensor is not None and not tensor.is_inference()  # else torch counts no changes of it
        reference = weakref.ref(tensor) if has_version else None  # one for each tensor, so that `is` compares
        version = tensor._version if has_version else None
        is_unchanged = has_version and self.last_input is reference and self.last_version == version
        self.repeated_forwards += is_unchanged and self.calls > 0
        self.repeated_inputs += is_unchanged and not self.calls  # the pass before belonged to the step before
        self.last_input, self.last_version = reference, version
        self.calls += 1
        self.forwards += 1
        self.pending_rows.append(rows)

    def count_backward(self):
        """Count a backward pass, and the samples of the last forward pass before it, of whose loss it takes gradients.

        After several forward passes only the last one's samples count, because a loss may need several passes of the
        same samples. `joint_backwards` counts such backward passes, so that a reader of the counts knows.
        """
        if self.pending_rows:
            self.backwards += 1
            self.joint_backwards += len(self.pending_rows) > 1
            self.rows += self.pending_rows[-1]
            self.pending_rows = []

    def end_step(self):
        """Complete the counts of a step, after the main optimizer has made it, and prepare for the next one."""
        if not self.backwards:  # backward passes cannot be watched: all forward passes count
            self.rows += sum(self.pending_rows)
        self.pending_rows = []
        self.mode = self.last_mode if self.calls else None
        self.calls = self.other_steps = 0
        training.steps = self.steps
        loaders.after_step()


class Inner:
    """Watches an inner module that has `batch_first`: whether the samples are the first dimension of its input."""

    def __init__(self, module):
        self.batch = 0
        """The samples of its first input; 0 before its first call."""
        calls.watch(module, self)

    @errors_switch_off("inner")
    def look(self, module, args, kwargs):
        """Read the number of samples from the shape of the first input, in the first call alone."""
        calls.unwatch(module, self)
        tensor = args[0] if args else None
        if tensor is not None and hasattr(tensor, "batch_sizes"):  # a packed sequence
            self.batch = int(tensor.batch_sizes[0])
        elif is_tensor(tensor) and tensor.dim() > 2:  # with two, it is a single sequence
            self.batch = int(tensor.shape[0 if module.batch_first else 1])


def living(references):
    """Return the objects of weak references that still live."""
    return [thing for thing in (reference() for reference in references) if thing is not None]
