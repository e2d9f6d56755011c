"""Why the first run of a command does not show its progress, and what the user can do, by what it has printed."""

from collections import deque
from collections.abc import Iterable

from tuner import probe

OTHER_WAYS = (
    "give `tuner` a --preset, let the command print lines such as `step 12`, or copy tuner/progress.py beside it and "
    "call report()"
)
"""How a command can be made to show its progress where nothing counts inside."""
NOT_LET_IN = "no Python process of the command let the counting in, as with `python -I` or in a container"
"""Why nothing was counted inside a command: the counting did not start in any of its processes."""


class Output:
    """The last lines that a command has printed, and the crash that they show."""

    def __init__(self) -> None:
        self.texts: deque[str] = deque(maxlen=2000)
        self.evidence = probe.Evidence()

    def feed(self, lines: Iterable[probe.OutputLine]) -> None:
        """Read new lines of the run; only what the command has printed is used, not messages to the tuner."""
        for line in lines:
            if line.stream == "console":
                self.texts.append(line.text)
                self.evidence.feed(line.text, line.t_s)

    @property
    def cause(self) -> str:
        """Why the command ended, as far as its lines show: the exception that began a crash, or else the last line."""
        failure = self.evidence.failure()
        return failure.detail if failure else self.evidence.last_words()

    @property
    def crash(self) -> str | None:
        """The exception that has probably ended some process; None where no line shows one."""
        return None if self.evidence.fatal_t_s is None else self.cause


def complaint(
    output: Output, exit_code: int | None, seconds: float, plan: probe.ProbePlan, *, is_counting: bool, steps: int
) -> str:
    """Return why a first run did not show the progress of its command, and what the user can do.

    Args:
        output: what the command has printed.
        exit_code: its exit code; None where it was ended while it ran.
        seconds: how long it was watched.
        plan: how it was started.
        is_counting: whether its Python could count steps, but no optimizer has made one.
        steps: the optimizer steps that were counted.
    """
    took = probe.duration(seconds)
    if exit_code not in {None, 0}:
        failure = output.evidence.failure()
        is_missing = failure is not None and failure.kind is probe.FailureKind.MISSING_DEPENDENCY
        remedy = "correct it, or type the full path of the Python that has it" if is_missing else "correct it"
        why = f"the command failed after {took} with exit code {exit_code}: {output.cause}; {remedy}, then try again"
    elif output.crash:
        why = f"the command printed an error, and trained nothing in {took}: {output.crash}; correct it, then try again"
    elif exit_code == 0:
        made = f" and {probe.number_of(steps, 'optimizer step')}" if steps else ", before three iterations were seen"
        # counts begin at the third step, and `drafting.writing` asks for eight iterations of a probe
        why = f"the command ended by itself after {took}{made}; a probe needs about 12, so let it train for longer"
    else:
        why = _no_progress(output, seconds, is_counting=is_counting, steps=steps)
    return f"{why} (all its output is in {plan.slot.console})"


def _no_progress(output: Output, seconds: float, *, is_counting: bool, steps: int) -> str:
    """Return why a command that still runs shows no progress, and what the user can do.

    `is_counting` and `steps`: see `complaint`.
    """
    took = probe.duration(seconds)
    last_lines = " | ".join(text.strip()[:200] for text in list(output.texts)[-3:])
    if is_counting:
        printed = f"the last lines: {last_lines}" if last_lines else "it printed nothing"
        more_s = 2 * 60 * max(1, round(seconds / 60))
        return (
            f"the script made no optimizer step of torch in {took}; {printed}; if its start takes longer, rerun "
            f"`tuner` with --seconds {more_s}; if it trains without torch, {OTHER_WAYS}"
        )
    remedies = f"give `tuner` a longer start with --seconds 300, {OTHER_WAYS}"
    remedies = remedies if steps else f"{NOT_LET_IN}; {remedies}"
    if not last_lines:
        return f"the command printed nothing in {took}; {remedies}"
    count = probe.number_of(len(output.texts), "line")
    return f"nothing in {count} of {took} counts iterations; the last lines: {last_lines}; {remedies}"
