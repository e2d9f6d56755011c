from typing import TYPE_CHECKING

from tuner.export.bound import Bound, Profile
from tuner.export.database import connect
from tuner.export.query import StudyReader
from tuner.export.summary import Best, CaseSummary, summarise

if TYPE_CHECKING:
    from conftest import FilledDatabase


def test_every_case_has_its_best_and_its_counts(database: "FilledDatabase") -> None:
    first, second = database.case("add_pi_plus"), database.case("amp_pi_plus")
    metrics = {"min_avg_util": 61.0, "min_avg_util_se": 0.5}
    config = {"num_envs": 1024, "agent_variant": "hiutil", "pruner_patience": 2}
    database.add(first, config, utils=(61.0, 63.0), metrics=metrics)
    elsewhere = {"devices": "GPU-c"}
    database.add(first, {"num_envs": 512, "agent_variant": "default"}, utils=(50.0, 51.0), host=elsewhere)
    database.add(first, {"num_envs": 2048, "agent_variant": "hiutil"}, status="gpu_oom")
    database.add(first, {"num_envs": 32, "agent_variant": "default"}, status="pruned")
    database.add(first, {"num_envs": 32, "agent_variant": "hiutil"}, status="interrupted")
    database.running(first)
    database.add(second, {"num_envs": 2048}, status="hang")
    best = Best(
        trial=0,
        value=61.0,
        error=0.5,
        readings=1,
        config={"num_envs": 1024, "agent_variant": "hiutil"},
        samples_per_s=15000.126,
        vs_default=None,
        changes_learning=(),
    )
    summaries = summarise(StudyReader(connect(database.url), "pi_plus"))
    assert summaries == [
        CaseSummary(
            case="add_pi_plus",
            status="ok",
            objective="min_avg_util",
            best=best,
            ok=2,
            pruned=1,
            failed=1,
            interrupted=1,
            running=1,
            measured_on={"GPU-a, GPU-b": 1, "GPU-c": 1},
            profile=Profile(util_pct=61.0),
            bound=Bound.HOST,
            probe_s=306.25,
        ),
        CaseSummary(
            case="amp_pi_plus",
            status="hang",
            objective="min_avg_util",
            best=None,
            ok=0,
            pruned=0,
            failed=1,
            interrupted=0,
            running=0,
            measured_on={},
            probe_s=61.25,
        ),
    ]


def test_the_best_says_what_it_changes_and_makes_of_default(database: "FilledDatabase") -> None:
    default = {"num_envs": 1024, "agent_variant": "default"}
    case = database.case("add_pi_plus", defaults=[default], learning=["agent_variant"])
    database.add(case, default, utils=(50.0, 51.0), samples_per_s=60000.0)
    database.add(case, {**default, "agent_variant": "hiutil"}, utils=(61.0, 63.0), samples_per_s=15000.0)
    (summary,) = summarise(StudyReader(connect(database.url), "pi_plus"))
    assert summary.best is not None
    assert (summary.best.vs_default, summary.best.changes_learning) == (0.25, ("agent_variant",))


def test_a_case_just_started_has_no_trials(database: "FilledDatabase") -> None:
    database.running(database.case("add_pi_plus"))
    (summary,) = summarise(StudyReader(connect(database.url), "pi_plus"))
    assert (summary.status, summary.failed, summary.running) == ("no_trials", 0, 1)


def test_the_best_stands_beside_what_it_measured_beside_other_probes(database: "FilledDatabase") -> None:
    alone, never = database.case("add_pi_plus"), database.case("amp_pi_plus")
    same = {"config": {"num_envs": 1024}, "digest": "same"}
    for util, beside in ((70.0, 3), (74.0, 1), (75.0, 0)):
        database.add(
            alone, utils=(util,), metrics={"min_avg_util": util, "min_avg_util_se": 3.0}, beside=beside, **same
        )
    database.add(never, utils=(80.0,), beside=2, total_batch=64.0, **same)
    one, other = summarise(StudyReader(connect(database.url), "pi_plus"))
    assert one.best is not None
    assert other.best is not None
    assert (one.best.value, one.best.readings) == (75.0, 1)
    assert one.best.beside is not None
    assert (one.best.beside.value, one.best.beside.readings) == (72.0, 2)
    assert one.best.beside.error is not None
    assert (other.best.value, other.best.beside, other.best.total_batch) == (80.0, None, 64.0)
