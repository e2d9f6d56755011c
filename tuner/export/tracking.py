"""Sends each finished trial as a run to MLflow, W&B, or TensorBoard's HParams, by their own clients."""

import math
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path
from shutil import rmtree
from typing import Any

from tuner.errors import OutputError, TunerError, installs
from tuner.export.reader import StudyReader
from tuner.export.tables import trial_row
from tuner.records.trial import FINISHED, OK, PRUNED


@dataclass(frozen=True, kw_only=True, slots=True)
class SentRun:
    """A finished trial; its facts are those of its row in `trials.tsv`."""

    name: str
    """The case and the trial's number, as in `amp_pi_plus/12`."""
    config: Mapping[str, Any]
    metrics: Mapping[str, float]
    tags: Mapping[str, str]
    """The texts; `best` is `true` for the trials of the case's best config."""
    began_s: float
    ended_s: float


def runs(study: StudyReader) -> Iterator[SentRun]:
    """Return the finished trials of all cases, in their order."""
    for case in study.cases:
        for trial in (one for one in case.trials if one.state in FINISHED):
            row = trial_row(case, trial)
            facts = {name: row[name] for name in row if name not in trial.config and name != "trial"}
            numbers = {name: float(fact) for name, fact in facts.items() if type(fact) in {int, float}}
            texts = {name: fact for name, fact in facts.items() if isinstance(fact, str) and fact}
            is_best = case.best is not None and trial.launch == case.best.launch
            ended_s = _seconds(trial.completed or trial.started)
            yield SentRun(
                name=f"{case.name}/{trial.number}",
                config=trial.config,
                metrics={name: number for name, number in numbers.items() if math.isfinite(number)},
                tags={**texts, "best": str(is_best).lower()},
                began_s=_seconds(trial.started) or ended_s,
                ended_s=ended_s,
            )


def send(study: StudyReader, trackers: Sequence[str], folder: Path) -> dict[str, str]:
    """Send the trials to each tracker, and return where they are. A second time, no run is there twice.

    Raises TunerError if a client is not installed, before anything is sent, and OutputError if one refuses.
    """
    clients = {name: _client(name) for name in trackers}
    return {name: SENDERS[name](client, study.study, list(runs(study)), folder) for name, client in clients.items()}


def _client(name: str) -> Any:
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        raise TunerError(f"--{name} needs the package {name}: {installs(name)} installs it") from error


def _mlflow(client: Any, study: str, sent: Sequence[SentRun], folder: Path) -> str:
    where = client.get_tracking_uri() if "MLFLOW_TRACKING_URI" in os.environ else f"sqlite:///{folder / 'mlflow.db'}"
    entities = import_module("mlflow.entities")
    try:
        store = client.MlflowClient(tracking_uri=where)
        known = store.get_experiment_by_name(study)
        experiment = known.experiment_id if known else store.create_experiment(study)
        there = {one.info.run_name: one.info.run_id for one in store.search_runs([experiment], max_results=50_000)}
        for run in sent:
            tags = [entities.RunTag(name, text) for name, text in run.tags.items()]
            if begun := there.get(run.name):
                store.log_batch(begun, tags=tags)  # another trial may be the best now
                continue
            ended_ms = int(run.ended_s * 1000)
            begun = store.create_run(experiment, int(run.began_s * 1000), run_name=run.name).info.run_id
            metrics = [entities.Metric(name, number, ended_ms, 0) for name, number in run.metrics.items()]
            params = [entities.Param(name, str(value)) for name, value in run.config.items()]
            store.log_batch(begun, metrics, params, tags)
            status = {OK: "FINISHED", PRUNED: "KILLED"}.get(run.tags.get("status", ""), "FAILED")
            store.set_terminated(begun, status, ended_ms)
    except client.exceptions.MlflowException as error:
        raise OutputError(f"MLflow at {where} refuses: {error}; name another by MLFLOW_TRACKING_URI") from error
    return f"experiment {study} at {where}"


def _wandb(client: Any, study: str, sent: Sequence[SentRun], folder: Path) -> str:
    settings = client.Settings(silent=True, console="off", disable_git=True, save_code=False, x_disable_stats=True)
    modes = set[bool]()
    try:
        for run in sent:
            identity = f"{study}-{run.name}".replace("/", "-")
            named = {"project": study, "name": run.name, "id": identity, "group": run.tags["case"]}
            with client.init(**named, config=run.config, dir=folder, resume="allow", settings=settings) as begun:
                modes.add(begun.offline)
                begun.summary.update({**run.tags, **run.metrics})
    except client.errors.Error as error:
        raise OutputError(f"W&B refuses: {error}; with WANDB_MODE=offline it needs no account") from error
    finally:
        client.teardown()  # else its service goes on until this process ends
    kept = folder / "wandb"
    return f"{kept}; `wandb sync {kept}/offline-run-*` sends them" if True in modes else f"project {study}"


def _tensorboard(_: Any, study: str, sent: Sequence[SentRun], folder: Path) -> str:
    hparams = import_module("tensorboard.plugins.hparams.summary_v2")
    writers = import_module("tensorboard.summary.writer.event_file_writer")
    event, summary = (import_module(f"tensorboard.compat.proto.{name}_pb2") for name in ("event", "summary"))
    kept = folder / "tensorboard"
    rmtree(kept, ignore_errors=True)
    for run in sent:
        values = [summary.Summary.Value(tag=name, simple_value=number) for name, number in run.metrics.items()]
        begun = hparams.hparams_pb(run.config, trial_id=f"{study}/{run.name}", start_time_secs=run.began_s)
        writer = writers.EventFileWriter(str(kept / run.name))
        for one in (begun, summary.Summary(value=values)):
            writer.add_event(event.Event(wall_time=run.ended_s, summary=one))
        writer.close()
    return f"{kept}; `tensorboard --logdir {kept}` shows them"


def _seconds(moment: datetime | None) -> float:
    return moment.replace(tzinfo=UTC).timestamp() if moment else 0.0


SENDERS = {"mlflow": _mlflow, "wandb": _wandb, "tensorboard": _tensorboard}
"""Tracker → the function that sends to it; it has the name of its package and of its extra."""
