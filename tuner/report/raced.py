"""The picture of a race: how the score of each run grew, and which config learnt most."""

from tuner.export.words import figure, in_words
from tuner.kept.race import KeptRun
from tuner.report.drawing import BEST, FRONT, OTHER, THIRD, Picture, axis, short, text
from tuner.report.facts import CaseFacts
from tuner.search.scores import standings
from tuner.study.launch import launch_digest

_COLOURS = (BEST, FRONT, THIRD, OTHER)


def curves(case: CaseFacts) -> Picture | None:
    """Draw the scores of each run of the case's race against the time that the run has trained."""
    runs = _by_config(case)
    if not any(run.curve for made in runs.values() for run in made):
        return None
    data = [
        {
            "x": [short(at) for at, _ in run.curve],
            "y": [short(score) for _, score in run.curve],
            "name": text(in_words(run.config)),
            "legendgroup": standing.config,
            "showlegend": number == 0,
            "mode": "lines",
            "line": {"color": _COLOURS[place % len(_COLOURS)], "width": 1.5},
            "hovertemplate": f"seed {run.seed}: %{{y}} after %{{x}} s<extra></extra>",
        }
        for place, standing in enumerate(standings(runs))
        for number, run in enumerate(runs[standing.config])
    ]
    return Picture(
        name="race",
        title="The race: what is learnt",
        caption=f"Each line is a run with a seed of its own. {winner(case) or ''}".strip(),
        data=data,
        layout={"xaxis": axis("seconds of training"), "yaxis": axis("score")},
    )


def winner(case: CaseFacts) -> str | None:
    """Return a sentence about the config that learnt most in the case's race; None where there was no race."""
    runs = _by_config(case)
    first = next((one for one in standings(runs) if one.mean), None)
    if first is None or first.mean is None:
        return None
    error = "" if first.mean.error is None else f" ± {first.mean.error:.3g}"
    return (
        f"In the race {in_words(runs[first.config][0].config)} learnt most: score {figure(first.mean.value)}{error} "
        f"after {first.seconds:.0f} s of training, mean of {first.mean.runs} run(s)."
    )


def _by_config(case: CaseFacts) -> dict[str, list[KeptRun]]:
    runs: dict[str, list[KeptRun]] = {}
    for run in case.race:
        runs.setdefault(launch_digest(run.config), []).append(run)
    return runs
