"""The study's configuration: one schema, validated before anything runs.

Every key a configuration file may hold is a field below, with its meaning, its unit and its bounds. A file is plain YAML;
a smaller study is an override of a larger one, merged key by key (mappings merge, lists and scalars replace), exactly as
Snakemake merges `--configfile` over the Snakefile's default.
"""

from __future__ import annotations

import difflib
import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

import yaml
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, model_validator


class ConfigError(ValueError):
    """A configuration that cannot be run; the message names each key, what was found and what is allowed."""


Name = Annotated[str, Field(pattern=r"^[A-Za-z][A-Za-z0-9_-]{0,47}$")]
Count = Annotated[int, Field(ge=1, strict=True)]
Exponent = Annotated[float, Field(ge=0, le=10, allow_inf_nan=False)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Seed = Annotated[int, Field(ge=0, lt=2**31, strict=True)]


def _no_repeats(values: list[Any]) -> list[Any]:
    repeated = [value for i, value in enumerate(values) if value in values[:i]]
    if repeated:
        raise ValueError(f"repeats {repeated[0]}: each value may stand once")
    return values


def _no_repeated_seeds(groups: list[list[int]]) -> list[list[int]]:
    _no_repeats([seed for group in groups for seed in group])
    return groups


Distinct = AfterValidator(_no_repeats)


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Grid(_Section):
    """A block of points: every depth, at every spectrum, target size and seed of the block."""

    depths: Annotated[list[Annotated[int, Field(ge=1, le=4096, strict=True)]], Field(min_length=1), Distinct] = Field(
        description="numbers of residual layers L"
    )
    spectra: Annotated[list[tuple[Exponent, Exponent]], Field(min_length=1), Distinct] = Field(
        description="pairs (a, b): input eigenvalues k^-a, teacher eigenvalues k^-b"
    )
    target_sizes: Annotated[list[Count], Field(min_length=1), Distinct] = Field(
        default=[1], description="numbers k of context tokens averaged into the target"
    )
    seeds: Annotated[
        list[Annotated[list[Seed], Field(min_length=1)]], Field(min_length=1), AfterValidator(_no_repeated_seeds)
    ] = Field(description="groups of seeds; the seeds of one group train together in one job")


class Fit(_Section):
    """How the loss of an experiment is fitted against depth (App. D.1)."""

    floor: Literal["free", "zero"] = Field(
        default="free", description="fit L_0 jointly with c and alpha, or set it to zero (the easy task)"
    )
    min_depth: Count = Field(default=1, description="shallowest depth fitted")
    max_depth: Count = Field(default=4096, description="deepest depth fitted")


class Experiment(_Section):
    """One model on one task: the points of its grids become one cube."""

    attention: Literal["linear", "softmax"]
    task: Literal["easy", "difficult"] = Field(
        description="easy: the label of the matching token; difficult: the mean label of the k tokens of largest cosine"
    )
    dimension: Annotated[int, Field(ge=1, le=4096, strict=True)] = Field(description="d, the dimension of a token")
    context_length: Annotated[int, Field(ge=1, le=1_000_000, strict=True)] | Literal["infinite"] = Field(
        description="P, the number of context tokens; 'infinite' for linear attention on the easy task"
    )
    width: Count = Field(description="N, the width of the residual streams; N >= d")
    training: Name = Field(description="the recipe, a key of the section 'training'")
    evaluation_contexts: Annotated[int, Field(ge=256, multiple_of=256, strict=True)] = Field(
        description="number of common contexts on which every model of the experiment is evaluated"
    )
    fit: Fit = Fit()
    grid: Annotated[list[Grid], Field(min_length=1)]

    @model_validator(mode="after")
    def _consistent(self) -> Experiment:
        if self.width < self.dimension:
            raise ValueError(f"width is {self.width}: it must be at least dimension ({self.dimension})")
        infinite = self.context_length == "infinite"
        if infinite and (self.attention, self.task) != ("linear", "easy"):
            raise ValueError("context_length 'infinite' is defined for linear attention on the easy task only")
        if not infinite and (self.attention, self.task) == ("linear", "easy"):
            raise ValueError("context_length must be 'infinite' for linear attention on the easy task")
        sizes = {k for grid in self.grid for k in grid.target_sizes}
        if self.task == "easy" and sizes != {1}:
            raise ValueError(f"target_sizes is {sorted(sizes)}: the easy task copies one token, so it must be [1]")
        if not infinite and max(sizes) > int(self.context_length):
            raise ValueError(
                f"target_sizes holds k = {max(sizes)}: it must be at most context_length ({self.context_length})"
            )
        keys = [
            (depth, a, b, k, seed)
            for grid in self.grid
            for depth, (a, b), k in itertools.product(grid.depths, grid.spectra, grid.target_sizes)
            for seed in itertools.chain.from_iterable(grid.seeds)
        ]
        if repeated := _first_repeat(keys):
            raise ValueError("grid holds the point L={}, a={}, b={}, k={}, seed={} twice".format(*repeated))
        return self


class Training(_Section):
    """A training recipe: Adam with cosine annealing in rounds, each round twice as long as the one before."""

    parameters: Literal["merged", "factored"] = Field(
        description="merged: train the d x d matrices B_l and the gain; factored: train W_x, W_q, W_k, W_v, W_y, W_o"
    )
    teacher: Literal["integrated", "sampled"] = Field(
        default="integrated", description="integrate the teacher out of the loss exactly, or draw one per context"
    )
    batch_size: Annotated[int, Field(ge=1, le=1_000_000, strict=True)] = Field(
        description="independent contexts per step and seed"
    )
    learning_rate: Positive = Field(description="peak rate of Adam, before the per-parameter scale of the model")
    warmup: Annotated[int, Field(ge=0, strict=True)] = Field(default=100, description="steps of linear warm-up in each round")
    first_round: Count = Field(description="steps of the first round")
    max_steps: Count = Field(description="no round is begun that would end after this many steps")
    tolerance: Positive = Field(
        description="converged when a round lowers the validation loss by less than this fraction of it"
    )
    precision: Literal["float32", "float64"] = Field(default="float32", description="arithmetic of training")

    @model_validator(mode="after")
    def _one_round_fits(self) -> Training:
        if self.max_steps < self.first_round:
            raise ValueError(f"max_steps is {self.max_steps}: it must be at least first_round ({self.first_round})")
        return self


class Floor(_Section):
    """Linear loss floors by Monte Carlo (App. A.3) for every pair of a spectrum and a target size."""

    dimension: Count
    context_length: Count
    degree: Annotated[int, Field(ge=1, le=16, strict=True)] = Field(
        description="degree L of the covariance polynomial"
    )
    contexts: Annotated[int, Field(ge=256, multiple_of=256, strict=True)] = Field(
        description="number n of independent contexts"
    )
    spectra: Annotated[list[tuple[Exponent, Exponent]], Field(min_length=1), Distinct]
    target_sizes: Annotated[list[Count], Field(min_length=1), Distinct]

    @model_validator(mode="after")
    def _selectable(self) -> Floor:
        if max(self.target_sizes) > self.context_length:
            raise ValueError(
                f"target_sizes holds k = {max(self.target_sizes)}: it must be at most context_length ({self.context_length})"
            )
        return self


class Theory(_Section):
    """Theoretical references."""

    polynomial_depths: Annotated[list[Count], Field(min_length=2), Distinct] = Field(
        description="depths L at which the constrained and free polynomial losses are computed"
    )
    floors: dict[Name, Floor]


class Study(_Section):
    """A whole study; everything it makes is under results/<study>/."""

    study: Name
    device: Literal["auto", "cpu", "cuda"] = Field(description="where models train; auto takes a GPU if there is one")
    control_contexts: Annotated[int, Field(ge=4096, multiple_of=4096, strict=True)] = Field(
        description="contexts over which the control variate's own mean is taken"
    )
    training: dict[Name, Training]
    experiments: Annotated[dict[Name, Experiment], Field(min_length=1)]
    theory: Theory

    @model_validator(mode="after")
    def _recipes_exist(self) -> Study:
        for name, experiment in self.experiments.items():
            if experiment.training not in self.training:
                raise ValueError(
                    f"experiments.{name}.training is {experiment.training!r}: allowed are {', '.join(sorted(self.training))}"
                )
        return self

    def runs(self, experiment: str) -> dict[str, Run]:
        """The training jobs of an experiment, by their identifiers.

        Parameters
        ----------
        experiment : str
            A key of ``experiments``.

        Returns
        -------
        dict of str to Run
            In the order of the configuration's grids.
        """
        settings = self.experiments[experiment]
        runs = (
            Run(experiment, depth, a, b, k, tuple(seeds))
            for grid in settings.grid
            for (a, b), k, depth, seeds in itertools.product(grid.spectra, grid.target_sizes, grid.depths, grid.seeds)
        )
        return {run.id: run for run in runs}


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
        return f"L{self.depth}_{self.group}_s{'-'.join(map(str, self.seeds))}"

    @property
    def group(self) -> str:
        """The name of the points that share the data of this run: all depths and seeds of one (a, b, k)."""
        return f"a{self.a:g}_b{self.b:g}_k{self.k}"


def load_study(*paths: str | Path) -> Study:
    """Read one configuration file and the overrides laid over it, in order.

    Raises
    ------
    ConfigError
        If a file is not readable YAML or the result is not a valid study.
    """
    merged: dict[str, Any] = {}
    for path in paths:
        try:
            layer = yaml.safe_load(Path(path).read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError, yaml.YAMLError, RecursionError, ValueError) as error:
            raise ConfigError(f"{path}: cannot be read as YAML: {error}") from error
        if not isinstance(layer, Mapping):
            raise ConfigError(f"{path}: holds {type(layer).__name__}, must hold a mapping of keys")
        merged = _merge(merged, layer)
    return parse_study(merged, source=", ".join(map(str, paths)))


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
        lines = [_explain(detail) for detail in error.errors(include_url=False)]
        raise ConfigError("\n".join([f"{source} is not a valid study:", *(f"  - {line}" for line in lines)])) from None


def _merge(base: Mapping[str, Any], layer: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(base)
    for key, value in layer.items():
        old = merged.get(key)
        merged[key] = _merge(old, value) if isinstance(old, Mapping) and isinstance(value, Mapping) else value
    return merged


def _first_repeat(values: Sequence[tuple[Any, ...]]) -> tuple[Any, ...] | None:
    seen: set[tuple[Any, ...]] = set()
    for value in values:
        if value in seen:
            return value
        seen.add(value)
    return None


def _explain(detail: Any) -> str:
    place = ".".join(str(part) for part in detail["loc"] if not str(part).startswith(("constrained-", "literal[")))
    found = detail.get("input")
    match detail["type"]:
        case "extra_forbidden":
            allowed = _fields_at(detail["loc"][:-1])
            near = difflib.get_close_matches(str(detail["loc"][-1]), allowed, n=1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            return f"{place}: unknown key{hint} (allowed: {', '.join(allowed)})"
        case "missing":
            return f"{place}: missing, must be given"
        case "value_error":
            return f"{place}: {detail['ctx']['error']}" if place else str(detail["ctx"]["error"])
        case _:
            return f"{place}: found {_brief(found)}; {detail['msg'][0].lower()}{detail['msg'][1:]}"


def _brief(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def _fields_at(location: Iterable[Any]) -> list[str]:
    """Names of the fields allowed at a place of the schema, found by walking its annotations."""
    model: Any = Study
    for part in location:
        if isinstance(part, str) and isinstance(model, type) and issubclass(model, BaseModel):
            model = _section_in(model.model_fields[part].annotation)
    return sorted(model.model_fields) if model else []


def _section_in(annotation: Any) -> Any:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next((found for arg in get_args(annotation) if (found := _section_in(arg))), None)
