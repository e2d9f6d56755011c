"""Calibration: which rung is probed next, and which rungs follow from two probes."""

from hypothesis import given
from hypothesis import strategies as st
from optuna.trial import FrozenTrial, TrialState, create_trial
from tests_search import Searched

from tuner.records.schema import COST, MEMORY, PROBE, RETRY, RUNGS
from tuner.records.trial import MEMORY_SHARE, START_S
from tuner.search.strategies import calibration_configs, ladder_calibration, rungs_after
from tuner.search.trials import distribution
from tuner.study.parameter import AUTO, ParameterSpec
from tuner.study.space import LADDER, VARIANT, Config, Parameter, Space
from tuner.study.spec import ProbeSpec

H200_MIB, RTX_4090_MIB = 143_771.0, 24_564.0
DOUBLINGS = tuple(32 << power for power in range(12))
SPACE = Space(
    (
        ParameterSpec(ladder=AUTO).parameter(LADDER, is_ladder=True),
        Parameter(name=VARIANT, values=("hiutil", "default")),
        Parameter(name="num_workers", values=(2, 0)),
    )
)


def default(rung: int) -> Config:
    return {LADDER: rung, VARIANT: "default", "num_workers": 2}


def trial(rung: int, facts: dict[str, object], state: TrialState = TrialState.COMPLETE) -> FrozenTrial:
    return create_trial(
        state=state,
        value=50.0 if state == TrialState.COMPLETE else None,
        params=default(rung),
        distributions={parameter.name: distribution(parameter) for parameter in SPACE.parameters},
        user_attrs=facts,
        constraints={MEMORY: 1.0} if PROBE in facts else None,
    )


def ran(rung: int, *, card_mib: float | None = H200_MIB, base_mib: float = 2560.0, error: float = 0.0) -> FrozenTrial:
    """Probe a config with the cost of pi_plus on an H200.

    The memory is 2.5 GiB and 3.47 MiB per environment; the start takes 28 s and 5 ms per environment.
    """
    cost = {START_S: 28.0 + 0.005 * rung}
    if card_mib is not None:
        cost[MEMORY_SHARE] = (base_mib + 3.47 * rung) / card_mib * (1.0 + error)
    return trial(rung, {COST: cost})


def oom(rung: int) -> FrozenTrial:
    return trial(rung, {PROBE: {"status": "gpu_oom"}}, TrialState.PRUNED)


def rungs(*trials: FrozenTrial, **limits: float) -> tuple[int, ...]:
    return rungs_after(trials, SPACE, ProbeSpec.model_validate(limits))


def test_a_large_card_has_its_largest_rungs_just_below_its_end() -> None:
    larger_mib = 1.2 * H200_MIB
    assert rungs(ran(64, card_mib=larger_mib), ran(512, card_mib=larger_mib)) == (*DOUBLINGS[:-1], 45056)


def test_the_person_s_own_size_is_a_rung_where_it_may_fit() -> None:
    for own, made in ((3000, {*DOUBLINGS[:-1], 3000}), (65_000, {*DOUBLINGS[:-1]})):
        ladder = ParameterSpec(ladder=AUTO, own=own).parameter(LADDER, is_ladder=True)
        space = Space((ladder, *SPACE.parameters[1:]))
        assert set(rungs_after([ran(64), ran(512)], space, ProbeSpec())) == made


def test_an_end_just_above_a_doubling_adds_no_rung() -> None:
    assert rungs(ran(64), ran(512)) == DOUBLINGS[:-1]


@given(st.floats(-0.01, 0.01), st.floats(-0.01, 0.01))
def test_readings_that_err_a_little_leave_the_end_in_reach(near: float, far: float) -> None:
    made = rungs(ran(64, error=near), ran(512, error=far))
    assert made[:11] == DOUBLINGS[:11]
    assert made[-1] < 65536


def test_the_largest_rung_keeps_the_headroom_and_comes_close_to_it() -> None:
    for card_mib in [RTX_4090_MIB, 2.0 * RTX_4090_MIB, H200_MIB, 2.0 * H200_MIB]:
        keeps = (0.95 * card_mib - 2560.0) / 3.47
        made = [rung for rung in rungs(ran(64, card_mib=card_mib), ran(512, card_mib=card_mib)) if rung <= keeps]
        assert made[-1] > 0.8 * min(keeps, 65536)


def test_more_headroom_makes_smaller_rungs() -> None:
    assert rungs(ran(64), ran(512), headroom_pct=16.0)[-2:] == (16384, 32768)


def test_without_totals_of_memory_the_ladder_goes_to_its_end() -> None:
    assert rungs(ran(64, card_mib=None), ran(512, card_mib=None)) == DOUBLINGS


def test_a_start_that_surely_takes_too_long_ends_the_ladder() -> None:
    def slow(rung: int) -> FrozenTrial:
        return trial(rung, {COST: {START_S: 10.0 + 0.1 * rung}})

    assert 3000 < rungs(slow(64), slow(512))[-1] < 8192
    assert 512 <= rungs(slow(64), slow(512), max_start_seconds=60.0)[-1] < 1024


def test_a_slow_start_that_prints_does_not_end_the_ladder() -> None:
    slow = [trial(rung, {COST: {START_S: 400.0}}) for rung in (64, 512)]
    assert rungs(*slow) == DOUBLINGS


def test_a_card_that_is_full_at_once_has_rungs_between_what_ran_and_what_did_not() -> None:
    made = rungs(oom(64), ran(32, card_mib=24_000.0, base_mib=18_000.0))
    assert (made[0], made[-1]) == (32, 64)
    assert 32 < made[1] < 64


def test_what_was_tried_is_a_rung_and_nothing_beyond_what_failed() -> None:
    made = rungs(ran(64), oom(512), ran(256))
    assert {32, 64, 128, 256, 512} <= set(made)
    assert made[-1] == 512


def test_where_nothing_ran_the_smallest_rungs_are_all_there_is() -> None:
    assert rungs(oom(64), oom(32)) == (32, 64)


def test_without_a_variant_called_default_the_first_one_is_calibrated() -> None:
    space = Space((SPACE.parameters[0], Parameter(name=VARIANT, values=("hiutil", "other"))))
    assert calibration_configs(space)[0] == {LADDER: 64, VARIANT: "hiutil"}


class Calibrated(Searched):
    """A study in memory with a calibration."""

    def __init__(self) -> None:
        super().__init__(SPACE, ladder_calibration(SPACE))

    def rest(self, **fails_from: int) -> list[object]:
        """Calibrate to the end. Rungs from `fails_from` on run out of memory."""
        tried: list[object] = []
        while begun := self.begin():
            one, config = begun
            tried.append(config[LADDER])
            if int(config[LADDER]) >= fails_from.get("oom", 1 << 30):
                one.set_constraint(MEMORY, 1.0)
                self.study.tell(one, state=TrialState.PRUNED)
            else:
                self.study.tell(one, 50.0)
        return tried


def test_after_running_out_of_memory_it_goes_down() -> None:
    for oom, tried in [(1024, [64, 512]), (512, [64, 512, 256]), (128, [64, 512, 256, 128, 32]), (64, [64, 32])]:
        assert Calibrated().rest(oom=oom) == tried


def test_default_configs_are_probed() -> None:
    assert Calibrated().ask()[1] == default(64)


def test_another_worker_takes_the_next_rung_and_nobody_waits() -> None:
    search = Calibrated()
    asked = [search.ask() for _ in range(6)]
    assert [config[LADDER] for _, config in asked] == [64, 512, 256, 128, 32, 64]
    for one, _ in asked[:2]:
        assert not search.ended
        search.study.tell(one, 50.0)
    assert search.ended


def test_a_failed_probe_that_is_due_again_comes_first() -> None:
    search = Calibrated()
    one, _ = search.ask()
    one.set_user_attr(RETRY, True)
    search.study.tell(one, state=TrialState.FAIL)
    assert search.rest() == [64, 512]


def test_rungs_that_are_fixed_end_it() -> None:
    search = Calibrated()
    search.ask()
    search.study.set_user_attr(RUNGS, [32, 64])
    assert search.ended


def test_what_two_h200s_showed_of_pi_plus_leads_up_to_their_end() -> None:
    """Memory peaks and starts of deepmimic_pi_plus_ppo. The first start compiled kernels. 8192 needed 30,424 MiB."""
    shown = ((256, 3842.0, 109.35), (512, 4692.0, 27.31))
    trials = [trial(rung, {COST: {MEMORY_SHARE: mib / H200_MIB, START_S: start_s}}) for rung, mib, start_s in shown]
    assert rungs(*trials) == DOUBLINGS[:-1]
