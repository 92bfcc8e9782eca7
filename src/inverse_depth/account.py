"""What a study ran, read out of its cubes: how many models, where, how long; and what is missing or unconverged."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pandas as pd
import xarray as xr

from inverse_depth.config import Study
from inverse_depth.curves import join_notes

_Place = tuple[float, float, int]
"""(a, b, k)."""


@dataclass(frozen=True)
class Account:
    """One experiment, as it was run.

    Attributes
    ----------
    model, size, depths, seeds, steps : str
        What was trained, in words.
    spectra, target_sizes : str
    points, jobs : int
        Points (L, a, b, k, seed) of the cube, and the training jobs behind them; a job trains the seeds of a group.
    models : int
        Trained models: depths, spectra and seeds, each once; at a = 0 one model may serve all teacher spectra.
    unconverged_models : int
        Those of them whose last round of training still lowered the loss by more than the tolerance.
    seconds : float
        Wall time of their training, summed over training jobs.
    places : str
        The devices.
    unconverged, missing : list of str
        Points of the cube, by spectrum, target size and depth; teacher spectra with the same ones together.
    """

    model: str
    size: str
    depths: str
    spectra: str
    target_sizes: str
    seeds: str
    steps: str
    points: int
    jobs: int
    models: int
    unconverged_models: int
    seconds: float
    places: str
    unconverged: list[str]
    missing: list[str]


def account(cube: xr.Dataset, study: Study, experiment: str) -> Account:
    """Compare a cube with what the study asks for.

    Parameters
    ----------
    cube : Dataset
        Dimensions L, a, b, k, seed; ``loss`` (NaN where not run), ``converged``, ``steps``, ``seconds``.
    study : Study
    experiment : str
        A key of its experiments.

    Returns
    -------
    Account
    """
    settings = study.experiments[experiment]
    found = cube[["loss", "converged", "steps", "seconds"]].to_dataframe().dropna(subset="loss")
    rows = {key: row for key, row in zip(_keys(found), found.to_dict("records"), strict=True)}
    jobs: dict[str, float] = {}
    models: dict[tuple[str, int], bool] = {}
    missing: dict[_Place, dict[int, list[int]]] = {}
    unconverged: dict[_Place, dict[int, list[int]]] = {}
    shared = 0
    for (a, b, k), runs in study.groups(experiment).items():
        place = a, b, k
        for run, seed in ((one, seed) for one in runs for seed in one.seeds):
            row = rows.get((run.depth, a, b, k, seed))
            if row is None:
                missing.setdefault(place, {}).setdefault(run.depth, []).append(seed)
                continue
            jobs[run.id] = float(row["seconds"])
            shared += (run.id, seed) in models
            models[run.id, seed] = row["converged"] == 1
            if row["converged"] != 1:
                unconverged.setdefault(place, {}).setdefault(run.depth, []).append(seed)
    steps = sorted({int(row["steps"]) for row in rows.values()})
    return Account(
        model=", ".join([settings.attention, *([settings.variant] if settings.variant != "controlled" else [])])
        + f", {settings.task} task",
        size=f"d = {settings.dimension}, P = {settings.context_length}",
        depths=_listed(sorted({key[0] for key in rows})),
        spectra=str(len({key[1:3] for key in rows})),
        target_sizes=_listed(sorted({key[3] for key in rows})),
        seeds=_listed(sorted({key[4] for key in rows})),
        steps=_listed(steps if len(steps) < 2 else [steps[0], steps[-1]], " to "),
        points=len(models) + shared,
        jobs=len(jobs),
        models=len(models),
        unconverged_models=sum(not done for done in models.values()),
        seconds=math.fsum(jobs.values()),
        places=str(cube.attrs.get("device", "not recorded")),
        unconverged=_points(unconverged),
        missing=_points(missing),
    )


def origins(cubes: Mapping[str, xr.Dataset]) -> dict[str, str]:
    """Say with what code and libraries the cubes were made: words to their values, joined where they differ."""
    found: dict[str, list[str]] = {"commits of training": [], "commits of the cubes": []}
    for cube in cubes.values():
        found["commits of training"] += str(cube.attrs.get("training_commits", "")).split("; ")
        found["commits of the cubes"].append(str(cube.attrs.get("commit", "")))
        for name, version in json.loads(cube.attrs.get("versions", "{}")).items():
            found.setdefault(name, []).append(version)
    return {name: join_notes(sorted(values)) or "not recorded" for name, values in found.items()}


def _keys(frame: pd.DataFrame) -> list[tuple[int, float, float, int, int]]:
    index = frame.reset_index()[["L", "a", "b", "k", "seed"]]
    return [(int(L), float(a), float(b), int(k), int(seed)) for L, a, b, k, seed in index.to_numpy()]


def _points(places: Mapping[_Place, Mapping[int, Sequence[int]]]) -> list[str]:
    """Write points, one line a place; depths that lack the same seeds together, and at a = 0 all b that do."""
    lines: dict[tuple[float, int, float | None, str], list[float]] = {}
    for (a, b, k), depths in places.items():
        by_seeds = itertools.groupby(sorted(depths.items(), key=lambda item: (item[1], item[0])), lambda item: item[1])
        parts = [f"L = {_listed([L for L, _ in items])} (seed {_listed(seeds)})" for seeds, items in by_seeds]
        # Elsewhere different b are different models, whatever they lack.
        lines.setdefault((a, k, None if a == 0 else b, "; ".join(parts)), []).append(b)
    return [
        f"(a, b) = {', '.join(f'({a:g}, {b:g})' for b in several)}, k = {k}: {what}"
        for (a, k, _, what), several in lines.items()
    ]


def _listed(values: Sequence[object], separator: str = ", ") -> str:
    return separator.join(f"{value:,}" if isinstance(value, int) else str(value) for value in values) or "none"
