"""One parameter of a study file: a ladder (a list of rungs, or `auto`), a list of choices, or a range."""

import itertools
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from typing import Annotated, Any, ClassVar, Literal

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

from tuner.study.batch import probed_sizes
from tuner.study.space import LADDER, Condition, Parameter, Value
from tuner.study.spaced import count_spaced, spaced_values

AUTO = "auto"
"""The word that a study file writes instead of rungs.

The tuner then computes the rungs from two calibration probes, and the study keeps them from then on.
"""

MOST_VALUES = 1_000
"""The most values that one parameter may have. The limit bounds the work of a search, which visits all values."""

MOST_CASES, MOST_PARAMETERS, MOST_OVERRIDES = 1_000, 100, 200
"""The bounds on the lists of a study file, far above what can be probed."""

MOST = 1 << 53
"""Numbers are smaller, so that a float can hold each whole number."""


def doublings(first: int, last: int) -> tuple[int, ...]:
    """Return `first`, twice `first`, and so on below `last`, and `last` itself."""
    return (*itertools.takewhile(lambda rung: rung < last, (first << power for power in itertools.count())), last)


def _not_bool(given: object) -> object:
    """Refuse true and false, which Python treats as 1 and 0.

    Text such as `"8"` is allowed, because the value of an environment variable is text.
    """
    if isinstance(given, bool):
        raise ValueError("write a number")
    return given


Whole = Annotated[int, BeforeValidator(_not_bool), Field(gt=-MOST, lt=MOST)]
Number = Annotated[float, BeforeValidator(_not_bool)]
PositiveInt = Annotated[Whole, Field(ge=1)]


def _scalar(given: object) -> object:
    if not isinstance(given, bool | int | float | str):
        raise ValueError("write a number, a word, true or false; put the word null in quotes")
    if isinstance(given, int | float) and not abs(given) < MOST:
        raise ValueError(f"write a finite number smaller than {MOST:,}")
    return given


Cases = Annotated[tuple[str, ...], Field(min_length=1, max_length=MOST_CASES)]
Scalar = Annotated[StrictBool | StrictInt | StrictFloat | StrictStr, BeforeValidator(_scalar)]


def _whole(given: float) -> float:
    """Return a whole number as an integer."""
    return int(given) if given.is_integer() else given


Limit = Annotated[Number, AfterValidator(_whole)]
"""A number of a range, an integer if it is whole."""


class Strict(BaseModel):
    """A part of the study file. Unknown keys are errors, numbers must be finite, and values are frozen.

    Keys of older versions are left out without an error: see `tuner.study.retired`.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)
    retired: ClassVar[AbstractSet[str]] = frozenset()
    """The keys that older versions had."""

    @model_validator(mode="before")
    @classmethod
    def _without_retired(cls, given: Any) -> Any:
        if isinstance(given, dict) and not cls.retired.isdisjoint(given):
            return {key: value for key, value in given.items() if key not in cls.retired}
        return given


class AtLeast(Strict):
    """A condition that a number is at least `min`, such as `{min: 1}`."""

    min: Number = Field(description="the smallest value of the other parameter")


Rungs = Annotated[tuple[PositiveInt, ...], Field(min_length=1, max_length=MOST_VALUES)]
_RUNGS: TypeAdapter[tuple[int, ...]] = TypeAdapter(Rungs)


def _ladder(given: Any, check: ValidatorFunctionWrapHandler) -> Any:
    """Check a list only as a list of rungs, so that an error names the wrong rung.

    Otherwise pydantic would list an error for each form that a ladder may have.
    """
    if isinstance(given, str) and given != AUTO:
        raise ValueError("write rungs such as [256, 512, 1024], or auto")
    return check(given) if given in (None, AUTO) else _RUNGS.validate_python(given)


Ladder = Annotated[Rungs | Literal["auto"] | None, WrapValidator(_ladder)]


class ParameterSpec(Strict):
    """One parameter: a `ladder` of rungs, a list of `choices`, or a `range` of numbers."""

    ladder: Ladder = Field(
        default=None,
        description="the rungs, in any order; `auto`: rungs computed from two small probes. "
        "One parameter of a study may have a ladder: its larger values need more memory",
    )
    min: PositiveInt = Field(default=32, description="the smallest rung of `ladder: auto`")
    max: PositiveInt = Field(
        default=65536,
        description="the largest rung that `ladder: auto` may have, or the largest batch of `batch: auto`",
    )
    choices: tuple[Scalar, ...] | None = Field(
        default=None, min_length=1, max_length=MOST_VALUES, description="numbers, words, or `[false, true]`"
    )
    range: tuple[Limit, Limit] | None = Field(default=None, description="the first and the last number")
    step: Annotated[Limit, Field(gt=0)] | None = Field(
        default=None,
        description="of a range: the difference of two values, 1 for integers; with `log` their factor, 2 if empty",
    )
    log: bool = Field(default=False, description="each value of a range is the value before times `step`")
    batch: Literal["auto"] | None = Field(
        default=None, description="`auto`: one batch size that fits the card; `NAME: auto` is short for it"
    )
    samples: PositiveInt | None = Field(
        default=None, description="of `batch: auto`: the samples from which a rank draws its batches"
    )
    when: dict[str, Scalar | tuple[Scalar, ...] | AtLeast] = Field(
        default_factory=dict, description="the parameter counts only while other parameters have these values"
    )

    @model_validator(mode="before")
    @classmethod
    def _short(cls, given: Any) -> Any:
        """Read `NAME: auto` as `NAME: {batch: auto}`."""
        return {"batch": AUTO} if given == AUTO else given

    @model_validator(mode="after")
    def _one_kind(self) -> "ParameterSpec":
        given = [kind for kind in ("ladder", "batch", "choices", "range") if getattr(self, kind) is not None]
        if len(given) != 1:
            raise ValueError(f"give exactly one of ladder, batch, choices, range; found {', '.join(given) or 'none'}")
        self._check_bounds()
        self._check_range()
        values = self.values
        if len(set(values)) != len(values):
            raise ValueError(f"{given[0]} names a value twice: {list(values)}")
        return self

    def _check_bounds(self) -> None:
        if self.samples is not None and not self.batch:
            raise ValueError("only `batch: auto` allows samples")
        if self.batch:
            if self.when or "min" in self.model_fields_set:
                raise ValueError(f"`batch: auto` allows no `{'when' if self.when else 'min'}`")
        elif self.ladder != AUTO:
            if stray := [name for name in ("min", "max") if name in self.model_fields_set]:
                raise ValueError(f"only `ladder: auto` allows {' and '.join(stray)}")
        elif self.when:
            raise ValueError("`ladder: auto` allows no `when`: each config needs a rung")
        elif self.min > self.max:
            raise ValueError(f"`ladder: auto` has its min {self.min} above its max {self.max}")

    def _check_range(self) -> None:
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
        if self.step is None and not self.log and not isinstance(first + last, int):
            raise ValueError("a range of fractions needs a step, such as 0.1, or `log: true`")
        count = count_spaced(first, last, self._step, log=self.log)
        if count > MOST_VALUES:
            raise ValueError(f"range has {count} values, {MOST_VALUES} at most; give it a larger step")

    @property
    def _step(self) -> float:
        return self.step or (2 if self.log else 1)

    @property
    def values(self) -> tuple[Value, ...]:
        """All values. A ladder and a range are sorted; `auto` has the doublings from `min` to `max`.

        A batch size that is `auto` has the sizes that may be probed to work it out.
        """
        if self.batch:
            return probed_sizes(self.max)
        if self.ladder == AUTO:
            return doublings(self.min, self.max)
        if self.ladder is not None:
            return tuple(sorted(self.ladder))
        if self.range is not None:
            return spaced_values(*self.range, self._step, log=self.log)
        return tuple(self.choices or ())

    def with_values(self, values: Sequence[Value]) -> "ParameterSpec":
        """Return a ladder or a list of choices with these values and the same conditions."""
        kind = "choices" if self.ladder is None else "ladder"
        return ParameterSpec.model_validate({kind: tuple(values), "when": self.when})

    def parameter(self, name: str, *, is_ladder: bool | None = None) -> Parameter:
        """Return the parameter in the form that the search uses. `is_ladder`: see `Parameter.is_ladder`."""
        role = (self.ladder is not None or name == LADDER) if is_ladder is None else is_ladder
        return Parameter(
            name=name,
            values=tuple(sorted(self.values, key=float)) if role else self.values,
            is_ladder=role,
            is_range=self.range is not None,
            is_log=self.log,
            bounds=(1, self.max) if self.batch else (self.min, self.max) if self.ladder == AUTO else None,
            conditions=tuple(_condition(other, wanted) for other, wanted in self.when.items()),
        )


def _condition(parameter: str, wanted: Scalar | tuple[Scalar, ...] | AtLeast) -> Condition:
    if isinstance(wanted, AtLeast):
        return Condition(parameter=parameter, at_least=wanted.min)
    return Condition(parameter=parameter, values=wanted if isinstance(wanted, tuple) else (wanted,))
