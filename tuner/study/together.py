"""What several parameters of a study file decide together: conditions, rungs, and values that are `auto`."""

from collections.abc import Mapping

from tuner.study.parameter import AUTO, ParameterSpec
from tuner.study.space import LADDER


def in_order(space: Mapping[str, ParameterSpec]) -> list[str]:
    """Name the parameters, each after those of its conditions. Raises ValueError where the conditions form a cycle."""
    ordered: list[str] = []
    while len(ordered) < len(space):
        ready = [name for name, spec in space.items() if name not in ordered and set(spec.when) <= set(ordered)]
        if not ready:
            raise ValueError(f"the conditions form a cycle: {', '.join(sorted(set(space) - set(ordered)))}")
        ordered.append(ready[0])
    return ordered


def ladder_of(space: Mapping[str, ParameterSpec]) -> str | None:
    """Return the parameter with a `ladder`; `num_envs` has the role where no parameter has a `ladder`.

    Raises ValueError where several parameters have one.
    """
    named = [name for name, spec in space.items() if spec.ladder is not None]
    if len(named) > 1:
        raise ValueError(
            f"{' and '.join(named)} have a ladder, and one parameter of a study may; write `choices` for the others"
        )
    return named[0] if named else LADDER if LADDER in space else None


def check_together(space: Mapping[str, ParameterSpec]) -> None:
    """Check what several parameters decide together. Raises ValueError for the first parameter that does not fit."""
    if (ladder := ladder_of(space)) is not None:
        _check_rungs(ladder, space[ladder])
    for name, spec in space.items():
        if spec.batch and name == LADDER:
            raise ValueError(f"{LADDER}: write `ladder: auto`; `auto` alone stands for a batch size")
        for other in spec.when:
            if other not in space:
                raise ValueError(f"{name}: condition on unknown parameter {other!r}; known: {', '.join(space)}")
    autos = [name for name, spec in space.items() if AUTO in (spec.ladder, spec.batch)]
    if len(autos) > 1:
        raise ValueError(
            f"{' and '.join(autos)} are auto: each needs the memory that the other leaves; write all but one"
        )
    in_order(space)


def _check_rungs(name: str, spec: ParameterSpec) -> None:
    if spec.range is not None:
        raise ValueError(f"{name} must be a ladder or choices, not a range")
    if spec.batch is None and (wrong := [rung for rung in spec.values if not isinstance(rung, int) or rung < 1]):
        raise ValueError(
            f"{name}: {wrong[0]!r} is not a whole number of at least 1; write rungs such as [256, 512, 1024]"
        )
