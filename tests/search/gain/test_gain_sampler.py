"""The sampler `gain` in an in-memory study."""

import math
import random
import re
from collections.abc import Callable

import optuna
import pytest
from optuna.trial import TrialState, create_trial
from tests_search import given
from tests_space import USUAL

from tuner.records.schema import COST, ERROR, MEMORY, PROBE
from tuner.records.trial import MEMORY_SHARE, RUN_S, START_S, ProbeRecord, cost
from tuner.search.choosing import History, Starts, one_start
from tuner.search.frontier import Frontier
from tuner.search.gain import chooser
from tuner.search.gain.chooser import Gain, GainSampler
from tuner.search.gain.expected_gain import Goal
from tuner.search.trials import distribution, suggest, typed_trial
from tuner.study.space import PATIENCE, Config, Parameter, Space

pytestmark = pytest.mark.early

SPACE = Space(
    (
        Parameter(name="num_envs", values=(64, 128, 256, 512, 1024, 2048, 4096)),
        Parameter(name="agent_variant", values=("hiutil", "default")),
        Parameter(name="update_epochs", values=(20, 30, 40)),
    )
)
FITS = 1024


@pytest.fixture(autouse=True)
def quiet() -> None:
    optuna.logging.set_verbosity(optuna.logging.ERROR)


def busy(config: Config) -> float:
    rung = float(config["num_envs"])
    return 90.0 * rung / (rung + 300.0) * (1.0 if config["agent_variant"] == "hiutil" else 0.7)


class Search:
    """A study with its sampler; configs above `fits` run out of memory."""

    def __init__(
        self,
        space: Space = SPACE,
        *,
        fits: int = 10**9,
        value: Callable[[Config], float] = busy,
        warm: bool = False,
        training_hours: float = 24.0,
        error: float = 0.3,
    ) -> None:
        self.error, self.training_hours = error, training_hours
        self.space, self.fits, self.value, self.warm = space, fits, value, warm
        self.study = optuna.create_study(direction="maximize")
        self.asked: list[Config] = []
        self.resume()

    def resume(self, starts_needed: Starts = one_start) -> None:
        self.sampler = GainSampler(self.space, training_hours=self.training_hours, starts_needed=starts_needed)
        self.study.sampler = self.sampler

    def step(self, config: Config | None = None) -> Config:
        """Probe a given config, or the config that the sampler chooses."""
        trial = given(self.study, self.space, config) if config else self.study.ask()
        config = suggest(trial, self.space)
        rung = float(config.get("num_envs", 0))
        if rung > self.fits:
            trial.set_constraint(MEMORY, 1.0)
            self.study.tell(trial, state=TrialState.PRUNED)
        else:
            trial.set_user_attr(ERROR, self.error)
            took = {MEMORY_SHARE: 0.05 + 0.85 * rung / max(self.fits, 5000), START_S: 20.0 + rung / 60, RUN_S: 15.0}
            trial.set_user_attr(COST, took)
            if self.warm:
                trial.set_user_attr(PROBE, {"status": "ok", "warm": True})
            self.study.tell(trial, self.value(config))
        self.asked.append(config)
        return config

    def run(self, most: int = 200) -> list[Config]:
        while len(self.asked) < most and not self.sampler.exhausted(self.study):
            self.step()
        return self.asked


def test_the_best_is_found_with_part_of_the_probes_and_then_it_ends() -> None:
    search = Search()
    search.run()
    best = search.sampler.best(search.study)
    assert best is not None
    assert busy(best) >= 0.99 * max(map(busy, SPACE.configs()))
    assert len(search.asked) < len(list(SPACE.configs())) * 0.8
    assert search.sampler.ended(search.study)


def test_a_longer_training_is_searched_for_longer_and_goes_on_where_a_shorter_one_ended() -> None:
    search = Search(training_hours=1.0)
    asked = len(search.run())
    ended = search.sampler.ended(search.study)
    assert re.fullmatch(r"\S+% may be left, at most \S+%: .* of a 1-hour training, and take .*", ended or "")

    search.training_hours = 100.0
    search.resume()
    assert search.sampler.ended(search.study) is None
    assert len(search.run(asked + 10)) > asked


@pytest.mark.parametrize("seed", range(3))
def test_rivals_that_noise_hides_are_measured_again_before_the_end_and_clear_losers_are_not(seed: int) -> None:
    names = Space((Parameter(name="kernel", values=("fast", "close", "slow")),))
    speeds, noise = {"fast": 100.0, "close": 98.5, "slow": 60.0}, random.Random(seed)
    search = Search(names, value=lambda config: speeds[str(config["kernel"])] + noise.gauss(0.0, 2.0), error=2.0)
    asked = [config["kernel"] for config in search.run()]
    assert search.sampler.ended(search.study)
    assert min(asked.count("fast"), asked.count("close")) >= 2
    assert asked.count("slow") == 1
    best = search.sampler.best(search.study)
    assert best is not None
    assert best["kernel"] in {"fast", "close"}


def test_a_training_of_a_minute_is_worth_no_second_probe() -> None:
    search = Search(training_hours=1 / 60)
    assert len(search.run()) == 1


def test_a_cold_config_is_good_enough_if_the_best_gains_less_than_its_measurement_takes() -> None:
    """The best is half a percent better than the config that has been measured cold."""
    rungs = Space((Parameter(name="num_envs", values=(64, 128)),))
    for hours, enough in ((0.5, True), (100.0, False)):
        search = Search(rungs, value=lambda config: 60.0 + (config["num_envs"] == 128) * 0.3)
        search.training_hours, search.warm, search.error = hours, True, 0.01
        search.resume()
        for rung in (64, 128, 64, 128):
            search.step({"num_envs": rung})
        search.warm = False
        search.step({"num_envs": 64})
        assert (search.sampler.unconfirmed(search.study) is None) is enough


@pytest.mark.parametrize(("share", "rung"), [(0.05, 4096), (0.2, 2048)])
def test_the_second_probe_goes_up_with_the_first_config_as_far_as_is_safe(share: float, rung: int) -> None:
    search = Search()
    first = tell(search, TrialState.COMPLETE, {COST: {MEMORY_SHARE: share, START_S: 20.0, RUN_S: 15.0}})
    assert first["num_envs"] == 512
    assert search.step() == {**first, "num_envs": rung}


@pytest.mark.parametrize(("share", "rung"), [(0.01, 4096), (0.1, 512)])
def test_after_calibration_its_config_goes_up_as_far_as_is_safe(share: float, rung: int) -> None:
    search = Search()
    kinds = {one.name: distribution(one) for one in SPACE.parameters}
    for low in (64, 256):
        facts = {COST: {MEMORY_SHARE: share * low / 64, START_S: 20.0, RUN_S: 15.0}}
        params: Config = {"num_envs": low, "agent_variant": "default", "update_epochs": 20}
        search.study.add_trial(create_trial(params=params, distributions=kinds, value=50.0, user_attrs=facts))
    assert search.step() == {"num_envs": rung, "agent_variant": "default", "update_epochs": 20}


def test_after_a_first_probe_that_failed_it_goes_down_and_not_straight_up_again() -> None:
    search = Search()
    failed = tell(search, TrialState.PRUNED, {PROBE: {"status": "too_slow"}})
    ran = tell(search, TrialState.COMPLETE, {COST: {MEMORY_SHARE: 0.02, START_S: 20.0, RUN_S: 15.0}})
    assert float(ran["num_envs"]) < float(failed["num_envs"])
    assert float(search.step()["num_envs"]) < float(failed["num_envs"])


def tell(search: Search, state: TrialState, facts: dict[str, object]) -> Config:
    """Probe a config with this result; return the config."""
    trial = search.study.ask()
    config = suggest(trial, search.space)
    for name, fact in facts.items():
        trial.set_user_attr(name, fact)
    search.study.tell(trial, 60.0 if state == TrialState.COMPLETE else None, state=state)
    return config


def test_no_config_beyond_a_known_end_of_memory_is_asked_for() -> None:
    search = Search(fits=FITS)
    before, failures = Frontier(), 0
    while len(search.asked) < 100 and not search.sampler.exhausted(search.study):
        config = search.step()
        assert before.exceeded_failure(config) is None
        failures += int(config["num_envs"]) > FITS
        before = History(search.study, SPACE).frontier
    assert failures <= 4
    best = search.sampler.best(search.study)
    assert best is not None
    assert best["num_envs"] == FITS


def test_a_new_process_goes_on_where_another_one_ended() -> None:
    one, other = Search(), Search()
    for _ in range(8):
        one.step()
        other.step()
        other.resume()
    assert one.asked == other.asked


def test_measurements_are_repeated_only_to_separate_rivals() -> None:
    alike, apart = Search(value=lambda config: 60.0), Search()
    for search in (alike, apart):
        search.run()
    configs = list(SPACE.configs())
    assert len(alike.asked) < 2.5 * len(configs)
    losers = [config for config in configs if busy(config) < 0.9 * max(map(busy, configs))]
    assert max(map(apart.asked.count, losers)) == 1


def test_of_two_rivals_the_one_is_measured_again_whose_measurements_tell_more() -> None:
    """The first rival is known a little worse, but its measurements have four times the error."""
    space = Space((Parameter(name="backend", values=("noisy", "exact", "known")),))
    search = Search(space, value=lambda _: 60.0)
    for backend, error, times in (("noisy", 16.0, 7), ("exact", 4.0, 1), ("known", 4.0, 8)):
        search.error = error
        for _ in range(times):
            search.step({"backend": backend})
    assert search.step() == {"backend": "exact"}


def test_configs_that_may_not_run_do_not_prevent_certainty_about_the_others() -> None:
    """Configs beyond memory are very uncertain. Their possible value neither ends the search nor prolongs it."""
    search = Search(fits=FITS, value=lambda config: float(config["num_envs"]) / 20.0)
    search.run()
    best = search.sampler.best(search.study)
    assert best is not None
    assert best["num_envs"] == FITS


def test_what_hardly_fits_is_not_tried_however_much_it_promises() -> None:
    rungs = Parameter(name="num_envs", values=(1024, 2048, 4096, 6500, 8192))
    space = Space((rungs, *SPACE.parameters[1:]))
    search = Search(space, fits=5000, value=lambda config: 1e-4 * float(config["num_envs"]) ** 2)
    search.run()
    assert {config["num_envs"] for config in search.asked} <= {1024, 2048, 4096}
    best = search.sampler.best(search.study)
    assert best is not None
    assert best["num_envs"] == 4096


def test_what_is_believed_to_be_the_best_is_measured_cold_once() -> None:
    search = Search(warm=True)
    search.run()
    believed = search.sampler.unconfirmed(search.study)
    assert believed == search.sampler.best(search.study)
    search.warm = False
    assert search.step(believed) == believed
    assert search.sampler.unconfirmed(search.study) is None


@pytest.mark.parametrize(("variant", "left"), [("hiutil", False), ("default", True)])
def test_among_equal_configs_one_cold_measurement_is_enough(variant: str, left: bool) -> None:
    """Here epochs change nothing, and variants change a lot."""
    search = Search(warm=True)
    search.run()
    best = search.sampler.best(search.study)
    assert best is not None
    epochs = next(one for one in (20, 30, 40) if one != best["update_epochs"])
    search.warm = False
    search.step({**best, "agent_variant": variant, "update_epochs": epochs})
    assert search.sampler.best(search.study) == best
    assert (search.sampler.unconfirmed(search.study) == best) is left


def test_an_offset_of_another_host_does_not_decide_about_the_best() -> None:
    """The first host measures all values 8 points too high. The best config is measured first on the second host."""
    search, rung = Search(), 1024
    told = ((20, 90.0, "a"), (30, 88.0, "a"), (20, 82.0, "b"), (30, 80.0, "b"), (40, 85.0, "b"))
    kinds = {one.name: distribution(one) for one in SPACE.parameters}
    for epochs, value, devices in told:
        params: Config = {"num_envs": rung, "agent_variant": "hiutil", "update_epochs": epochs}
        facts = {ERROR: 0.3, PROBE: {"status": "ok", "host": {"devices": devices}}}
        search.study.add_trial(create_trial(params=params, distributions=kinds, value=value, user_attrs=facts))
    assert search.sampler.best(search.study) == {"num_envs": rung, "agent_variant": "hiutil", "update_epochs": 40}


def test_the_open_session_is_preferred() -> None:
    search = Search()
    for _ in range(4):
        search.step()
    rung = search.asked[-1]["num_envs"]
    search.resume(starts_needed=lambda config: 0.0 if config["num_envs"] == rung else 50.0)
    assert search.step()["num_envs"] == rung


def test_patience_is_drawn_beside_and_conditions_hold() -> None:
    search = Search(USUAL, value=lambda config: float(config["num_envs"]))
    asked = search.run(8)
    assert all(config in USUAL for config in asked)
    assert len({config[PATIENCE] for config in asked}) > 1


def test_the_smallest_is_looked_for_where_the_study_minimises() -> None:
    space = Space(
        SPACE.parameters[:2]
    )  # epochs change nothing, and differences between such small values need many measurements
    search = Search(space)
    search.study = optuna.create_study(direction="minimize")
    search.resume()
    search.run()
    best = search.sampler.best(search.study)
    assert best is not None
    assert busy(best) == min(map(busy, space.configs()))


def test_where_the_study_minimises_the_smallest_is_confirmed_and_is_then_the_best() -> None:
    space = Space(SPACE.parameters[:2])
    search = Search(space, warm=True)
    search.study = optuna.create_study(direction="minimize")
    search.resume()
    search.run()
    best = search.sampler.best(search.study)
    assert search.sampler.unconfirmed(search.study) == best
    search.warm = False
    search.step(best)
    assert search.sampler.best(search.study) == best
    assert search.sampler.unconfirmed(search.study) is None


OWN: Config = {"num_workers": 0}
OTHER: Config = {"num_workers": 2}


@pytest.mark.parametrize(("times", "again"), [(0.9, []), (1.2, [OWN, OTHER]), (1.5, [OWN])])
def test_before_a_gain_is_told_the_own_config_is_measured_again(times: float, again: list[Config]) -> None:
    space = Space((Parameter(name="num_workers", values=(0, 2), own=0),))
    search = Search(space, value=lambda config: 100.0 * (times if config == OTHER else 1.0))
    search.step(OWN)
    search.step(OTHER)
    asked = [search.step(config) for _ in range(3) if (config := search.sampler.unconfirmed(search.study))]
    assert asked == again


def test_optuna_makes_as_many_trials_as_asked() -> None:
    space = Space((Parameter(name="num_envs", values=(64, 128)),))
    study = optuna.create_study(direction="maximize", sampler=GainSampler(space))
    study.optimize(lambda trial: busy({"agent_variant": "hiutil", **suggest(trial, space)}), n_trials=12)
    assert len(study.trials) == 12


@pytest.mark.parametrize("warm", [True, False])
def test_what_a_probe_took_is_read_off_its_record(warm: bool) -> None:
    probe = ProbeRecord(warm=warm, ready_s=30.0, start_up_s=40.0, total_s=70.0, metrics={"headroom_pct": 75.0})
    start_s = 30.0 if warm else 40.0
    assert cost(probe) == {MEMORY_SHARE: 0.25, START_S: start_s, RUN_S: 70.0 - start_s}
    assert cost(ProbeRecord()) == {}


@pytest.mark.parametrize(("crashes", "again"), [(2, False), (3, True)])
def test_what_a_broken_trainer_failed_on_is_open_again_once_something_runs(crashes: int, again: bool) -> None:
    rungs = Space((Parameter(name="num_envs", values=(64, 128, 256, 512)),))
    search = Search(rungs, value=lambda config: float(config["num_envs"]) ** 0.5)
    failed = [tell(search, TrialState.FAIL, {PROBE: {"status": "crash"}}) for _ in range(crashes)]
    while not search.sampler.exhausted(search.study):
        search.step()
    assert any(config in search.asked for config in failed) is again


@pytest.mark.parametrize("fails_first", [False, True])
def test_more_measurements_separate_rivals_even_if_one_of_them_failed_at_first(fails_first: bool) -> None:
    rungs = Space((Parameter(name="num_envs", values=(64, 128)),))
    search = Search(rungs, value=lambda config: 60.0)
    kinds = {one.name: distribution(one) for one in rungs.parameters}
    told: list[tuple[int, float | None]] = [(64, 60.0), (128, 61.0)]
    for rung, value in [(64, None), *told] if fails_first else told:
        facts = {PROBE: {"status": "nccl"}} if value is None else {ERROR: 5.0}
        state = TrialState.FAIL if value is None else TrialState.COMPLETE
        params: Config = {"num_envs": rung}
        search.study.add_trial(
            create_trial(state=state, params=params, distributions=kinds, value=value, user_attrs=facts)
        )
    assert search.sampler.ended(search.study) is None
    search.resume(starts_needed=lambda config: 0.0 if config["num_envs"] == 64 else 1e6)
    assert search.step() == {"num_envs": 64}


def test_what_is_known_well_is_not_read_again_because_others_are_known_badly() -> None:
    rungs = Space((Parameter(name="num_envs", values=(32, 64, 128, 256, 512, 1024)),))
    search = Search(rungs)
    kinds = {one.name: distribution(one) for one in rungs.parameters}
    for rung, value, error in [(32, 48.0, 5.0), (64, 50.0, 4.0), (128, 56.0, 4.0), (256, 66.0, 4.0), (512, 88.0, 0.3)]:
        params: Config = {"num_envs": rung}
        search.study.add_trial(create_trial(params=params, distributions=kinds, value=value, user_attrs={ERROR: error}))
    params = {"num_envs": 1024}
    for _ in range(2):
        search.study.add_trial(create_trial(params=params, distributions=kinds, value=90.0, user_attrs={ERROR: 0.3}))
    assert search.sampler.ended(search.study)


@pytest.mark.parametrize(("times", "known_worse"), [(5, 128), (8, 64)])
def test_where_one_reading_gains_nothing_the_rival_that_is_known_worse_is_read(times: int, known_worse: int) -> None:
    rungs = Space((Parameter(name="num_envs", values=(64, 128)),))
    search = Search(rungs, value=lambda config: 60.0, training_hours=1e6)
    kinds = {one.name: distribution(one) for one in rungs.parameters}
    for rung, value in 6 * [(64, 60.0)] + times * [(128, 59.9)]:
        params: Config = {"num_envs": rung}
        search.study.add_trial(create_trial(params=params, distributions=kinds, value=value, user_attrs={ERROR: 2.0}))
    assert search.sampler.ended(search.study) is None
    assert search.step() == {"num_envs": known_worse}


@pytest.mark.parametrize(("kind", "closed"), [("too_slow", True), ("host_oom", False)])
def test_workers_hold_host_memory_and_are_no_part_of_a_start(kind: str, closed: bool) -> None:
    space = Space((Parameter(name="num_envs", values=(64, 128)), Parameter(name="num_workers", values=(0, 4))))
    search = Search(space, value=lambda config: float(config["num_envs"]))
    trial = search.study.ask(fixed_distributions={one.name: distribution(one) for one in space.parameters})
    failed = dict(trial.params)
    trial.set_user_attr(PROBE, {"status": kind})
    search.study.tell(trial, state=TrialState.PRUNED)
    while not search.sampler.exhausted(search.study):
        search.step()
    like_it = [config for config in search.asked if config["num_envs"] == failed["num_envs"]]
    assert (like_it == []) is closed


SWITCHES = Space(
    (
        Parameter(name="batch_size", values=(4, 8, 16, 32, 64)),
        Parameter(name="compile", values=(0, 1)),
        Parameter(name="fused", values=(0, 1)),
        Parameter(name="workers", values=(0, 2, 4, 8)),
    )
)


def probe_speeds(
    speed: Callable[[Config], float | None],
    space: Space = SWITCHES,
    *,
    most: int = 60,
    scatter: float = 0.005,
    failure: str = "crash",
) -> Search:
    """Search speeds to the end, or for `most` probes; None is a failure of a config that was tried twice."""
    return search_on(Search(space), speed, most=most, scatter=scatter, failure=failure)


def search_on(
    search: Search,
    speed: Callable[[Config], float | None],
    *,
    most: int = 60,
    scatter: float = 0.005,
    failure: str = "crash",
) -> Search:
    """Go on with a search of speeds; see `probe_speeds`."""
    space, chance = search.space, random.Random(0)
    while len(search.asked) < most and not search.sampler.exhausted(search.study):
        trial = search.study.ask()
        config = suggest(trial, space)
        search.asked.append(config)
        value = speed(config)
        if value is None:
            trial.set_user_attr(PROBE, {"status": failure})
            search.study.tell(trial, state=TrialState.PRUNED)
        else:
            trial.set_user_attr(ERROR, scatter * value)
            trial.set_user_attr(
                COST, {START_S: 30.0, RUN_S: 15.0, MEMORY_SHARE: float(config.get("batch_size", 4)) / 100.0}
            )
            search.study.tell(trial, value * math.exp(chance.gauss(0.0, scatter)))
    return search


def test_a_choice_that_always_crashes_is_soon_left_alone_and_is_named() -> None:
    search = probe_speeds(
        lambda one: None if one["compile"] else float(one["batch_size"]) ** 0.5 + float(one["workers"])
    )
    assert 2 <= sum(one["compile"] == 1 for one in search.asked) <= 4
    best = search.sampler.best(search.study)
    assert best is not None
    assert (best["batch_size"], best["workers"], best["compile"]) == (64, 8, 0)
    assert "every config with compile=1 failed" in (search.sampler.ended(search.study) or "")


@pytest.mark.parametrize("error", [RuntimeError, optuna.TrialPruned])
def test_an_objective_that_raises_an_error_teaches_which_configs_fail(error: type[Exception]) -> None:
    asked: list[Config] = []

    def objective(trial: optuna.Trial) -> float:
        asked.append(config := suggest(trial, SWITCHES))
        if config["compile"]:
            raise error("it does not compile")
        return float(config["batch_size"]) ** 0.5 + float(config["workers"])

    study = optuna.create_study(direction="maximize", sampler=GainSampler(SWITCHES))
    study.optimize(objective, n_trials=14, catch=(RuntimeError,))
    assert sum(config["compile"] == 1 for config in asked) <= 4


@pytest.mark.parametrize(("name", "value"), [("batch_size", 16), ("compile", 0), ("fused", 0), ("workers", 0)])
def test_after_a_crash_at_the_start_the_next_config_shares_as_few_values_as_possible(name: str, value: int) -> None:
    search = probe_speeds(lambda one: None if one[name] == value else 1.0 + float(one["batch_size"]), most=4)
    assert search.asked[0][name] == value
    assert sum(one[name] == value for one in search.asked[:4]) <= 2


def test_after_an_end_of_host_memory_no_config_with_a_larger_queue_of_a_loader_is_tried_blindly() -> None:
    sizes = {"batch_size": (1, 2, 4, 8, 16, 32, 64), "workers": (1, 2, 4, 8, 16), "prefetch": (2, 4)}
    space = Space(tuple(Parameter(name=name, values=values) for name, values in sizes.items()))

    def speed(config: Config) -> float | None:
        batch, workers, prefetch = (float(config[name]) for name in sizes)
        return None if batch * workers * prefetch > 128.0 else workers * min(batch, 8.0) ** 0.3

    search = probe_speeds(speed, space, failure="host_oom")
    assert sum(speed(one) is None for one in search.asked) <= 4
    best = search.sampler.best(search.study)
    assert best is not None
    assert speed(best) == max(speed(one) or 0.0 for one in space.configs())


@pytest.mark.parametrize(
    "names", [("compile", "fused", "workers"), ("fused", "workers", "compile"), ("workers", "fused", "compile")]
)
def test_new_values_are_tried_parameter_by_parameter(names: tuple[str, ...]) -> None:
    space = Space(tuple(one for name in names for one in SWITCHES.parameters if one.name == name))
    begun, *asked = probe_speeds(lambda _: 100.0, space, most=4).asked
    changed = [next(name for name in names if one[name] != begun[name]) for one in asked]
    assert changed[0] == names[0]
    assert sorted(changed, key=names.index) == changed


@pytest.mark.parametrize("matters", [True, False])
def test_a_parameter_that_changes_nothing_waits_until_the_others_are_tried(*, matters: bool) -> None:
    names = ("workers", "compile", "fused")
    space = Space(tuple(one for name in names for one in SWITCHES.parameters if one.name == name))
    search = probe_speeds(lambda one: 100.0 * (1.0 + float(one["workers"])) ** (0.3 * matters), space, most=4)
    begun, *asked = search.asked
    changed = [next(name for name in names if one[name] != begun[name]) for one in asked]
    assert changed == (["workers"] * 3 if matters else list(names))


@pytest.mark.parametrize(("second", "leaves_out"), [(17.6, True), (9.7, False)])
def test_after_a_step_that_gains_much_values_are_left_out(second: float, leaves_out: bool) -> None:
    """The readings are those of Megatron-LM on two H100s; its micro-batch of 4 made 32.8 samples/s."""
    space = Space((Parameter(name="micro_batch", values=(1, 2, 4, 8, 16, 32, 64)),))
    search = Search(space, value=lambda config: 8.9 if config["micro_batch"] == 1 else second, error=0.2)
    for micro_batch in (1, 2):
        search.step({"micro_batch": micro_batch})
    assert (int(search.step()["micro_batch"]) >= 8) is leaves_out


def test_a_search_of_speeds_ends_by_itself_with_two_numbers_that_hold() -> None:
    def speed(config: Config) -> float:
        return 1e3 / (1.0 / float(config["batch_size"]) + 0.2 / (1.0 + float(config["workers"])) + 0.01)

    search = probe_speeds(speed)
    most = max(map(speed, SWITCHES.configs()))
    best = search.sampler.best(search.study)
    assert best is not None
    words = re.search(r"(\S+)% may be left, at most (\S+)%", search.sampler.ended(search.study) or "")
    assert words
    expected, bound = float(words[1]) / 100.0, float(words[2]) / 100.0
    assert 0.0 <= expected <= bound
    assert 1.0 - speed(best) / most <= bound
    assert len(search.asked) < 40


def rugged(config: Config) -> float:
    """Return a speed that no other speed foretells."""
    return math.exp(random.Random(str(sorted(config.items()))).gauss(0.0, 1.0))


def test_where_nothing_can_be_foretold_it_is_not_sure_and_goes_on() -> None:
    search = probe_speeds(rugged, most=24)
    assert len(search.asked) == 24
    assert "may be left" not in (search.sampler.ended(search.study) or "")


def test_failures_of_two_choices_together_write_off_neither() -> None:
    """`zero` of 2 and 3 fails beside `pp=2`, and beside `pp=1` a `zero` of 2 is the best."""
    sizes = {"pp": (1, 2), "zero": (0, 1, 2, 3), "micro": (1, 2, 4, 8), "recompute": (0, 1)}
    space = Space(tuple(Parameter(name=name, values=values) for name, values in sizes.items()))

    def speed(config: Config) -> float | None:
        pp, zero, micro, recompute = (float(config[name]) for name in sizes)
        fails = pp == 2 and zero >= 2
        return None if fails else (1.0 + 0.2 * (pp == 2) + 0.5 * (zero == 2)) * micro**0.2 / (1.0 + 0.2 * recompute)

    search = Search(space)
    for zero, micro in ((2, 1), (2, 2), (3, 4)):
        trial = given(search.study, space, {"pp": 2, "zero": zero, "micro": micro, "recompute": 0})
        trial.set_user_attr(PROBE, {"status": "crash"})
        search.study.tell(trial, state=TrialState.PRUNED)
    search_on(search, speed)
    best = search.sampler.best(search.study)
    assert best is not None
    assert (best["pp"], best["zero"]) == (1, 2)


@pytest.mark.parametrize(("power", "runs_beside", "is_sure"), [(0.3, (2, 3), True), (1.0, (2, 3), False)])
def test_where_many_probes_fail_it_does_not_promise_that_the_rest_fails(
    power: float, runs_beside: tuple[int, int], is_sure: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The best has `fp8`, which runs beside one pair of other choices only, and is given up after four failures."""
    monkeypatch.setattr(chooser, "LAST_NEAR_BEST", 0)  # these probes would only delay the end
    sizes = {"pp": (1, 2, 4), "zero": (0, 1, 2, 3), "micro": (1, 2, 4, 8), "fp8": (0, 1), "compile": (0, 1)}
    space = Space(tuple(Parameter(name=name, values=values) for name, values in sizes.items()))

    def speed(config: Config) -> float | None:
        pp, zero, micro, fp8, compiles = (float(config[name]) for name in sizes)
        fails = fp8 and (pp, zero) != runs_beside
        return None if fails else micro**power * 1.7**fp8 * 1.1**compiles / (1.0 + 0.1 * zero) / (1.0 + 0.05 * pp)

    search = probe_speeds(speed, space)
    best, ended = search.sampler.best(search.study), search.sampler.ended(search.study) or ""
    assert best is not None
    lost = 1.0 - (speed(best) or 0.0) / max(speed(config) or 0.0 for config in space.configs())
    failures = sum(speed(config) is None for config in search.asked)
    assert failures >= 4
    assert lost > 0.1
    assert f"{failures} of {len(search.asked)} probes failed" in ended
    bound = re.search(r"at most (\S+)%", ended)
    assert bool(bound) is is_sure
    assert ("not sure" in ended) is not is_sure
    if bound:
        assert lost <= float(bound[1]) / 100.0


def test_where_many_probes_fail_it_goes_on_near_the_best_unless_a_probe_takes_too_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """`fp8` slows what was measured first, and is the best beside one `zero` and large sizes."""
    sizes = {"pp": (1, 2), "zero": (0, 1, 2, 3), "micro": (1, 2, 4), "fp8": (0, 1), "compile": (0, 1)}
    space = Space(tuple(Parameter(name=name, values=values) for name, values in sizes.items()))

    def speed(config: Config) -> float | None:
        pp, zero, micro, fp8, compiles = (float(config[name]) for name in sizes)
        of_fp8 = 1.4 if fp8 and zero == 1 and micro >= 4 else 0.95**fp8
        fails = pp == 2 and zero >= 2
        return None if fails else micro**0.3 * 1.1**compiles * (1.0 + 0.2 * (pp == 2)) / (1.0 + 0.1 * zero) * of_fp8

    search = probe_speeds(speed, space, most=18)
    assert search.sampler.ended(search.study) is None
    assert left(search) > 8

    with monkeypatch.context() as patch:
        patch.setattr(chooser, "LAST_NEAR_BEST", 20)
        assert left(search) == 2
        copy = Search(space)
        copy.study.add_trials(search.study.get_trials())
        for _ in range(2):  # other workers probe
            suggest(copy.study.ask(), space)
        assert "4 of 18 probes failed" in (copy.sampler.ended(copy.study) or "")

    search.training_hours = 4.0
    search.resume()
    assert "4 of 18 probes failed" in (search.sampler.ended(search.study) or "")

    search.training_hours = 24.0
    search.resume()
    best = search_on(search, speed, most=21).sampler.best(search.study)
    assert best == {"pp": 2, "zero": 1, "micro": 4, "fp8": 1, "compile": 1}


def test_no_number_is_promised_while_the_newest_predictions_were_further_off() -> None:
    """Each config has a part of 9 percent of its own, which nothing predicts."""

    def uneven(config: Config) -> float:
        chance = random.Random(str(sorted(config.items()))).gauss(0.0, 0.09)
        return float(config["batch_size"]) ** 0.1 * math.exp(chance)

    search = probe_speeds(uneven, most=24, scatter=0.001)
    assert len(search.asked) == 24
    assert "may be left" not in (search.sampler.ended(search.study) or "")


def growing(*own: int, grown: tuple[int, ...] = ()) -> Space:
    """Return a space of workers and a switch; the workers grow."""
    workers = Parameter(name="workers", values=(*own, *grown), grown=grown, own=own[0])
    return Space((workers, Parameter(name="fused", values=(0, 1), own=0)))


@pytest.mark.parametrize(("useful", "most"), [(4, 8), (16, 32), (60, 32)])
def test_a_range_grows_while_its_end_is_the_best(useful: int, most: int) -> None:
    space = growing(2, 0, 4, 8, grown=(16, 32))
    search = probe_speeds(lambda config: 1.0 / (1.0 + 0.1 * abs(useful - float(config["workers"]))), space)
    tried = [config["workers"] for config in search.asked]
    assert max(tried) == most
    assert search.sampler.ended(search.study)


def test_ties_that_noise_hides_are_not_read_again_and_again() -> None:
    """The readings are as those of a script that waits for its data, where the length of the queue changes nothing."""
    workers = Parameter(name="workers", values=(0, 2, 4, 8), own=0)
    space = Space((workers, Parameter(name="prefetch_factor", values=(2, 4, 8), own=2)))
    search = probe_speeds(lambda config: 190.0 * max(float(config["workers"]), 1.0), space, scatter=0.025)
    assert search.sampler.ended(search.study)
    assert len(search.asked) - len(set(map(str, search.asked))) <= 6


@pytest.mark.parametrize(("useful", "first"), [(60, [16, 32]), (4, [16])])
def test_a_range_grows_at_once_after_a_steep_step_and_never_after_a_flat_one(useful: int, first: list[int]) -> None:
    """With 2 workers, then none, the speed rises so far that 4 is left out for 8."""
    space = growing(2, 0, 4, 8, grown=(16, 32))
    search = probe_speeds(lambda config: 1.0 + min(float(config["workers"]), useful), space)
    assert [config["workers"] for config in search.asked[3 : 3 + len(first)]] == first
    assert max(config["workers"] for config in search.asked) == first[-1]


def test_a_promise_says_that_the_best_is_at_the_end_of_a_range() -> None:
    search = probe_speeds(lambda config: 1.0 + float(config["workers"]), growing(2, 0, 4, 8))
    assert "within these values, of which workers=8 is the largest" in (search.sampler.ended(search.study) or "")
    search = probe_speeds(lambda config: 10.0 - abs(4.0 - float(config["workers"])), growing(2, 0, 4, 8))
    assert "within these values" not in (search.sampler.ended(search.study) or "")


def test_a_promise_names_the_value_at_which_a_range_stopped() -> None:
    """The step from 8 workers to 16 gains half a percent."""
    speeds = {0: 1.0, 2: 1.2, 4: 1.5, 8: 2.0, 16: 2.01, 32: 2.02}
    search = probe_speeds(
        lambda config: speeds[int(config["workers"])], growing(2, 0, 4, 8, grown=(16, 32)), scatter=0.0005
    )
    assert "within these values, of which workers=16 is the largest" in (search.sampler.ended(search.study) or "")


def test_a_range_grows_although_another_choice_gains_as_much_beside_a_smaller_value() -> None:
    speeds = {(2, 0): 1.0, (2, 1): 1.08, (4, 0): 1.085, (4, 1): 1.0, (8, 0): 1.25, (16, 0): 1.4}
    workers = Parameter(name="workers", values=(2, 4, 8, 16), grown=(8, 16), own=2)
    space = Space((workers, Parameter(name="queue", values=(0, 1), own=0)))
    search = probe_speeds(
        lambda config: speeds.get((int(config["workers"]), int(config["queue"])), 1.1), space, scatter=0.003
    )
    assert search.sampler.best(search.study) == {"workers": 16, "queue": 0}


@pytest.mark.parametrize("scatter", [0.001, 0.005])
def test_a_range_that_changes_nothing_does_not_grow_because_another_parameter_does(scatter: float) -> None:
    workers = Parameter(name="workers", values=(0, 2, 4, 8, 16), grown=(4, 8, 16), own=2)
    space = Space((workers, Parameter(name="micro_batch", values=(1, 2, 4, 8, 16), own=1)))
    search = probe_speeds(lambda config: float(config["micro_batch"]), space, scatter=scatter)
    assert max(config["workers"] for config in search.asked) == 2
    assert search.sampler.ended(search.study)


def test_a_range_does_not_grow_at_once_before_another_of_its_values_has_run() -> None:
    search = probe_speeds(lambda _: 1.0, growing(8, 0, 2, 4, grown=(16, 32)))
    assert max(config["workers"] for config in search.asked) == 8


SMALL = Space(
    (Parameter(name="a", values=(0, 1)), Parameter(name="b", values=(0, 1, 2)), Parameter(name="c", values=(0, 1)))
)


def left(search: Search, goal: Goal | None = None) -> float:
    """Return how many probes the next choice says to be left."""
    choice = Gain(search.space, goal=goal).choose(History(search.study, search.space), one_start)
    assert choice is not None
    assert choice.trials_left is not None
    return choice.trials_left


def test_values_that_nothing_foretells_make_the_probes_left_no_multiple_of_what_they_were() -> None:
    search = probe_speeds(lambda config: 1.0, most=10)
    assert left(search_on(search, rugged, most=12)) < 20
    assert left(probe_speeds(rugged, SMALL, most=6)) < 12  # of 12 configs


def test_values_beyond_memory_are_no_probes_that_are_left() -> None:
    """Of four rungs, 256 has run out of memory, and 512 is beyond it: each of both would take two probes."""
    space = Space((Parameter(name="num_envs", values=(64, 128, 256, 512)), Parameter(name="b", values=tuple(range(6)))))
    search = Search(space, fits=128, value=lambda config: float(config["num_envs"]) ** 0.1)
    search.run(20)
    assert left(search) < 8


def test_only_a_search_of_speeds_tries_each_value_twice() -> None:
    search = Search()
    search.step()
    assert left(search, Goal(ceiling=100.0)) < left(search) - 5


@pytest.mark.parametrize("name", ["num_workers", "depth"])
def test_a_program_that_reports_only_what_ran_out_of_memory_loses_no_config_by_the_name_of_a_parameter(
    name: str,
) -> None:
    sizes, kinds, rates = tuple(range(1, 9)), ("fp32", "bf16", "fp16"), tuple(10.0**-power for power in range(1, 7))
    space = Space.of(**{name: sizes, "kind": kinds, "rate": rates})

    def value(config: Config) -> float:
        of_size = 1.0 - math.exp(-float(config[name]) / 3.0)
        return (
            of_size * {"fp32": 100.0, "bf16": 160.0, "fp16": 155.0}[str(config["kind"])] * float(config["rate"]) ** 0.1
        )

    sampler = GainSampler(space)
    study = optuna.create_study(direction="maximize", sampler=sampler)

    def objective(trial: optuna.Trial) -> float:
        config = suggest(trial, space)
        if int(config[name]) > 6:
            trial.set_constraint(MEMORY, float(config[name]) - 6.5)
            raise optuna.TrialPruned
        trial.set_user_attr(ERROR, 0.5)
        return value(config)

    study.optimize(objective, n_trials=60, callbacks=[sampler.stop_callback])
    failed = sum(trial.state == TrialState.PRUNED for trial in study.trials)
    assert sampler.best(study) == {name: 6, "kind": "bf16", "rate": 0.1}
    assert len(study.trials) < 40
    assert failed <= 6


def test_a_search_ends_where_the_best_value_is_0() -> None:
    space = Space.of(first=tuple(range(6)), second=tuple(range(5)))
    sampler = GainSampler(space)
    study = optuna.create_study(direction="minimize", sampler=sampler)

    def loss(trial: optuna.Trial) -> float:
        config = suggest(trial, space)
        trial.set_user_attr(ERROR, 0.001)
        return float(config["first"]) ** 2 + float(config["second"])

    study.optimize(loss, n_trials=80, callbacks=[sampler.stop_callback])
    assert sampler.best(study) == {"first": 0, "second": 0}
    assert sampler.ended(study)
    assert len(study.trials) < 40


def test_another_program_may_say_how_many_seconds_a_trial_took() -> None:
    for attribute, seconds in [({RUN_S: 30.0}, 30.0), (30.0, 30.0), (None, None), ("long", None)]:
        study = optuna.create_study()
        study.add_trial(create_trial(value=1.0, user_attrs={COST: attribute}))
        assert typed_trial(study.trials[0]).cost.get(RUN_S) == seconds
