"""When ours agrees with a published number: one rule for all quantities, stated in ``docs/comparison.md``."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from inverse_depth.curves import join_notes

AGREES, DIFFERS, UNDECIDED = "agrees", "differs", "cannot be decided"


@dataclass(frozen=True)
class Kind:
    """A kind of quantity, and what counts as agreement.

    Attributes
    ----------
    name : str
        The quantity in words.
    tolerance : float
        In units of the published value where `relative`, else as it is; for the side "at least" the bound itself.
    relative : bool
    side : {"", "at most", "at least"}
        Whether only one side counts.
    varies : bool
        Whether the published value depends on training length, which the paper does not give.
    silent : str
        What else it depends on that the paper does not give; empty if nothing.
    """

    name: str
    tolerance: float
    relative: bool = False
    side: Literal["", "at most", "at least"] = ""
    varies: bool = False
    silent: str = ""

    def allowed(self, paper: float, paper_se: float) -> float:
        """Give the tolerance T in the units of the value: not below the published standard error (0 if none)."""
        if self.side == "at least":
            return 0.0
        return max(self.tolerance * abs(paper) if self.relative else self.tolerance, paper_se)

    def distance(self, ours: float, paper: float) -> float:
        """Give |Delta|: how far ours lies from the published value, or beyond it on the side that counts."""
        if self.side == "at least":
            return max(0.0, self.tolerance - ours)
        return max(0.0, ours - paper) if self.side == "at most" else abs(ours - paper)

    def words(self) -> str:
        """Write the tolerance."""
        amount = f"{100 * self.tolerance:g} %" if self.relative else f"{self.tolerance:g}"
        return f"{self.side} {amount}".strip()


@dataclass(frozen=True)
class Measured:
    """What we have to set against a published number.

    Attributes
    ----------
    value, error : float
        With its standard error, 0 for a number that has none by nature; NaN where it is not known.
    refused : str
        Why the value, if there is one, is not to be judged; empty if it is.
    unconverged : str
        How many runs have not converged; empty if all have.
    moved : float
        How far their last round of training moved the value; 0 if all have converged, NaN if that is not known: then
        the number is not decided.
    reached : tuple of float
        The value after each training length at which it is determined.
    """

    value: float
    error: float
    refused: str = ""
    unconverged: str = ""
    moved: float = 0.0
    reached: tuple[float, ...] = ()


def refuse(reason: str) -> Measured:
    """Say that there is nothing to judge, and why."""
    return Measured(math.nan, math.nan, refused=reason)


def judge(kind: Kind, ours: Measured, paper: float, paper_se: float = math.nan) -> tuple[str, str]:
    """Give the verdict on one number and, in a few words, what decides it.

    Parameters
    ----------
    kind : Kind
    ours : Measured
    paper, paper_se : float
        Published value and standard error, NaN where none is given.

    Returns
    -------
    verdict, why : str
    """
    if ours.refused:
        return UNDECIDED, ours.refused
    if not (math.isfinite(ours.value) and math.isfinite(ours.error)):
        return UNDECIDED, "no standard error"
    known = paper_se if math.isfinite(paper_se) else 0.0
    allowed, distance = kind.allowed(paper, known), kind.distance(ours.value, paper)
    far = distance > max(allowed, 2 * math.hypot(ours.error, known))
    low, high = min(*ours.reached, ours.value, math.inf), max(*ours.reached, ours.value, -math.inf)
    if math.isnan(ours.moved):
        verdict, why = UNDECIDED, "how far the last round of training moved it is not known"
    elif ours.moved > allowed:
        verdict, why = UNDECIDED, f"the last round of training moved it by {ours.moved:.2g}"
    elif far and kind.varies and low <= paper <= high:
        verdict, why = UNDECIDED, f"{low:.2f} to {high:.2f} at our training lengths; the published one is not given"
    elif far and kind.silent:
        verdict, why = UNDECIDED, kind.silent
    elif far:
        verdict, why = DIFFERS, f"{'not' if kind.side else 'outside'} {kind.words()}, nor within two errors"
    elif kind.side != "at least" and ours.error > allowed:
        verdict, why = UNDECIDED, f"our error exceeds the tolerance, {kind.words()}"
    elif distance <= kind.allowed(paper, 0.0):
        verdict, why = AGREES, kind.words() if kind.side else f"within {kind.words()}"
    else:
        verdict, why = AGREES, "within the published error" if distance <= allowed else "within two errors"
    return verdict, join_notes([why, ours.unconverged])
