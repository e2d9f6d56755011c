"""Which measurements cannot stand beside each other."""

from dataclasses import replace
from typing import Any

import optuna
from tests_search import given

from tuner.probe import Change, DeviceSummary
from tuner.records.trial import ProbeRecord, TrialRecord, attributes
from tuner.search.choosing import History
from tuner.search.standing import agreeing, why_incomparable
from tuner.study.space import Parameter, Space

STEPS = 100


def counting(number: int, each: float = 0, *, reached: int = STEPS, **facts: Any) -> TrialRecord:
    """Return a complete trial of its own config, with `each` samples in an iteration."""
    probe = ProbeRecord(
        digest=str(number), status="ok", iteration=reached, samples=round(each * reached) or None, **facts
    )
    return TrialRecord(number=number, values=(1.0 + number,), probe=probe)


def test_a_config_whose_readings_are_far_apart_cannot_be_compared() -> None:
    for readings, apart in [
        ([(43.0, 1.0), (100.0, 2.0)], True),
        ([(100.0, 2.0), (100.0, 1.0), (43.0, 1.0)], True),
        ([(90.0, 1.0), (100.0, 1.0)], False),
        ([(43.0, 20.0), (100.0, 20.0)], False),
        ([(43.0, 1.0)], False),
    ]:
        its = [
            counting(number, samples_per_s=speed, samples_per_s_se=se) for number, (speed, se) in enumerate(readings)
        ]
        other = [counting(9, samples_per_s=100.0, samples_per_s_se=1.0)]
        assert (why_incomparable(its, other) is not None) is (why_incomparable(other, its) is not None) is apart


def test_a_speed_that_changed_cannot_be_compared_with_one_that_has_not_come_so_far() -> None:
    changed = counting(1, 32, reached=200, change=Change(150, 8.0, 3.0))

    def later(each: float, reached: int, trained_s: float) -> list[TrialRecord]:
        return [counting(0, each, reached=reached, start_up_s=2.0, total_s=2.0 + trained_s)]

    assert "iteration 150" in (why_incomparable(later(32, 149, 9.0), [changed]) or "")
    assert why_incomparable([changed], later(32, 149, 9.0))
    assert why_incomparable(later(32, 151, 7.0), [changed])  # perhaps somebody else's job was over by then
    assert why_incomparable(later(32, 151, 9.0), [changed]) is None
    assert why_incomparable(later(64, 75, 9.0), [changed]) is None  # as many samples
    assert why_incomparable(later(32, 10, 1.0), [counting(1, 32, change=Change(50, 8.0, 1.2))]) is None


def reading(number: int, speed: float, *, others_pct: float | None = 0.0) -> TrialRecord:
    device = DeviceSummary(device="cpu:0", source="process_cpu", util_mean_pct=50.0, others_mean_pct=others_pct)
    return counting(number, samples_per_s=speed, samples_per_s_se=1.0, devices=(device,))


def test_a_reading_that_is_contradicted_does_not_count() -> None:
    for speeds, others_pct, counted in [
        ([32.0, 145.0], [49.0, 0.0], [1]),  # the disturbed one is contradicted
        ([140.0, 145.0], [49.0, 0.0], [0, 1]),  # and here it is not
        ([32.0, 145.0], [49.0, 49.0], [0, 1]),
        ([32.0, 145.0], [0.0, 0.0], [0, 1]),
        ([32.0, 145.0, 141.0], [0.0, 0.0, 0.0], [1, 2]),  # a third reading settles it
        ([32.0, 145.0, 70.0], [0.0, 0.0, 0.0], [0, 1, 2]),
    ]:
        pairs = enumerate(zip(speeds, others_pct, strict=True))
        readings = [reading(number, speed, others_pct=others) for number, (speed, others) in pairs]
        assert [trial.number for trial in agreeing(readings)] == counted


def test_a_speed_beside_much_busier_programs_cannot_be_compared() -> None:
    for own_others_pct, best_others_pct, is_apart in [
        ([59.0], [5.0], True),
        ([59.0, 8.0], [5.0], False),
        ([59.0], [40.0], False),
        ([5.0], [59.0], True),
        ([159.0], [80.0], False),  # no program uses more than all processors
        ([59.0], [-8.0], True),  # or less than none
    ]:
        own = [reading(number, 100.0, others_pct=share) for number, share in enumerate(own_others_pct)]
        best = [reading(9, 200.0, others_pct=share) for share in best_others_pct]
        why = why_incomparable(own, best) or ""
        assert ("59 % of the processors beside" in why) is is_apart
        assert "-8 %" not in why


def test_what_ran_beside_busy_programs_is_measured_again_once_they_are_calm() -> None:
    for others_pct, wanted in [
        ([59.0, 4.0], 0),
        ([59.0, 4.0, 70.0], None),
        ([4.0, 59.0, 3.0], 2),
        ([20.0, 4.0], None),
        ([59.0, 5.0, 4.0, 3.0], 0),
        ([59.0, 4.0, 70.0, None], None),  # of the newest it is not known
    ]:
        space = Space((Parameter(name="workers", values=(0, 2, 4, 8)),))
        study = optuna.create_study(direction="maximize")
        for workers, share, speed in zip((0, 2, 4, 8), others_pct, (30.0, 100.0, 90.0, 80.0), strict=False):
            trial = given(study, space, {"workers": workers})
            probe = replace(reading(0, speed, others_pct=share).probe, digest="")
            for name, value in attributes(probe, retry=False, error=1.0).items():
                trial.set_user_attr(name, value)
            study.tell(trial, speed)
        assert (History(study, space).incomparable_config({"workers": 0}) or {}).get("workers") == wanted
