"""Kinds of values in a configuration: numbers in their ranges, names that are safe in paths, lists without repeats."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field


def _not_boolean(value: Any) -> Any:
    if isinstance(value, bool):
        raise ValueError("is no number")
    return value


def _unsigned_zero(value: float) -> float:
    return value + 0.0


def first_repeat(values: Sequence[Any]) -> Any:
    """Return the first value that stood before, or None."""
    seen = set()
    for value in values:
        if value in seen:
            return value
        seen.add(value)
    return None


def _no_repeats(values: list[Any]) -> list[Any]:
    if (repeated := first_repeat(values)) is not None:
        raise ValueError(f"repeats {list(repeated) if isinstance(repeated, tuple) else repeated}; each may stand once")
    return values


def no_repeated_seeds(groups: list[list[int]]) -> list[list[int]]:
    """Refuse a seed that stands in two groups, or twice in one."""
    _no_repeats([seed for group in groups for seed in group])
    return groups


Name = Annotated[str, Field(pattern=r"^[A-Za-z][A-Za-z0-9_-]{0,47}$")]
Count = Annotated[int, Field(ge=1, strict=True)]
Steps = Annotated[int, Field(ge=1, le=10_000_000, strict=True)]
Depth = Annotated[int, Field(ge=1, le=4096, strict=True)]
Dimension = Annotated[int, Field(ge=1, le=4096, strict=True)]
Length = Annotated[int, Field(ge=1, le=1_000_000, strict=True)]
Number = Annotated[float, BeforeValidator(_not_boolean), Field(allow_inf_nan=False)]
Exponent = Annotated[Number, Field(ge=0, le=10), AfterValidator(_unsigned_zero)]
Positive = Annotated[Number, Field(gt=0)]
Seed = Annotated[int, Field(ge=0, lt=2**31, strict=True)]

Distinct = AfterValidator(_no_repeats)
Spectrum = tuple[Exponent, Exponent]
Spectra = Annotated[list[Spectrum], Field(min_length=1), Distinct]
TargetSizes = Annotated[list[Count], Field(min_length=1), Distinct]


def check_selectable(target_sizes: Collection[int], context_length: int) -> None:
    """Refuse a target of more tokens than a context has."""
    if max(target_sizes) > context_length:
        raise ValueError(
            f"target_sizes holds k = {max(target_sizes)}: it must be at most context_length ({context_length})"
        )
