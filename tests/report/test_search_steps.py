"""When a search found its best."""

from datetime import datetime, timedelta

from tuner.records.trial import ProbeRecord, TrialRecord
from tuner.report.facts import search_steps
from tuner.study.space import Config

NOON = datetime(2026, 11, 21, 12)


def trial(number: int, rung: int, value: float, took_s: float = 60.0) -> TrialRecord:
    config: Config = {"num_envs": rung, "pruner_patience": number % 3}
    return TrialRecord(
        case="c",
        number=number,
        state="COMPLETE",
        config=config,
        values=(value,),
        started=NOON,
        completed=NOON + timedelta(seconds=took_s),
        probe=ProbeRecord(status="ok", config=config, total_s=took_s, start_up_s=20.0, window_s=30.0),
    )


def test_the_seconds_of_all_devices_pass_trial_by_trial() -> None:
    trials = [trial(0, 64, 50.0), trial(1, 128, 90.0), trial(2, 64, 51.0), trial(3, 128, 89.0)]
    assert [step.ended_s for step in search_steps(trials, 2)] == [120.0, 240.0, 360.0, 480.0]
