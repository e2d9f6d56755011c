"""Results of `tuner scale` that never ran, and subjects that are never launched."""

from tuner.study import ProbeSpec
from tuner.tools.scaling.campaign import MeasuredSubject, links_plan
from tuner.tools.scaling.results import Measurement, Mode, Results, Route, Subject

FUSION = Subject(name="fusion", text="trains a network", unit="samples per GPU and step")


def point(
    mode: Mode,
    rate: float | None,
    *,
    workload: str = "fusion",
    size: int | None = 64,
    gpus: tuple[int, ...] = (0,),
    route: Route | None = None,
    beside: int = 1,
    error: float | None = None,
    step: float | None = None,
) -> Measurement:
    """Return a point; a step has `size` samples on each GPU unless `step` says otherwise."""
    return Measurement(
        workload=workload,
        size=size,
        mode=mode,
        gpus=gpus,
        route=route,
        beside=beside,
        samples_per_s=rate,
        samples_per_s_se=error,
        samples_per_step=step if step is not None else float((size or 1) * len(gpus)),
    )


def results(
    *points: Measurement, subjects: tuple[Subject, ...] = (FUSION,), cards: int = 2, on_gpu: bool = True
) -> Results:
    """Return results of a machine with like cards."""
    return Results(
        written_at="2026-11-23T10:00:00+00:00",
        tuner="0.1.0",
        machine={"gpus": f"{cards} x NVIDIA H200", "cpu": "a processor"},
        devices=("NVIDIA H200" if on_gpu else "a processor",) * cards,
        on_gpu=on_gpu,
        subjects=subjects,
        points=points,
    )


def scaled(name: str, *sizes: int | None, only_links: bool = False) -> MeasuredSubject:
    """Return a subject that is planned and never launched."""
    return MeasuredSubject(
        subject=Subject(name=name, text="", unit=""),
        sizes=sizes,
        plan=lambda size, slot: links_plan(size or 1, slot),
        limits=ProbeSpec(),
        only_links=only_links,
    )
