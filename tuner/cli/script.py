"""A plan as shell commands, for a person or for a batch job."""

import shlex
from pathlib import Path

from tuner.devices.base import VISIBLE_CARDS
from tuner.probe.plan import ProbePlan
from tuner.study.variables import shell_join, shell_word


def script(plan: ProbePlan, *, left_to_slurm: bool = False) -> str:
    """Return shell commands that do what a probe with this plan does. SLURM itself says which cards a job sees."""
    lines = [f"mkdir -p {shlex.quote(str(plan.slot.out_dir))}"]
    for path, text in plan.files.items():
        lines += [f"mkdir -p {shlex.quote(str(path.parent))}", f"cat > {shlex.quote(str(path))} <<'END_OF_FILE'"]
        lines += [text.rstrip("\n"), "END_OF_FILE"]
    lines += [f"cd {shlex.quote(str(Path(plan.cwd)))}"]
    env = {name: value for name, value in plan.env.items() if not (left_to_slurm and name == VISIBLE_CARDS)}
    variables = [f"{name}={shell_word(value)}" for name, value in env.items()]
    if plan.programs and "PATH" not in env:
        variables.insert(0, f'PATH={shlex.quote(str(plan.programs))}:"$PATH"')
    lines += [" ".join([*variables, shell_join(plan.argv)])]
    return "\n".join(lines) + "\n"
