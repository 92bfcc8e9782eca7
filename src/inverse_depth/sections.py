"""The sections of a study's configuration: every key with its meaning, its unit and its bounds."""

from __future__ import annotations

import itertools
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from inverse_depth.fields import (
    Count,
    Depth,
    Dimension,
    Distinct,
    Length,
    Name,
    Positive,
    Seed,
    Spectra,
    Spectrum,
    Steps,
    TargetSizes,
    check_selectable,
    first_repeat,
    no_repeated_seeds,
)
from inverse_depth.variants import VARIANTS


class Section(BaseModel):
    """Keys and values; one that is not known is refused."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Grid(Section):
    """A block of points: every depth, at every spectrum, target size and seed of the block."""

    depths: Annotated[list[Depth], Field(min_length=1), Distinct] = Field(description="numbers of residual layers L")
    spectra: Spectra = Field(description="pairs [a, b]: input eigenvalues j^-a, teacher eigenvalues j^-b")
    target_sizes: TargetSizes = Field(default=[1], description="numbers k of context tokens averaged into the target")
    seeds: Annotated[
        list[Annotated[list[Seed], Field(min_length=1, max_length=16)]],
        Field(min_length=1),
        AfterValidator(no_repeated_seeds),
    ] = Field(description="groups of at most 16 seeds; the seeds of one group train together in one job")


class Fit(Section):
    """How the loss of an experiment is fitted against depth (App. D.1)."""

    floor: Literal["free", "zero"] = Field(
        default="free", description="fit L_0 jointly with c and alpha, or set it to zero (the easy task)"
    )
    min_depth: Count = Field(default=1, description="shallowest depth fitted")
    max_depth: Count = Field(default=4096, description="deepest depth fitted")

    @model_validator(mode="after")
    def _ordered(self) -> Fit:
        if self.max_depth < self.min_depth:
            raise ValueError(f"max_depth is {self.max_depth}: it must be at least min_depth ({self.min_depth})")
        return self


class Experiment(Section):
    """One model on one task: the points of its grids become one cube."""

    attention: Literal["linear", "softmax"]
    variant: str = Field(default="controlled", description="the controlled model, or one of App. C: see variants.py")
    task: Literal["easy", "difficult"] = Field(
        description="easy: the label of the matching token; difficult: the mean label of the k tokens of largest cosine"
    )
    dimension: Dimension = Field(description="d, the dimension of a token")
    context_length: Length | Literal["infinite"] = Field(
        description="P, the number of context tokens; 'infinite' for linear attention on the easy task"
    )
    width: Dimension = Field(description="N, the width of the residual streams; N >= d")
    training: Name = Field(description="the recipe, a key of the section 'training'")
    evaluation_contexts: Annotated[int, Field(ge=256, le=2**28, multiple_of=256, strict=True)] = Field(
        description="number of common contexts on which every model of the experiment is evaluated"
    )
    fit: Fit = Fit()
    grid: Annotated[list[Grid], Field(min_length=1)]

    @model_validator(mode="after")
    def _consistent(self) -> Experiment:
        if self.width < self.dimension:
            raise ValueError(f"width is {self.width}: it must be at least dimension ({self.dimension})")
        if self.variant not in (allowed := VARIANTS[self.attention]):
            raise ValueError(f"variant is {self.variant!r}: {self.attention} attention allows {', '.join(allowed)}")
        if self.task not in (tasks := VARIANTS[self.attention][self.variant].tasks):
            raise ValueError(f"task is {self.task!r}: variant {self.variant!r} allows {', '.join(tasks)}")
        infinite = self.context_length == "infinite"
        if infinite and (self.attention, self.task) != ("linear", "easy"):
            raise ValueError("context_length 'infinite' is defined for linear attention on the easy task only")
        if not infinite and (self.attention, self.task) == ("linear", "easy"):
            raise ValueError("context_length must be 'infinite' for linear attention on the easy task")
        sizes = {k for grid in self.grid for k in grid.target_sizes}
        if self.task == "easy" and sizes != {1}:
            raise ValueError(f"target_sizes is {sorted(sizes)}: the easy task copies one token, so it must be [1]")
        if self.context_length != "infinite":
            check_selectable(sizes, self.context_length)
        keys = [
            (depth, a, b, k, seed)
            for grid in self.grid
            for depth, (a, b), k in itertools.product(grid.depths, grid.spectra, grid.target_sizes)
            for seed in itertools.chain.from_iterable(grid.seeds)
        ]
        if repeated := first_repeat(keys):
            raise ValueError(
                "grid holds the point L={}, a={}, b={}, k={}, seed={} twice; once is enough".format(*repeated)
            )
        depths = sorted({depth for block in self.grid for depth in block.depths})
        if not any(self.fit.min_depth <= depth <= self.fit.max_depth for depth in depths):
            raise ValueError(
                f"fit takes min_depth {self.fit.min_depth} to max_depth {self.fit.max_depth}: "
                f"the grid has only depths {', '.join(map(str, depths))}"
            )
        return self


class Training(Section):
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
    learning_rate: Annotated[Positive, Field(le=1)] = Field(
        description="peak rate of Adam, before the per-parameter scale of the model"
    )
    warmup: Annotated[int, Field(ge=0, le=100_000, strict=True)] = Field(
        default=100, description="steps of linear warm-up in each round; fewer than its steps"
    )
    first_round: Steps = Field(description="steps of the first round")
    max_steps: Steps = Field(description="no round is begun that would end after this many steps")
    tolerance: Annotated[Positive, Field(lt=1)] = Field(
        description="converged when a round changes the validation loss by less than this fraction of it"
    )
    precision: Literal["float32", "float64"] = Field(default="float32", description="arithmetic of training")

    @model_validator(mode="after")
    def _one_round_fits(self) -> Training:
        if self.max_steps < self.first_round:
            raise ValueError(f"max_steps is {self.max_steps}: it must be at least first_round ({self.first_round})")
        if "warmup" in self.model_fields_set and self.warmup >= self.first_round:
            raise ValueError(f"warmup is {self.warmup}: it must be less than first_round ({self.first_round})")
        return self


class Floor(Section):
    """Linear loss floors by Monte Carlo (App. A.3) for every pair of a spectrum and a target size."""

    dimension: Dimension = Field(description="d, the dimension of a token")
    context_length: Length = Field(description="P, the number of context tokens")
    degree: Annotated[int, Field(ge=1, le=16, strict=True)] = Field(description="degree L of the covariance polynomial")
    contexts: Annotated[int, Field(ge=256, multiple_of=256, strict=True)] = Field(
        description="number n of independent contexts"
    )
    spectra: Spectra = Field(description="pairs [a, b]")
    target_sizes: TargetSizes = Field(description="numbers k of context tokens averaged into the target")

    @model_validator(mode="after")
    def _selectable(self) -> Floor:
        check_selectable(self.target_sizes, self.context_length)
        return self


class Theory(Section):
    """Theoretical references: polynomials for the easy task, floors for the difficult one."""

    polynomial_depths: Annotated[list[Depth], Field(min_length=2), Distinct] = Field(
        description="depths L at which the constrained and free polynomial losses are computed"
    )
    floors: dict[Name, Floor] = Field(description="one file of floors each, theory/<name>.nc")

    @model_validator(mode="after")
    def _own_files(self) -> Theory:
        if "polynomials" in self.floors:
            raise ValueError("floors holds 'polynomials': that name is taken by the file of the polynomial references")
        return self


class Selection(Section):
    """How well models of two depths select the tokens of the target, context by context (App. D.2)."""

    experiment: Name = Field(description="of controlled softmax attention on the difficult task")
    spectrum: Spectrum
    target_size: Count
    depths: Annotated[list[Depth], Field(min_length=2, max_length=2), Distinct] = Field(
        description="the shallow and the deep model"
    )
    contexts: Annotated[int, Field(ge=100, le=2**24, strict=True)] = Field(
        description="fresh contexts that both models meet"
    )


class ContextAttention(Section):
    """The first layer's attention among context tokens in models that update them (App. C.3)."""

    experiment: Name = Field(description="of the variant context_updates")
    spectrum: Spectrum
    depth: Depth
    contexts: Annotated[int, Field(ge=2, le=2**20, strict=True)] = Field(description="contexts averaged over")


class Measurements(Section):
    """What is measured on trained models beside their losses; None leaves one out."""

    selection: Selection | None = None
    context_attention: ContextAttention | None = None
