"""Makes the tables of a study as tab-separated text: numbers are rounded by their units, unknown values are empty."""

import csv
import errno
import io
import math
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from datetime import datetime
from functools import partial
from itertools import chain
from pathlib import Path
from statistics import fmean
from tempfile import NamedTemporaryFile, TemporaryFile
from typing import Any, NamedTuple

from tuner.errors import OutputError
from tuner.export.case_view import CaseView
from tuner.export.reader import StudyReader, connect
from tuner.export.speed_gain import times_default
from tuner.export.wording import in_words
from tuner.probe import METRICS
from tuner.records.trial import OK, TrialRecord, pooled
from tuner.search.standing import Standing
from tuner.study import FILES, INVERSES, LADDER, VARIANT, Case

_UNITS = {
    "avg_util": "%",
    "max_util": "%",
    "max_mem": "MiB",
    "max_power": "W",
    "elapsed_s": "s",
    "total_s": "s",
    "probe_s": "s",
    **{metric.name: metric.unit for metric in METRICS},
}


def rounded(name: str, value: Any) -> Any:
    """Return the number called `name`, rounded to the decimals of its unit.

    Text and whole numbers stay as they are. Infinity and NaN become None.
    """
    if not isinstance(value, float):
        return value
    if not math.isfinite(value):
        return None
    unit = _UNITS.get(name.removesuffix("_se"), "")  # an error has its value's unit
    decimals = {"%": 2, "1/s": 2, "s": 2, "W": 1, "MiB": 0, "J": 0}.get(unit)
    if decimals is None:
        return float(f"{value:.6g}")  # of another unit: six significant digits
    if unit == "1/s" and abs(value) < 1.0:
        return float(f"{value:.3g}")  # a slow training makes 0.0117 iterations/s
    return round(value, decimals) if decimals else round(value)  # without decimals, a whole number without a point


class Sheet(NamedTuple):
    """A table: a row gives the cell of a column by the column's name. Cells that are missing or None stay empty."""

    columns: Sequence[str]
    rows: Iterable[Mapping[str, object]]


def tsv(sheet: Sheet) -> str:
    """Return the text of a table, the line with the names of its columns first."""
    text = io.StringIO()
    writer = csv.DictWriter(text, sheet.columns, extrasaction="ignore", delimiter="\t", lineterminator="\n")
    writer.writeheader()
    writer.writerows(sheet.rows)
    return text.getvalue()


Row = dict[str, Any]

_OF_DEVICE = {
    "avg_util": "util_mean_pct",
    "max_util": "util_max_pct",
    "max_mem": "mem_peak_mib",
    "max_power": "power_max_w",
}
"""Column that repeats for each device → the field of the device's summary."""


def race_row(case: CaseView) -> Row:
    """Return the cells about the winner of a case's race; empty where there was none."""
    winner = next(iter(case.race_standings), None)
    if winner is None or winner.mean is None:
        return {}
    return {
        "race_winner": in_words(winner.runs[0].config),
        "race_score": winner.mean.value,
        "race_score_se": winner.mean.error,
        "race_s": winner.seconds,
        "race_runs": winner.mean.runs,
    }


def front_rows(case: CaseView) -> list[Row]:
    """Return the rows of a case's Pareto front in `pareto.tsv`, the highest value of the first objective first."""
    return [
        {**_mean_row(case, member), **_comparison_with_default(case, member), "readings": member.readings}
        for member in case.front
    ]


def best_row(case: CaseView, best: Standing) -> Row:
    """Return the row of a case's best config in `best_by_case.tsv`, with columns for each of its devices."""
    trial = pooled(best.trials)
    probe = trial.probe
    return {
        **_mean_row(case, best),
        **{
            f"{column}{rank}": rounded(column, getattr(device, field))
            for rank, device in enumerate(probe.devices)
            for column, field in _OF_DEVICE.items()
        },
        **{name: getattr(probe, name) for name in ("agent_config", "base_agent")},
        "status": OK,
        "variant": trial.config.get(VARIANT),
        "elapsed_s": rounded("elapsed_s", probe.total_s),
        "iteration": probe.iterations,
        **_comparison_with_default(case, best),
        "objective": case.objective,
        "source": case.record.source,
        "readings": best.readings,
    }


def _mean_row(case: CaseView, standing: Standing) -> Row:
    """Return the cells of a config's newest trial, with the means of all its trials in place of its own numbers."""
    trial = replace(pooled(standing.trials), values=standing.values)
    return trial_row(case, trial) | _rounded_metrics(standing.printed_metrics)


def _rounded_metrics(metrics: Mapping[str, float | None]) -> Row:
    """Return the cells of metrics."""
    return {name: rounded(name, value) for name, value in metrics.items()}


def trial_row(case: CaseView, trial: TrialRecord) -> Row:
    """Return the cells of any trial: column → value; without a result, its metrics are missing."""
    probe, failure = trial.probe, trial.probe.failure
    own_names = (  # of the probe's record
        *("samples", "samples_per_s", "start_up_s", "window_s", "total_s"),
        *("iterations", "launched", "measured_on", "out_dir", "digest"),
    )
    return {
        **trial.config,
        **_rounded_metrics(trial.printed_metrics),
        **{name: rounded(name, getattr(probe, name)) for name in own_names},
        "case": case.name,
        "method": case.method,
        "trial": trial.number,
        "state": trial.state,
        "status": trial.status,
        "failure": failure and failure.kind,
        "detail": " ".join(probe.detail.split()),
        "value": rounded(case.objectives[0], trial.value),
        "started_at": _utc(trial.started),
        "completed_at": _utc(trial.completed),
        "measured": ("warm" if probe.warm else "cold") if probe.launched else None,
    }


def _comparison_with_default(case: CaseView, standing: Standing) -> Row:
    """Return the cells that compare a config with the default of its rung."""
    times = times_default(case, standing)
    return {
        "samples_per_s_vs_default": rounded("samples_per_s_vs_default", times and times.value),
        "changes_learning": " ".join(case.changes_learning(standing.config)),
    }


def _utc(moment: datetime | None) -> str | None:
    """Return a moment in UTC as text, to the second; None for None."""
    return moment and f"{moment.isoformat(timespec='seconds')}Z"


def best_by_case(study: StudyReader) -> Sheet:
    """Return a row per case: its best config, or the commonest failure as its status if no config may be the best."""
    rows = []
    for case in study.cases:
        row = {"case": case.name, "method": case.method, "status": case.status}
        if case.best:
            row = best_row(case, case.best)
        rows.append(row | {"trials": case.counts.total(), "replay_of": case.replay_of} | race_row(case))
    return Sheet(_best_columns(study), rows)


def _best_columns(study: StudyReader) -> list[str]:
    """Return the columns of `best_by_case.tsv`.

    First come the columns of the tool that tuner replaces. Then come the searched parameters, facts about the best
    config, and its measurements. Of the latter, only so many are shown that 20 columns follow the first ones, so that
    people can still read the table.
    """
    parameters = study.fields.parameters
    # at least two devices: the tool that tuner replaces has their columns in its tables
    ranks = range(max([2, *(len(case.record.devices) for case in study.cases)]))
    averages, *maxima = [[f"{column}{rank}" for rank in ranks] for column in _OF_DEVICE]
    fixed = [
        *("case", "method", "status", "variant", LADDER, "elapsed_s", "iteration", "samples", "samples_per_s"),
        *(*averages, "min_avg_util", *chain(*maxima), "agent_config", "base_agent", "out_dir"),
    ]
    added = [name for name in parameters if name not in {VARIANT, *fixed}]  # the variant is the column `variant`
    added += ["samples_per_s_vs_default", "changes_learning", "objective", "value", "source", "measured"]
    added += ["readings", "trials", "trial", "digest"]
    added += ["replay_of"] if any(case.replay_of for case in study.cases) else []
    if any(case.race for case in study.cases):
        added += ["race_winner", "race_score", "race_score_se", "race_s", "race_runs"]
    measurements = [name for name in _ordered_measurements(study) if name not in {*fixed, *added}]
    return [*fixed, *added, *measurements[: max(0, 20 - len(added))]]


def _ordered_measurements(study: StudyReader) -> list[str]:
    """Return the measurements of a study, the most important first: metrics whose constraints have barred a config."""
    metrics = study.fields.metrics
    # why a trial is not eligible is a text with the metrics of the constraints that it breaks
    words_of_reasons = {word for trial in study.trials() for word in re.findall(r"\w+", trial.probe.ineligible or "")}
    barring = [name for name in metrics if name in words_of_reasons]
    important = ("measured_on", "min_avg_util_se", "samples_per_s_se", "headroom_pct", "mem_peak_mib")
    available = {"measured_on", *metrics}
    ordered = [*barring, *(name for name in important if name in available), *metrics, "start_up_s", "window_s"]
    return list(dict.fromkeys(ordered))


FRONT_COLUMNS = {
    "joules_per_sample": "J/sample",
    "cost_per_million_samples": "cost/million",
    "samples_per_s": "samples/s",
    "samples_per_s_vs_default": "times default",
    "changes_learning": "changes learning",
    "headroom_pct": "headroom %",
    "measured": "measured",
    "readings": "readings",
}
"""The columns of `pareto.tsv` that follow the objectives → their headings on a terminal."""


def pareto(study: StudyReader) -> Sheet:
    """Return a row per member of each case's Pareto front, the largest first objective first."""
    objectives = dict.fromkeys(name for case in study.cases for name in case.objectives)
    values = [name for objective in objectives for name in (objective, f"{objective}_se")]
    columns = ["case", "method", "trial", *study.fields.parameters, *values]
    # a metric of which less is better, such as joules per sample, is shown where its inverse is an objective; a metric
    # without an inverse (None) is always shown
    columns += [name for name in FRONT_COLUMNS if INVERSES.get(name) in {None, *objectives}]
    columns += ["out_dir", "digest"]
    rows = [row for case in study.cases for row in front_rows(case)]
    return Sheet(list(dict.fromkeys(columns)), rows)


def case_manifest(study: StudyReader, selected: Sequence[Case] = ()) -> Sheet:
    """Return a row per case: the files and the mode with which the trainer launches it.

    `selected`: the cases that the study wants; those that have not begun come last.
    """
    trainer = study.cases[0].record.trainer_name  # that of all cases
    files = {case.name: dict(case.record.files) for case in study.cases}
    rows: list[Row] = [{"case": case.name, "method": case.method, "mode": case.record.mode} for case in study.cases]
    for case in selected:
        if case.name not in files:
            files[case.name] = {name: case.options.get(name, "") for name in case.files}
            rows.append({"case": case.name, "method": case.method, "mode": case.mode})
    file_options = dict.fromkeys(name for files_of_case in files.values() for name in files_of_case)
    columns = ["case", "method", "mode", *(file_options or FILES), "trainer"]
    return Sheet(columns, [files[row["case"]] | row | {"trainer": trainer} for row in rows])


def method_summary(study: StudyReader) -> Sheet:
    """Return a row per method. Its utilisations are those of the best configs of its cases."""
    methods = dict.fromkeys(case.method for case in study.cases)
    rows = [_method_row(study, method) for method in methods]
    columns = tuple(_method_row(study, ""))  # those of a method without cases
    return Sheet(columns, rows)


def all_trials(study: StudyReader) -> Sheet:
    """Return a row per trial of each case, in their order."""
    parameters, metrics = study.fields
    columns = ["case", "method", "trial", "state", "status", "failure", "detail", "launched", "value", *parameters]
    columns += ["iterations", "samples", "samples_per_s", *metrics, "started_at", "completed_at"]
    columns += ["start_up_s", "window_s", "total_s", "measured", "measured_on", "out_dir", "digest"]
    rows = (trial_row(case, trial) for case in study.cases for trial in case.trials)
    return Sheet(list(dict.fromkeys(columns)), rows)


def _method_row(study: StudyReader, method: str) -> dict[str, Any]:
    """Return the row of a method: what the best configs of its cases reach, and the seconds of all their probes.

    A rung is a value of the ladder, mostly a number of environments. The columns `largest_…` and `safe_…` have the
    largest rung of a best config, and the largest rung that runs in all cases.
    """
    cases = [case for case in study.cases if case.method == method]
    ladder = ladder_of_study(study)
    rungs = [case.rung(case.best.config) for case in cases if case.best]
    best = [pooled(case.best.trials) for case in cases if case.best]
    utils = [util for trial in best if (util := trial.probe.metrics.get("min_avg_util")) is not None]
    # one view of the trials of all cases, which counts them and their failures
    all_cases = CaseView(name=method, trials=[trial for case in cases for trial in case.trials])
    return {
        "method": method,
        "cases": len(cases),
        "ok_cases": len(best),
        "best_min_avg_util": rounded("min_avg_util", max(utils, default=None)),
        "mean_min_avg_util": rounded("min_avg_util", fmean(utils)) if utils else None,
        "least_min_avg_util": rounded("min_avg_util", min(utils, default=None)),
        f"largest_{ladder}": max((rung for rung in rungs if rung is not None), default=None),
        f"safe_{ladder}": safe_rung(cases),
        "commonest_failure": all_cases.commonest_failure,
        "trials": all_cases.counts.total(),
        "probe_s": rounded("probe_s", all_cases.probe_s),
    }


def ladder_of_study(study: StudyReader) -> str:
    """Return the parameter whose values are the rungs; `num_envs` where no case has a ladder."""
    return next((case.record.ladder for case in study.cases if case.record.ladder), LADDER)


def safe_rung(cases: Sequence[CaseView]) -> int | None:
    """Return a rung that runs in all cases: the smallest of the cases' largest. None if a case has no success."""
    largest = [case.largest_ok for case in cases]
    known = [rung for rung in largest if rung is not None]
    return min(known, default=None) if len(known) == len(largest) else None


def export_study(url: str, study: str, folder: Path, selected: Sequence[Case] = ()) -> list[Path]:
    """Write all exports of `study` into `folder`, and return their paths.

    Only their owner can read them, because they quote what programs have printed.
    `selected`: the cases that the study wants; the manifest has those that have not begun, too.
    Old files are replaced only when all new files are complete. Raises StoreError if the database or the study cannot
    be read, and OutputError if a file cannot be written.
    """
    reader = StudyReader(connect(url), study)
    tables = TABLES | {"case_manifest.tsv": partial(case_manifest, selected=selected)}
    if any(len(case.objectives) > 1 for case in reader.cases):
        tables["pareto.tsv"] = pareto
    return write_files(folder, {name: tsv(table(reader)).encode() for name, table in tables.items()})


def prepare_folder(folder: Path) -> None:
    """Create `folder` if it is missing, and check that it is writable. Raises OutputError if it is not."""
    with _as_output_error(folder):
        folder.mkdir(parents=True, exist_ok=True)
        TemporaryFile(dir=folder).close()


IGNORE_FILE = ".gitignore"
IGNORE_ALL = "*\n"
"""What the file of this name says in a folder of results: git takes nothing of the folder, not even the file."""


def prepare_results(runs: Path) -> None:
    """Make the folder of all results, which git ignores, unless it exists. Raises OutputError if that fails."""
    with _as_output_error(runs), suppress(FileExistsError):
        runs.mkdir(parents=True)
        write_files(runs, {IGNORE_FILE: IGNORE_ALL.encode()})


def prepare_study(folder: Path) -> None:
    """Prepare the folder of a study in the folder of all results. Raises OutputError if it cannot be written to."""
    prepare_results(folder.parent)
    prepare_folder(folder)


def write_files(folder: Path, files: Mapping[str, bytes]) -> list[Path]:
    """Write files, name → content, into `folder`, which is created if it is missing, and return their paths.

    Only their owner can read them, from their creation on. Old files are replaced only when all new files are complete.
    Raises OutputError if a file cannot be written.
    """
    prepare_folder(folder)
    with ExitStack() as stack:  # after an error, the temporary files are deleted
        temporary_of = {
            folder / name: stack.enter_context(_temporary_beside(folder / name, content))
            for name, content in files.items()
        }
        for path, temporary in temporary_of.items():  # all are complete now
            with _as_output_error(path):
                temporary.replace(path)
    return list(temporary_of)


@contextmanager
def _temporary_beside(path: Path, content: bytes) -> Iterator[Path]:
    """Yield a temporary file beside `path` with the content. If the caller does not move it, it is deleted.

    Raises OutputError where `path` is something else than a file, or cannot be written.
    """
    if path.exists() and not path.is_file():
        raise OutputError(f"cannot write {path}: it is no file; choose another name, then run the command again")
    with _as_output_error(path), ExitStack() as stack:
        with NamedTemporaryFile(dir=path.parent, prefix=f".{path.name}.", delete=False) as file:
            stack.callback(Path(file.name).unlink, missing_ok=True)  # missing: the caller has moved it
            file.write(content)
            file.flush()
            os.fsync(file.fileno())  # on the disk before it replaces the old file
        yield Path(file.name)


@contextmanager
def _as_output_error(path: Path) -> Iterator[None]:
    """Turn an OSError inside this context into an OutputError that names `path` and says what to do."""
    try:
        yield
    except OSError as error:
        is_full = error.errno in {errno.ENOSPC, errno.EDQUOT}
        remedy = "free some disk space" if is_full else "choose another folder"
        raise OutputError(
            f"cannot write {path}: {error.strerror}; {remedy}, then run the command again; earlier files are unchanged"
        ) from error


TABLES: dict[str, Callable[[StudyReader], Sheet]] = {
    "best_by_case.tsv": best_by_case,
    "case_manifest.tsv": case_manifest,
    "method_summary.tsv": method_summary,
    "trials.tsv": all_trials,
}
"""File name → the table in it. A study of several objectives has `pareto.tsv`, too."""
