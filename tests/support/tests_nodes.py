"""A stand-in for the programs of SLURM: its nodes are this machine, and `srun` runs its command at once."""

from pathlib import Path

import pytest

SRUN = """#!/bin/sh
while [ "${1#-}" != "$1" ]; do shift; done
exec "$@"
"""


def fake_nodes(folder: Path, monkeypatch: pytest.MonkeyPatch, *hosts: str) -> None:
    """Let this process run in an allocation of some nodes."""
    programs = folder / "slurm"
    programs.mkdir()
    for name, text in (("srun", SRUN), ("scontrol", f"#!/bin/sh\nprintf '%s\\n' {' '.join(hosts)}\n")):
        (programs / name).write_text(text)
        (programs / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(programs), prepend=":")
    monkeypatch.setenv("SLURM_JOB_NODELIST", ",".join(hosts))
