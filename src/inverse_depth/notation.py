r"""Mathematics in captions and headings, such as ``L_0 + c L^-alpha`` or ``$\alpha$``, as HTML."""

from __future__ import annotations

import html
import re

_GREEK = {
    "alpha": "α", "beta": "β", "gamma": "γ", "lambda": "λ", "omega": "ω", "rho": "ρ", "zeta": "ζ", "Sigma": "Σ",
}  # fmt: skip
_LETTERS = re.compile(rf"(?<![A-Za-z])(?:{'|'.join(_GREEK)})(?![A-Za-z])")
_SUBSCRIPT = re.compile(r"(?<!\w)([A-Za-zα-ωΣ])_(?:\{([^}]*)\}|([A-Za-z0-9]+))")
_SUPERSCRIPT = re.compile(r"\^(?:\{([^}]*)\}|(-?\w+))")


def to_html(text: str) -> str:
    """Write a caption or heading as HTML: Greek letters, subscripts, powers and minus signs; the rest is escaped."""
    text = html.escape(text, quote=False).replace("$", "").replace("\\", "").replace(" - ", " − ")
    text = _LETTERS.sub(lambda found: _GREEK[found[0]], text)
    text = _SUPERSCRIPT.sub(lambda found: f"<sup>{(found[1] or found[2]).replace('-', '−')}</sup>", text)
    return _SUBSCRIPT.sub(lambda found: f"<i>{found[1]}</i><sub>{found[2] or found[3]}</sub>", text)
