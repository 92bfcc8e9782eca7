"""Depth scaling of linear and softmax attention: the experiments of Peng et al., arXiv:2610.11063.

``open_cube`` and ``fit_power_law`` reopen and refit the results; neither needs torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from inverse_depth.cubes import open_cube
    from inverse_depth.fits import fit_power_law

__version__ = "0.1.0"
__all__ = ["__version__", "fit_power_law", "open_cube"]

_HOMES = {"open_cube": "inverse_depth.cubes", "fit_power_law": "inverse_depth.fits"}


def __getattr__(name: str) -> Any:
    # Resolved on first use: Snakemake reads the configuration schema in every job, and should not load xarray for it.
    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
