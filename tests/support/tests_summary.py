"""The summary of a case, for tests of the closing messages."""

from tuner.export import BestGain, CaseSummary, ConfigRow

BEST = ConfigRow(
    trial=3,
    value=87.0,
    error=None,
    readings=1,
    config={"num_envs": 512, "agent_variant": "hiutil", "update_epochs": 20},
    samples_per_s=9000.0,
    vs_default=0.2143,
    changes_learning=("update_epochs", "batch_size"),
)
GAIN = BestGain(
    before=58.0,
    before_error=None,
    after=87.0,
    after_error=None,
    times=1.5,
    error=None,
    overall=False,
    in_sessions=False,
    may_be_slower_later=False,
)
"""From 58 to 87 of an objective, at 1.5 times the speed."""


def summary(best: ConfigRow | None) -> CaseSummary:
    return CaseSummary(
        case="walk",
        status="ok",
        objective="min_avg_util",
        best=best,
        ok=1,
        pruned=0,
        failed=0,
        interrupted=0,
        running=0,
        measured_on={},
    )
