"""The parameters of a study file: ladders, choices and ranges, how each is written, and checks of all together."""

import ast
import math
from collections.abc import Mapping, Sequence
from decimal import Decimal
from inspect import cleandoc, getsource
from itertools import count as counting
from itertools import pairwise, takewhile
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StrictBool,
    StrictFloat,
    StrictInt,
    StrictStr,
    TypeAdapter,
    ValidatorFunctionWrapHandler,
    WrapValidator,
    model_validator,
)

from tuner.study.space import LADDER, Condition, Parameter, Value, doublings

if TYPE_CHECKING:
    from pydantic import GetJsonSchemaHandler


def count_spaced(first: float, last: float, step: float, *, log: bool) -> int:
    """Return how many values `spaced_values` would give at most, without making them."""
    if log:
        return math.ceil(math.log(last / first) / math.log(step)) + 1  # `last` ends the list, at any distance
    return int((_exact(last) - _exact(first)) // _exact(step)) + 1


def spaced_values(first: float, last: float, step: float, *, log: bool) -> tuple[float, ...]:
    """Return the values of a range from `first` to `last`.

    Each value is the previous one plus `step`. With `log` it is the previous one times `step`, and `last` ends the
    list. The arithmetic is decimal, as a person would do it: 0.1, 0.2, 0.3. Of integers, all values are integers,
    rounded if need be.
    """
    begin, end, change = map(_exact, (first, last, step))
    if not log:
        sums = [begin + place * change for place in range(count_spaced(first, last, step, log=False))]
        are_integers = all(isinstance(number, int) for number in (first, last, step))
        return tuple(map(int, sums)) if are_integers else tuple(map(float, sums))
    products = takewhile(lambda number: number < end, (begin * change**power for power in counting()))
    if isinstance(first, int) and isinstance(last, int):
        return tuple(dict.fromkeys([*map(round, products), last]))  # rounding may give an integer twice
    return (*map(float, products), float(last))


def _exact(number: float) -> Decimal:
    """Return a number as the decimal that a person writes: 0.1 itself, not the nearest binary fraction."""
    return Decimal(repr(number))


AUTO = "auto"
"""The word that a study file writes instead of rungs.

The tuner then computes the rungs from two calibration probes, and the study keeps them from then on.
"""

MOST_VALUES = 1_000
"""The most values that one parameter may have. The limit bounds the work of a search, which visits all values."""

MOST_CASES = 1_000
"""The most globs over cases of a study file, far above what can be probed."""

MOST = 1 << 53
"""Numbers are smaller, so that a float can hold each whole number."""


def _not_bool(given: object) -> object:
    """Return a given value as it is. Raises ValueError for true and false, which Python treats as 1 and 0.

    Text such as `"8"` is allowed, because the value of an environment variable is text.
    """
    if isinstance(given, bool):
        raise ValueError("write a number")
    return given


Whole = Annotated[int, BeforeValidator(_not_bool), Field(gt=-MOST, lt=MOST)]
Number = Annotated[float, BeforeValidator(_not_bool)]
PositiveInt = Annotated[Whole, Field(ge=1)]


def _checked_scalar(given: object) -> object:
    """Return a value of a parameter as it is. Raises ValueError for what no parameter can have."""
    if not isinstance(given, bool | int | float | str):
        raise ValueError("write a number, a word, true or false; put the word null in quotes")
    if isinstance(given, int | float) and not abs(given) < MOST:
        raise ValueError(f"write a finite number smaller than {MOST:,}")
    return given


Scalar = Annotated[StrictBool | StrictInt | StrictFloat | StrictStr, BeforeValidator(_checked_scalar)]


Limit = Annotated[Number, AfterValidator(lambda given: int(given) if given.is_integer() else given)]
"""A number of a range, an integer if it is whole."""


class Strict(BaseModel):
    """A part of the study file. Unknown keys are errors, numbers must be finite, and values are frozen.

    The text below a key is its meaning on the page of all keys.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, defer_build=True)

    @classmethod
    def __get_pydantic_json_schema__(cls, core_schema: Any, handler: "GetJsonSchemaHandler") -> dict[str, Any]:
        """Return the JSON schema with the meaning of each key.

        Pydantic can read the meanings, too, but then it reads them whenever tuner starts, which takes 0.05 s.
        """
        schema = handler(core_schema)
        keys = handler.resolve_ref_schema(schema)["properties"]
        (definition,) = ast.parse(getsource(cls)).body
        for pair in pairwise(getattr(definition, "body", [])):
            match pair:
                case ast.AnnAssign(target=ast.Name(name)), ast.Expr(ast.Constant(str(meaning))) if name in keys:
                    keys[name]["description"] = cleandoc(meaning)
                case _:
                    pass
        return schema


class AtLeast(Strict):
    """A condition that a number is at least `min`, such as `{min: 1}`."""

    min: Number
    """the smallest value of the other parameter"""


Rungs = Annotated[tuple[PositiveInt, ...], Field(min_length=1, max_length=MOST_VALUES)]
_RUNGS: TypeAdapter[tuple[int, ...]] = TypeAdapter(Rungs)


def _checked_ladder(given: Any, check: ValidatorFunctionWrapHandler) -> Any:
    """Return a ladder as a study file gives it, after checking it: a list of rungs, `auto`, or None for no ladder.

    Pydantic alone would check each ladder against all three forms, and report an error for each form.
    """
    if isinstance(given, str) and given != AUTO:
        raise ValueError("write rungs such as [256, 512, 1024], or auto")
    return check(given) if given in (None, AUTO) else _RUNGS.validate_python(given)


Ladder = Annotated[Rungs | Literal["auto"] | None, WrapValidator(_checked_ladder)]


class ParameterSpec(Strict):
    """One parameter: a `ladder` of rungs, a list of `choices`, or a `range` of numbers."""

    ladder: Ladder = None
    """rungs, in any order, for the one parameter whose larger values need more memory; `auto`: rungs computed from two
    small probes"""
    min: PositiveInt = 32
    """the smallest rung of `ladder: auto`"""
    max: PositiveInt = 65536
    """the largest rung of `ladder: auto`"""
    choices: tuple[Scalar, ...] | None = Field(default=None, min_length=1, max_length=MOST_VALUES)
    """numbers, words, or `[false, true]`"""
    grow: PositiveInt | None = None
    """of `choices`: while the largest one leads by more than 1 %, its double is added, up to this number"""
    range: tuple[Limit, Limit] | None = None
    """the first and the last number"""
    step: Annotated[Limit, Field(gt=0)] | None = None
    """of a range: the difference between two values, empty: 1, or a tenth of a range of fractions; with `log` their
    factor, empty: 2"""
    log: bool = False
    """each value of a range is the previous one times `step`"""
    own: Scalar | None = None
    """of a ladder or a range: your own value, which is probed first"""
    when: dict[str, Scalar | tuple[Scalar, ...] | AtLeast] = Field(default_factory=dict)
    """the parameter counts only while other parameters have these values"""

    @model_validator(mode="before")
    @classmethod
    def _not_auto_alone(cls, given: Any) -> Any:
        """Raise ValueError for `NAME: auto`, which does not say what is auto."""
        if given == AUTO:
            raise ValueError("write `{ladder: auto}`, or choices such as `{choices: [8, 16, 32]}`")
        return given

    @model_validator(mode="after")
    def _one_kind(self) -> "ParameterSpec":
        """Raise ValueError unless the parameter is of exactly one kind, with keys of this kind, and no value twice."""
        given = [kind for kind in ("ladder", "choices", "range") if getattr(self, kind) is not None]
        if len(given) != 1:
            raise ValueError(f"give exactly one of ladder, choices, range; found {', '.join(given) or 'none'}")
        self._check_bounds()
        self._check_range()
        self._check_growth()
        self._check_own()
        values = self.values
        if len(set(values)) != len(values):
            raise ValueError(f"{given[0]} names a value twice: {list(values)}")
        return self

    def _check_bounds(self) -> None:
        """Raise ValueError where `min`, `max` or `when` do not fit the kind of the parameter."""
        if self.ladder != AUTO:
            if stray := [name for name in ("min", "max") if name in self.model_fields_set]:
                raise ValueError(f"only `ladder: auto` allows {' and '.join(stray)}")
        elif self.when:
            raise ValueError("`ladder: auto` allows no `when`: each config needs a rung")
        elif self.min > self.max:
            raise ValueError(f"`ladder: auto` has its min {self.min} above its max {self.max}")

    def _check_growth(self) -> None:
        """Raise ValueError where `grow` is given, and the choices are no whole numbers, or not all below it."""
        if self.grow is None:
            return
        sizes = [size for size in self.choices or () if type(size) is int]
        if not sizes or len(sizes) < len(self.choices or ()) or max(sizes) < 1:
            raise ValueError("only choices that are whole numbers, one of them above 0, can grow")
        if self.grow <= max(sizes):
            raise ValueError(f"grow {self.grow} is not above the largest choice, {max(sizes)}")

    def _check_own(self) -> None:
        """Raise ValueError where `own` is no value that the ladder or the range can have."""
        if self.own is None:
            return
        if self.ladder is None and self.range is None:
            raise ValueError("only a ladder or a range allows own; the first of `choices` is your own")
        is_number = isinstance(self.own, int | float) and not isinstance(self.own, bool)
        is_rung = isinstance(self.own, int) and self.own >= 1
        if not is_number or (self.ladder and not is_rung):
            raise ValueError(f"own {self.own!r} is no number that the parameter can have")
        has_bounds = self.range or self.ladder == AUTO
        first, last = self.range or (self.min, self.max)
        if has_bounds and not first <= float(self.own) <= last:
            raise ValueError(f"own {self.own} is not between {first} and {last}")

    def _check_range(self) -> None:
        """Raise ValueError for a range that is empty or has too many values."""
        if self.range is None:
            if stray := [name for name in ("step", "log") if name in self.model_fields_set]:
                raise ValueError(f"only a range allows {' and '.join(stray)}")
            return
        first, last = self.range
        if first > last:
            raise ValueError(f"range runs backwards: {[first, last]}")
        if self.log and first <= 0:
            raise ValueError(f"a range with `log: true` begins above 0, not at {first}")
        if self.log and self._step <= 1:
            raise ValueError(f"with `log: true`, step is the factor between two values; {self._step} is not above 1")
        count = count_spaced(first, last, self._step, log=self.log)
        if count > MOST_VALUES:
            raise ValueError(f"range has {count} values, {MOST_VALUES} at most; give it a larger step")

    @property
    def _step(self) -> float:
        """The step of a range: that of the file, or else 2 as a factor, 1 for integers, or a tenth of the range."""
        if self.step:
            return self.step
        if self.log:
            return 2
        first, last = self.range or (0, 0)
        are_integers = isinstance(first, int) and isinstance(last, int)
        if are_integers or first >= last:  # a single number: any step will do
            return 1
        return float((_exact(last) - _exact(first)) / 10)

    @property
    def values(self) -> tuple[Value, ...]:
        """All values, the own one among them. Those of a ladder and a range are sorted.

        An `auto` ladder has the doublings from `min` to `max`, and no own value until its rungs are known.
        """
        if self.ladder == AUTO:
            return doublings(self.min, self.max)
        if self.ladder is not None:
            return self._with_own(self.ladder)
        if self.range is not None:
            return self._with_own(self._spaced)
        return (*(self.choices or ()), *self.grown)

    def _with_own(self, values: Sequence[Value]) -> tuple[Value, ...]:
        """Return the sorted numbers `values` and `own`."""
        if self.own is not None and self.own not in values:
            values = (*values, self.own)
        return tuple(sorted(values, key=float))

    @property
    def _spaced(self) -> tuple[float, ...]:
        """The values of a range by its step, without the user's own value; none for other kinds."""
        return spaced_values(*self.range, self._step, log=self.log) if self.range else ()

    @property
    def grown(self) -> tuple[int, ...]:
        """The values that a search may add to the choices: doublings of the largest choice, up to `grow`."""
        if (most := self.grow) is None:
            return ()
        largest = max(size for size in self.choices or () if isinstance(size, int))
        doubled = (largest << power for power in counting(1))
        return tuple(takewhile(lambda size: size <= most, doubled))

    def with_values(self, values: Sequence[Value]) -> "ParameterSpec":
        """Return the same parameter with other values: a ladder stays a ladder, all others become choices."""
        kind = "choices" if self.ladder is None else "ladder"
        return ParameterSpec.model_validate({kind: tuple(values), "when": self.when})

    def parameter(self, name: str, *, is_ladder: bool) -> Parameter:
        """Return the parameter, called `name`, in the form that the search uses; `is_ladder`: its values are the rungs.

        The user's own value is the first of the choices, or the key `own` of other kinds. Where it lies between the
        steps of a range, the values are no longer evenly spaced, and so no range. Choices have their `grown` values at
        the end: each is searched only once the value before it is the best.
        """
        is_evenly_spaced = self.own is None or self.own in self._spaced
        return Parameter(
            name=name,
            values=tuple(sorted(self.values, key=float)) if is_ladder else self.values,
            is_ladder=is_ladder,
            is_range=self.range is not None and is_evenly_spaced,
            is_log=self.log,
            bounds=(self.min, self.max) if self.ladder == AUTO else None,
            conditions=tuple(_condition(name, wanted) for name, wanted in self.when.items()),
            own=self.choices[0] if self.choices else self.own,
            grown=self.grown,
        )


def _condition(parameter: str, wanted: Scalar | tuple[Scalar, ...] | AtLeast) -> Condition:
    """Return a condition on a parameter in the form that the search uses; `wanted`: one value, several, or a bound."""
    if isinstance(wanted, AtLeast):
        return Condition(parameter=parameter, at_least=wanted.min)
    return Condition(parameter=parameter, values=wanted if isinstance(wanted, tuple) else (wanted,))


def in_order_of_conditions(space: Mapping[str, ParameterSpec]) -> list[str]:
    """Return the names of the parameters of a space, each after the parameters that its conditions name.

    Raises ValueError where the conditions form a cycle, so that there is no such order.
    """
    ordered: list[str] = []
    while len(ordered) < len(space):
        left = [name for name in space if name not in ordered]
        ready = [name for name in left if space[name].when.keys() <= set(ordered)]
        if not ready:
            raise ValueError(f"the conditions form a cycle: {', '.join(sorted(left))}")
        ordered.append(ready[0])
    return ordered


def ladder_name(space: Mapping[str, ParameterSpec]) -> str | None:
    """Return the name of the ladder: the parameter with the key `ladder`, or else `num_envs`; None without either.

    Raises ValueError where several parameters have a `ladder`.
    """
    ladders = [name for name, spec in space.items() if spec.ladder is not None]
    if len(ladders) > 1:
        raise ValueError(
            f"{' and '.join(ladders)} have a ladder, and one parameter of a study may; write `choices` for the others"
        )
    if ladders:
        return ladders[0]
    return LADDER if LADDER in space else None


def check_together(space: dict[str, ParameterSpec]) -> dict[str, ParameterSpec]:
    """Return the space of a study unchanged. Raises ValueError where its parameters do not fit together."""
    ladder = ladder_name(space)
    for name, spec in space.items():
        if name == ladder and spec.range is not None:
            raise ValueError(f"{name} must be a ladder or choices, not a range")
        if name == ladder and (wrong := [rung for rung in spec.values if not isinstance(rung, int) or rung < 1]):
            raise ValueError(
                f"{name}: {wrong[0]!r} is not a whole number of at least 1; write rungs such as [256, 512, 1024]"
            )
        for condition in spec.when:
            if condition not in space:
                raise ValueError(f"{name}: condition on unknown parameter {condition!r}; known: {', '.join(space)}")
    in_order_of_conditions(space)  # called for its ValueError: a cycle
    return space
