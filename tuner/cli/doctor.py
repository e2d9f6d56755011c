"""`tuner doctor`, which checks whether this machine is ready for a study."""

from collections.abc import Iterable
from typing import Annotated

from rich.console import Console

from tuner.cli.init import Command
from tuner.cli.options import RUNS, STUDY, Devices, Json, Runs, Storage, open_console, print_document
from tuner.errors import StudyError, TunerError
from tuner.probe import number_of
from tuner.records.urls import database_url
from tuner.study import load
from tuner.tools.checkup.checks import check_up, check_up_machine, unchecked
from tuner.tools.checkup.device_checks import opened_devices
from tuner.tools.checkup.finding import Finding, Severity
from tuner.trainers.typed_command import typed_command


def doctor(
    command: Command = None,
    study: Annotated[str | None, STUDY] = None,
    devices: Devices = None,
    storage: Storage = None,
    runs: Runs = RUNS,
    as_json: Json = False,
) -> None:
    """Check this machine, and a study or a command if named; nothing is trained. Exit code 2 for a problem.

    Example: tuner doctor -- python train.py
    """
    if command and study:
        raise StudyError("name a --study or a command after `--`, not both")
    spec = load(study) if study else None
    console = open_console(stderr=as_json)
    with console.status("opening the devices"):
        source = opened_devices(spec.devices_for(devices) if spec else devices or "auto")
    if spec and study:
        url = database_url(storage, (runs / spec.name).resolve())
        checks = check_up(spec, source, requested=study, url=url, runs=runs)
        not_checked = ["whether a probe runs: `tuner try` starts one"]
    else:
        typed = typed_command(command) if command else None
        checks = check_up_machine(source, storage, runs, typed)
        not_checked = unchecked(source, storage, typed)
    if as_json:
        findings = list(checks)
        print_document({"study": spec and spec.name, "findings": findings, "not_checked": list(not_checked)})
    else:
        findings = _show(console, checks)
        for text in not_checked:
            console.print(f"not checked: {text}")
    if problems := [f"{finding.subject}: {finding.text}" for finding in findings if finding.level is Severity.PROBLEM]:
        machine = "this machine or the command" if command else "this machine"
        about = f"study {spec.name}" if spec else machine
        raise TunerError("\n  ".join([f"{number_of(len(problems), 'problem')} with {about}", *problems]))


def _show(console: Console, checks: Iterable[Finding]) -> list[Finding]:
    """Return the findings, after printing each as soon as it is known."""
    styles = {Severity.OK: "green", Severity.WARNING: "yellow", Severity.PROBLEM: "bold red"}
    findings: list[Finding] = []
    with console.status("checking"):  # the imports of a trainer can take a minute
        for finding in checks:
            findings.append(finding)
            console.print(f"{finding.level:8} {finding.subject}: {finding.text}", style=styles[finding.level])
    return findings
