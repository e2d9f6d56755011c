"""Counts the floating-point operations of one training step by torch's own formulas, where that changes nothing.

Operations are watched as torch's FlopCounterMode watches them, but without its hooks in modules.
A compiled or sharded module is left alone, because it may compute in another way while operations are watched.
"""

import os
import sys

from tuner_inside.records import FIRST, errors_switch_off


class Flops:
    """What is known of the operations of a step of this process."""

    def __init__(self):
        self.counted = None
        """The operations of one step; None where they are not known."""
        self.is_over = not os.environ.get(FIRST)
        """Whether nothing is left to count, or nobody asks: one run of the person's own command is enough."""
        self.mode = None
        """The mode that watches the operations of this step; None before and after it."""


flops = Flops()


@errors_switch_off("flops")
def count_operations(steps, modules, evaluations):
    """Begin or end the counting of a single step, usually the sixth: earlier ones also prepare later ones.

    It is called after each step of an optimizer that trains `modules`, with the number of steps so far. It begins after
    step five, and ends after the next step. A step with an evaluation in it is not counted: then the number
    `evaluations` differs between the two calls.
    """
    mode = flops.mode
    if mode is not None:
        flops.mode, flops.is_over = None, True
        mode.__exit__(None, None, None)
        has_evaluated = mode.evaluations != evaluations
        flops.counted = mode.flops if mode.flops and not has_evaluated else None
    elif steps >= 5:
        flops.is_over = not _is_safe(modules)
        if not flops.is_over:
            mode = flops.mode = _new_mode()
            mode.evaluations = evaluations
            mode.__enter__()


def _is_safe(modules):
    """Return whether watching changes nothing: no part is compiled or sharded, and nothing else watches."""
    torch = sys.modules["torch"]
    watching_modes = getattr(sys.modules.get("torch.utils._python_dispatch"), "_get_current_dispatch_mode_stack", None)
    dynamo = sys.modules.get("torch._dynamo.utils")
    parts = [part for module in modules for part in module.modules()]
    parameter_types = {type(parameter) for module in modules for parameter in module.parameters()}
    return (
        bool(parts)
        and watching_modes is not None  # None in an older torch, where it is not known
        and not watching_modes()
        and not (dynamo is not None and dynamo.counters)  # the compiler has counted what it has compiled
        and not any(isinstance(part, torch.jit.ScriptModule) for part in parts)
        # FullyShardedDataParallel and OptimizedModule, without an import of them
        and not any("Fully" in type(part).__name__ or "Optimized" in type(part).__name__ for part in parts)
        and parameter_types <= {torch.nn.Parameter}  # sharded ones are of other types
        and not (torch.cuda.is_available() and torch.cuda.is_current_stream_capturing())  # of a CUDA graph
    )


def _new_mode():
    """Return a mode that adds up the operations of all that is computed while it is entered."""
    from torch.utils._python_dispatch import TorchDispatchMode
    from torch.utils.flop_counter import flop_registry

    class Mode(TorchDispatchMode):
        """Adds the operations of each function that has a formula."""

        flops = 0

        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            """Compute as without this mode, and add the operations."""
            result = func(*args, **(kwargs or {}))
            formula = flop_registry.get(func._overloadpacket)
            if formula is not None:
                self.add(formula, args, kwargs or {}, result)
            return result

        @errors_switch_off("flops")
        def add(self, formula, args, kwargs, result):
            self.flops += formula(*args, **kwargs, out_val=result)

    return Mode()
