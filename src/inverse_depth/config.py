"""A study: its configuration as one schema, validated before anything runs, and the training jobs that it asks for.

Every key a configuration file may hold is a field of `Study` or of a section in ``sections.py``. A file is plain YAML;
a smaller study is an override of a larger one, merged key by key (mappings merge, lists and scalars replace), exactly
as Snakemake merges ``--configfile`` over the Snakefile's default.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import Field, ValidationError, model_validator

from inverse_depth.explain import explain
from inverse_depth.fields import Name
from inverse_depth.sections import (
    ContextAttention,
    Experiment,
    Fit,
    Floor,
    Grid,
    Measurements,
    Section,
    Selection,
    Theory,
    Training,
)
from inverse_depth.variants import VARIANTS

__all__ = [
    "ConfigError",
    "ContextAttention",
    "Experiment",
    "Fit",
    "Floor",
    "Grid",
    "Measurements",
    "Run",
    "Selection",
    "Study",
    "Theory",
    "Training",
    "group_id",
    "load_study",
    "parse_study",
    "read_layer",
    "short",
]


class ConfigError(ValueError):
    """A configuration that cannot be run; the message names each key, what was found and what is allowed."""


class Study(Section):
    """A whole study; everything it makes is under results/<study>/."""

    study: Name = Field(description="names the folder of the results")
    device: Literal["auto", "cpu", "cuda"] = Field(description="where models train; auto takes a GPU if there is one")
    control_ratio: Annotated[int, Field(ge=1, le=1024, strict=True)] = Field(
        description="contexts for the control variate's own mean, as a multiple of the evaluation contexts it serves"
    )
    training: dict[Name, Training] = Field(description="the recipes")
    experiments: Annotated[dict[Name, Experiment], Field(min_length=1)]
    theory: Theory
    measurements: Measurements = Measurements()

    @model_validator(mode="after")
    def _consistent(self) -> Study:
        for name, experiment in self.experiments.items():
            if experiment.training not in self.training:
                allowed = ", ".join(sorted(self.training)) or "none, for there are no recipes"
                raise ValueError(f"experiments.{name}.training is {experiment.training!r}: allowed are {allowed}")
            recipe, variant = self.training[experiment.training], VARIANTS[experiment.attention][experiment.variant]
            for key, allowed_values in (("parameters", variant.parameters), ("teacher", variant.teachers)):
                if getattr(recipe, key) not in allowed_values:
                    raise ValueError(
                        f"training.{experiment.training}.{key} is {getattr(recipe, key)!r}: variant "
                        f"{experiment.variant!r} of experiments.{name} allows {', '.join(allowed_values)}"
                    )
        self._check_measurements()
        if len(dimensions := {experiment.dimension for experiment in self._polynomial_experiments()}) > 1:
            raise ValueError(
                f"experiments of linear attention on the easy task have dimensions {sorted(dimensions)}: "
                "they share the polynomial references, so all must have the same"
            )
        return self

    def _polynomial_experiments(self) -> list[Experiment]:
        return [e for e in self.experiments.values() if (e.attention, e.task) == ("linear", "easy")]

    def polynomials(self) -> dict[str, Any] | None:
        """Return what the polynomial references depend on, or None where no experiment has them.

        Returns
        -------
        dict or None
            ``dimension``, ``spectra`` (pairs with a > 0, without which there is no power law) and ``depths``.
        """
        experiments = self._polynomial_experiments()
        spectra = {pair: None for e in experiments for grid in e.grid for pair in grid.spectra if pair[0] > 0}
        if not spectra:
            return None
        depths = self.theory.polynomial_depths
        return {"dimension": experiments[0].dimension, "spectra": [list(p) for p in spectra], "depths": depths}

    def _check_measurements(self) -> None:
        """Refuse a measurement on models that the study does not train."""
        wanted = (
            ("selection", self.measurements.selection, "controlled"),
            ("context_attention", self.measurements.context_attention, "context_updates"),
        )
        for key, section, variant in wanted:
            if section is None:
                continue
            found = self.experiments.get(section.experiment)
            if found is None or (found.attention, found.task, found.variant) != ("softmax", "difficult", variant):
                allowed = ", ".join(
                    name
                    for name, e in self.experiments.items()
                    if (e.attention, e.task, e.variant) == ("softmax", "difficult", variant)
                )
                raise ValueError(
                    f"measurements.{key}.experiment is {section.experiment!r}: allowed are {allowed or 'none'}"
                )
            if not self.measured_runs(section):
                where = f"experiments.{section.experiment} trains"
                if depths := dict.fromkeys(run.depth for run in self.runs_at(section)):
                    name, depth = (
                        ("depths", section.depths) if isinstance(section, Selection) else ("depth", section.depth)
                    )
                    raise ValueError(
                        f"measurements.{key}.{name} is {depth}: {where} {', '.join(map(str, depths))} there"
                    )
                groups = ", ".join(f"[{a:g}, {b:g}] with k = {k}" for a, b, k in self.groups(section.experiment))
                a, b = section.spectrum
                k = f" with k = {section.target_size}" if isinstance(section, Selection) else ""
                raise ValueError(f"measurements.{key}.spectrum is [{a:g}, {b:g}]{k}: {where} {groups}")

    def measured_runs(self, section: Selection | ContextAttention) -> list[Run]:
        """Return the training jobs that a measurement looks at; none if one of its depths is not trained."""
        depths = section.depths if isinstance(section, Selection) else (section.depth,)
        runs = [run for run in self.runs_at(section) if run.depth in depths]
        return runs if {run.depth for run in runs} == set(depths) else []

    def runs_at(self, section: Selection | ContextAttention) -> list[Run]:
        """Return the training jobs of all depths at the spectrum, and the target size, of a measurement."""
        return [
            run
            for (a, b, k), jobs in self.groups(section.experiment).items()
            if (a, b) == section.spectrum and (isinstance(section, ContextAttention) or k == section.target_size)
            for run in jobs
        ]

    def groups(self, experiment: str) -> dict[tuple[float, float, int], list[Run]]:
        """Return the training jobs behind every (a, b, k) of an experiment, all depths and seeds, in grid order.

        With a = 0 and the teacher integrated out the loss at (0, b) is that at (0, 0) but for a factor (b-collapse), so
        one job serves all b.
        """
        settings = self.experiments[experiment]
        integrated = self.training[settings.training].teacher == "integrated"
        groups: dict[tuple[float, float, int], list[Run]] = {}
        for grid in settings.grid:
            for (a, b), k, depth, seeds in itertools.product(grid.spectra, grid.target_sizes, grid.depths, grid.seeds):
                trained_b = 0.0 if a == 0 and integrated else b
                groups.setdefault((a, b, k), []).append(Run(experiment, depth, a, trained_b, k, tuple(seeds)))
        return groups

    def evaluations(self, experiment: str) -> dict[str, dict[tuple[float, float, int], list[Run]]]:
        """Return the evaluations of an experiment: names to every (a, b, k) that one meets, with its training jobs.

        Points of the same models are evaluated at once, under the name of the point at which these were trained.
        """
        evaluations: dict[str, dict[tuple[float, float, int], list[Run]]] = {}
        for point, runs in self.groups(experiment).items():
            evaluations.setdefault(group_id(runs[0].a, runs[0].b, runs[0].k), {})[point] = runs
        return evaluations

    def runs(self, experiment: str) -> dict[str, Run]:
        """Return the training jobs of an experiment by their identifiers, each once."""
        return {run.id: run for jobs in self.groups(experiment).values() for run in jobs}

    def training_settings(self, run: Run) -> dict[str, Any]:
        """Return all that the training of a run depends on, as plain values."""
        return {
            **self.model_settings(run.experiment),
            **{"depth": run.depth, "a": run.a, "b": run.b, "k": run.k, "seeds": list(run.seeds)},
        }

    def evaluation_settings(self, experiment: str, name: str) -> dict[str, Any]:
        """Return all that an evaluation depends on beside the trained models, as plain values.

        Among them ``points``, every b and the depths of the models that are wanted there.
        """
        fields = {"attention", "task", "dimension", "context_length", "evaluation_contexts"}
        points = self.evaluations(experiment)[name]
        ((a, k),) = {(a, k) for a, _, k in points}
        depths = [[b, sorted({run.depth for run in runs})] for (_, b, _), runs in points.items()]
        settings = self.experiments[experiment].model_dump(mode="json", include=fields)
        return settings | {"a": a, "k": k, "points": depths}

    def experiment_settings(self, experiment: str) -> dict[str, Any]:
        """Return all that the numbers of an experiment depend on, as plain values: its fits are no part of it."""
        settings = self.experiments[experiment]
        grid = [block.model_dump(mode="json") for block in settings.grid]
        return {
            **self.model_settings(experiment),
            **{"evaluation_contexts": settings.evaluation_contexts, "control_ratio": self.control_ratio},
            "grid": grid,
        }

    def model_settings(self, experiment: str) -> dict[str, Any]:
        """Return all that the trained models of an experiment depend on beside their points, as plain values."""
        settings = self.experiments[experiment]
        model = settings.model_dump(mode="json", exclude={"training", "evaluation_contexts", "fit", "grid"})
        return {**model, "training": self.training[settings.training].model_dump(mode="json")}


@dataclass(frozen=True)
class Run:
    """One training job: a point of the grid for a group of seeds that train together.

    Attributes
    ----------
    experiment : str
    depth : int
        Number of residual layers (the paper's L).
    a, b : float
        Exponents of the input and the teacher spectrum.
    k : int
        Target size.
    seeds : tuple of int
    """

    experiment: str
    depth: int
    a: float
    b: float
    k: int
    seeds: tuple[int, ...]

    @property
    def id(self) -> str:
        """A short name, unique within the experiment; looked up, never parsed."""
        return f"L{self.depth}_{group_id(self.a, self.b, self.k)}_s{'-'.join(map(str, self.seeds))}"


def group_id(a: float, b: float, k: int) -> str:
    """Name the points of one (a, b, k): all their depths and seeds are evaluated together."""
    return f"a{short(a)}_b{short(b)}_k{k}"


def short(value: float) -> str:
    """Write a number for a file name: with the fewest digits that tell it from every other."""
    return repr(value).removesuffix(".0")


def load_study(*paths: str | Path) -> Study:
    """Read one configuration file and the overrides laid over it, in order.

    Raises
    ------
    ConfigError
        If a file is not readable YAML or the result is not a valid study.
    """
    merged: dict[str, Any] = {}
    for path in paths:
        merged = _merge(merged, read_layer(path))
    return parse_study(merged, source=", ".join(map(str, paths)))


def read_layer(path: str | Path) -> Mapping[str, Any]:
    """Read one configuration file.

    Raises
    ------
    ConfigError
        If it is not readable YAML, holds no mapping, or gives a key twice.
    """
    try:
        layer = yaml.load(Path(path).read_text(encoding="utf-8"), _Loader)
    except (
        OSError,
        UnicodeDecodeError,
        yaml.YAMLError,
        RecursionError,
        ValueError,
        LookupError,
        AttributeError,
    ) as error:
        raise ConfigError(f"{path}: cannot be read as YAML: {error}") from error
    if not isinstance(layer, Mapping):
        raise ConfigError(f"{path}: holds {type(layer).__name__}, must hold a mapping of keys")
    if "__use_yte__" in layer:
        raise ConfigError(f"{path}: a template with Python code (__use_yte__); a study is plain YAML")
    return layer


class _Loader(yaml.SafeLoader):  # type: ignore[misc]
    """Plain values only, and every key once: of two, YAML would silently keep the last."""

    def compose_mapping_node(self, anchor: str | None) -> yaml.MappingNode:
        node = super().compose_mapping_node(anchor)
        seen = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode):
                if (key.tag, key.value) in seen:
                    raise yaml.MarkedYAMLError(
                        problem=f"the key {key.value!r} stands twice", problem_mark=key.start_mark
                    )
                seen.add((key.tag, key.value))
        return node


def parse_study(config: Mapping[str, Any], source: str = "config") -> Study:
    """Validate a configuration.

    Parameters
    ----------
    config : mapping
        What the YAML files hold, merged.
    source : str
        Where it comes from, for the error message.

    Raises
    ------
    ConfigError
        Naming every wrong key, what was found and what is allowed.
    """
    try:
        return Study.model_validate(config)
    except ValidationError as error:
        lines = (f"  - {line}" for line in explain(error, Study, config))
        raise ConfigError("\n".join([f"{source} is not a valid study:", *lines])) from None


def _merge(base: Mapping[str, Any], layer: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(base)
    for key, value in layer.items():
        old = merged.get(key)
        merged[key] = _merge(old, value) if isinstance(old, Mapping) and isinstance(value, Mapping) else value
    return merged
