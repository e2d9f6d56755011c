"""Reads which flags a person wants searched, from options or from answers."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

from pydantic import ValidationError

from tuner.count import Flag, as_parameter
from tuner.drafting.command_lines import Setting
from tuner.drafting.searches import Known, Role, SearchedFlag, balanced, nothing_known, proposed, sized, switched
from tuner.errors import StudyError
from tuner.study import LADDER, ParameterSpec, Value, complaints, doublings, written


def searches(
    known: Known,
    asked: Sequence[str] = (),
    *,
    say: Callable[[str], None] = lambda _: None,
    ask: Callable[[str], str] | None = None,
    most: Callable[[SearchedFlag], int | None] = lambda _: None,
) -> tuple[SearchedFlag, ...]:
    """Return what is searched: what options ask for, or else what is proposed, with the changes of a person.

    Args:
        known: what is known of the command.
        asked: the options, such as `num_workers=0,2,4`.
        say: shows a line.
        ask: shows a question, and returns the line that a person types; None where nobody is asked. Then precision
            stays as it is, unless `known` allows it to vary: it may change what is learnt.
        most: returns the size up to which a flag's values grow; None where they do not.

    Raises:
        StudyError: for an option that cannot be used, and where there is nothing to search.
    """
    if asked:
        chosen = [_asked(text, known) for text in asked]
        names = [search.parameter for search in chosen]
        if twice := [name for name in names if names.count(name) > 1]:
            raise StudyError(f"--search {twice[0]} is given more than once; write all its values in one option")
    elif ask:
        chosen = _answered(known, say, ask, most)
    else:
        chosen = [search for search in proposed(known) if known.free_precision or not search.is_precision]
        if not (chosen or known.launch):
            raise StudyError(nothing_known(known))
    return balanced(known, chosen)


def check(asked: Sequence[str], known: Known) -> None:
    """Raise StudyError for a `--search` that no study of a command can hold, before anything runs."""
    for text in asked:
        flag, equals, values = text.partition("=")
        if not re.fullmatch(r"[A-Za-z][\w./-]*(?::[\w.-]+)?", flag.lstrip("-")) or (equals and not values.strip(", ")):
            raise StudyError(f"--search {text}: write FLAG=8,16,32 or FLAG=8..1024")
        if values and ".." not in values:
            setting = known.setting(flag.lstrip("-"))
            _named_values(flag.lstrip("-"), values, setting and _typed_value(setting.value))


def placed(asked: Sequence[str], known: Known) -> list[SearchedFlag]:
    """Return the searches whose placeholders are typed in the command: even its first run needs a value for them.

    Raises StudyError for a `--search` that no study of a command can hold, before anything runs.
    """
    check(asked, known)
    return [_asked(text, known) for text in asked if _has_placeholder(known, text.partition("=")[0].lstrip("-"))]


def _asked(text: str, known: Known) -> SearchedFlag:
    """Return the search of a text: `num_envs=256..65536`, `num_workers=0,2,4`, `batch_size` or `amp=true,false`.

    Raises StudyError for a flag that the script does not have, and for values that it cannot have.
    """
    flag, equals, values = text.partition("=")
    flag = flag.lstrip("-")
    in_script = (own for own in known.flags if flag in own.names or as_parameter(flag) == own.parameter)
    listed = None if _has_placeholder(known, flag) else next(in_script, None)
    setting = known.setting(listed.names[0] if listed else flag)
    is_unknown = not (listed or setting or _has_placeholder(known, flag))
    if is_unknown and known.knows_all:
        names = ", ".join(sorted(own.names[0] for own in known.flags)) or "none"
        raise StudyError(f"--search {text}: the script has no flag {flag}; {known.reader or 'no parser'} read: {names}")
    flag = listed.names[0] if listed else flag
    if not equals:
        return _with_usual_values(flag, setting, known)
    if setting is None and _are_of_a_switch(values):
        plain = SearchedFlag(flag=flag, values=(False, True), typed=f"--{flag}" in known.words, is_switch=True)
        return (switched(listed, known) if listed else None) or plain  # spelt as the script spells its own value
    own = _own_value(listed, setting)
    if ".." in values:
        typed = {own} if isinstance(own, int) and own > 0 else set[int]()
        sizes = tuple(sorted({*_doubled(flag, values), *typed}))
        return SearchedFlag(flag=flag, values=sizes, typed=own, auto=as_parameter(flag) == LADDER)
    named = _named_values(flag, values, own)
    return SearchedFlag(flag=flag, values=named if own is None or own in named else (own, *named), typed=own)


def _with_usual_values(flag: str, setting: Setting | None, known: Known) -> SearchedFlag:
    """Return the search of a flag over values that suit it. Raises StudyError where it has no number to begin with."""
    names = {flag, as_parameter(flag)}
    usual = (search for search in proposed(replace(known, free_batch=True)) if search.parameter in names)
    if search := next(usual, None):
        return search
    if setting is None or not setting.value.isdecimal():
        raise StudyError(f"--search {flag}: the command has no number for it; write {flag}=8,16,32 or {flag}=8..1024")
    return sized(Flag(names=(setting.full or setting.name,), value=setting.value), free=True)


def _are_of_a_switch(values: str) -> bool:
    """Return whether a text names nothing but on and off."""
    words = {"true", "false", "on", "off", "yes", "no"}
    return {value.strip().lower() for value in values.split(",")} <= words


def _own_value(listed: Flag | None, setting: Setting | None) -> Value | None:
    """Return the value that a command uses: the typed one, or else that of its script. None where nobody says it."""
    if setting:
        is_placeholder = setting.value == f"{{{setting.parameter}}}"
        return None if is_placeholder else _typed_value(setting.value)
    return _typed_value(listed.value) if listed and listed.value else None


def _doubled(flag: str, values: str) -> tuple[int, ...]:
    """Return the values between two bounds, each double the one before. Raises StudyError for anything else."""
    bounds = re.fullmatch(r"([0-9]{1,15})\.\.([0-9]{1,15})", values)
    if not bounds:
        raise StudyError(
            f"--search {flag}={values}: both bounds of FLAG=8..1024 are whole numbers; or list values, as 0.1,0.2"
        )
    first, last = int(bounds[1]), int(bounds[2])
    if not 0 < first < last:
        raise StudyError(f"--search {flag}={values}: write the smaller bound first, and at least 1")
    return doublings(first, last)


def _has_placeholder(known: Known, flag: str) -> bool:
    """Return whether the command, or a variable before it, has a flag's placeholder."""
    return f"{{{as_parameter(flag)}}}" in " ".join((*known.env.values(), *known.words))


def _answered(
    known: Known,
    say: Callable[[str], None],
    ask: Callable[[str], str],
    most: Callable[[SearchedFlag], int | None],
) -> list[SearchedFlag]:
    """Return what is proposed, with the changes of a person, who also says whether the precision may vary.

    What cannot be used is asked again.
    """
    usual = {search.parameter: search for search in proposed(known)}
    kept = {name: search for name, search in usual.items() if not search.is_precision}
    lines = shown(balanced(known, list(kept.values())), free=known.free_batch, most=most)
    for line in lines if kept else [nothing_known(known)]:
        say(line)
    varied = max(kept.values(), key=lambda search: len(search.values), default=None)
    example = f"{varied.flag}={','.join(map(written, varied.values))}" if varied else ""
    how = f"Search these? [Enter = yes, or e.g. `{example}`; `FLAG=` leaves one out] "
    chosen: dict[str, SearchedFlag] = {}
    while not chosen:
        try:
            chosen = _changed(kept, ask(how if kept else "Which flag? [e.g. `num-workers=0,4,8`] ").split(), known)
        except StudyError as error:
            say(str(error))
    precision = [search for name, search in usual.items() if search.is_precision and name not in chosen]
    question = f"May the precision vary, too ({' '.join(map(str, precision))})? It may change what is learnt. [y/N] "
    if precision and ask(question).strip().lower() in {"y", "yes"}:
        chosen |= {search.parameter: search for search in precision}
    return list(chosen.values())


def _changed(kept: Mapping[str, SearchedFlag], texts: Sequence[str], known: Known) -> dict[str, SearchedFlag]:
    """Return the flags with the changes that a person types. Raises StudyError for what cannot be used."""
    left_out = {as_parameter(text.strip("-=")) for text in texts if text.endswith("=")}
    check([text for text in texts if not text.endswith("=")], known)
    named = [_asked(text, known) for text in texts if not text.endswith("=")]
    chosen = {name: search for name, search in kept.items() if as_parameter(search.flag) not in left_out}
    chosen |= {search.parameter: search for search in named}
    if not chosen:
        raise StudyError(nothing_known(known))
    return chosen


def shown(
    searched: Sequence[SearchedFlag],
    *,
    free: bool,
    most: Callable[[SearchedFlag], int | None],
    precision: Sequence[SearchedFlag] = (),
) -> Iterator[str]:
    """Yield a line for each flag that is searched or kept, the command's own value first.

    Args:
        searched: the flags.
        free: whether sizes may vary that change what is learnt.
        most: returns the size up to which a flag's values grow; None where they do not.
        precision: flags of the precision that nobody was asked about, and that are left as they are.
    """
    for search in searched:
        why = ""
        if search.computed:
            why = "  (the total batch stays)"
        elif not search.varies and not free:
            why = "  (kept: others change what is learnt; --free-batch frees it)"
        elif search.changes_learning:
            why = "  (changes what is learnt)"
        size = most(search)
        yield f"  {search}{f', then more while it pays (to {size})' if size else ''}{why}"
    if precision:
        named = " ".join(f"--search {search}" for search in precision)
        yield f"  left as it is, because precision may change what is learnt; to vary it, too: {named}"


def _typed_value(text: str) -> Value:
    """Return a value as typed in a command: a number, if a study can hold it, and otherwise the text."""
    number = _number(text)
    return text if number is None or _complaint("", [number]) else number


def _named_values(flag: str, text: str, own: Value | None) -> tuple[Value, ...]:
    """Return the values that stand in a text with commas between, without repetition.

    `own` is the value that the command uses. Raises StudyError for a value that the flag cannot have.
    """
    words = [word.strip() for word in text.split(",") if word.strip()]
    values = tuple(dict.fromkeys(_value(flag, word, own) for word in words))
    if complaint := _complaint(flag, values):
        raise StudyError(complaint)
    return values


def _complaint(flag: str, values: Sequence[Value]) -> str | None:
    """Return why a study cannot hold the values of a flag; None where it can."""
    try:
        ParameterSpec.model_validate({"choices": values})
    except ValidationError as error:
        return complaints(error, ParameterSpec, flag)[0]
    return None


def _value(flag: str, word: str, own: Value | None) -> Value:
    """Return the value that a word means. Raises StudyError for one that the flag cannot have."""
    number, least = _number(word), _least(flag)
    if least is not None and (not isinstance(number, int) or number < least):
        raise StudyError(f"{flag}={_cut(word)}: write whole numbers of at least {least}, with commas between them")
    if not word.isprintable():
        raise StudyError(f"{flag}={_cut(word)!r} has control characters")
    if number is None and _is_meant_as_number(word, own):
        raise StudyError(f"{flag}={_cut(word)}: write numbers as 50000, 0.5 or 1e-4, with commas between them")
    return word if number is None else number


def _least(flag: str) -> int | None:
    """Return the smallest number that a size or a number of workers may have; None for any other flag."""
    if Role.WORKERS.has(flag):
        return 0
    return 1 if Role.BATCH.has(flag) or Role.ENVIRONMENTS.has(flag) else None


def _is_meant_as_number(word: str, own: Value | None) -> bool:
    """Return whether a word is a number in a spelling that programs do not read; `own` is the value in use."""
    is_number = isinstance(own, int | float) and not isinstance(own, bool)
    if re.fullmatch(
        r"[+-]?\d[\d'_\s]*(?:\.\d*)?|[+-]?(?:inf|infinity|nan)", word, re.IGNORECASE
    ):  # 50'000, 050, other digits
        return True
    return is_number and re.fullmatch(r"[+-]?[\d.]+[kmg]", word, re.IGNORECASE) is not None  # 50k; `8g` may be a word


def _number(text: str) -> int | float | None:
    """Return a number that is written plainly; None for any other text. More than 300 digits are infinite."""
    if not re.fullmatch(r"[+-]?(?:0|[1-9][0-9]*|(?=\.[0-9]))(?:\.[0-9]*)?(?:[eE][+-]?[0-9]+)?", text):
        return None
    return int(text) if re.fullmatch("[+-]?[0-9]{1,300}", text) else float(text)


def _cut(text: str) -> str:
    """Return a text, cut off after 60 characters."""
    return text if len(text) <= 60 else f"{text[:60]}…"
