"""A usual space: a ladder, a variant, choices, a range and conditions."""

from tuner.study.space import LADDER, VARIANT, Condition, Parameter, Space

USUAL = Space(
    (
        Parameter(name=LADDER, values=(8, 16, 32, 64)),
        Parameter(name=VARIANT, values=("hiutil", "default")),
        Parameter(name="batch_size", values=(2, 1), conditions=(Condition(parameter=VARIANT, values=("hiutil",)),)),
        Parameter(name="num_workers", values=(0, 1, 2), is_range=True),
        Parameter(name="prefetch_factor", values=(2, 4), conditions=(Condition(parameter="num_workers", at_least=1),)),
        Parameter(name="pruner_patience", values=(3, 2)),
    )
)
"""120 configs: 4 rungs, 3 agents (two of them hiutil), 5 loaders (two per number of workers), 2 patiences."""
