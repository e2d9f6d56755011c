"""`tuner doctor`, which checks whether this machine is ready for a study."""

from collections.abc import Iterable

from rich.console import Console

from tuner.cli.options import RUNS, Devices, Json, Runs, Storage, Study, open_console, print_document
from tuner.errors import TunerError
from tuner.records.urls import database_url
from tuner.study import load
from tuner.tools.checkup import Finding, Severity, check_up


def doctor(
    study: Study, devices: Devices = None, storage: Storage = None, runs: Runs = RUNS, as_json: Json = False
) -> None:
    """Check GPUs, trainer, database and disk, without starting a probe. Exit code 2 if there is a problem."""
    spec = load(study)
    console = open_console(stderr=as_json)
    url = database_url(storage, (runs / spec.name).resolve())
    checks = check_up(spec, asked_for=study, devices=spec.devices_for(devices), url=url, runs=runs)
    if as_json:
        findings = list(checks)
        print_document({"study": spec.name, "findings": findings})
    else:
        findings = _show(console, checks)
    if problems := [f"{finding.subject}: {finding.text}" for finding in findings if finding.level is Severity.PROBLEM]:
        raise TunerError("\n  ".join([f"{len(problems)} problem(s) with study {spec.name}", *problems]))


def _show(console: Console, checks: Iterable[Finding]) -> list[Finding]:
    """Return the findings, after printing each as soon as it is known."""
    styles, findings = {Severity.OK: "green", Severity.WARNING: "yellow", Severity.PROBLEM: "bold red"}, []
    with console.status("checking"):  # the imports of a trainer can take a minute
        for finding in checks:
            findings.append(finding)
            console.print(f"{finding.level:8} {finding.subject}: {finding.text}", style=styles[finding.level])
    return findings
