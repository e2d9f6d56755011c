"""A space as plain JSON values, to compare it with the space that a study was started with."""

from tuner.study.space import Condition, Space


def described(space: Space) -> dict[str, object]:
    """Return parameter name → its values and conditions.

    An `auto` ladder is described by its bounds only, because each study computes its own rungs.
    """
    return {
        parameter.name: {
            **({"auto": list(parameter.bounds)} if parameter.bounds else {"values": list(parameter.values)}),
            "when": {condition.parameter: _needed(condition) for condition in parameter.conditions},
        }
        for parameter in space.parameters
    }


def _needed(condition: Condition) -> object:
    return list(condition.values) if condition.at_least is None else condition.at_least
