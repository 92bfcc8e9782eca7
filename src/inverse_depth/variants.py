"""The model variants: which class computes each, and what it allows. A new variant is an entry here and a module.

This table decides no number, so an entry more retrains nothing: a run depends on the module of its own model alone.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Variant:
    """What a variant of a kind of attention is and allows.

    Attributes
    ----------
    model : str
        ``module:Class``.
    parameters : tuple of str
        Ways of holding the trained weights.
    teachers : tuple of str
        ``integrated`` where the output is linear in the labels, ``sampled``.
    tasks : tuple of str
    """

    model: str
    parameters: tuple[str, ...] = ("merged", "factored")
    teachers: tuple[str, ...] = ("integrated", "sampled")
    tasks: tuple[str, ...] = ("easy", "difficult")

    @property
    def module(self) -> str:
        """The module that the class is in."""
        return self.model.partition(":")[0]


_SOFTMAX = "inverse_depth.models.softmax:SoftmaxAttention"

VARIANTS: dict[str, dict[str, Variant]] = {
    "linear": {"controlled": Variant("inverse_depth.models.linear:LinearAttention")},
    "softmax": {
        "controlled": Variant(_SOFTMAX),
        # App. C.2: a value matrix for each layer
        "decoupled_values": Variant(_SOFTMAX),
        # App. C.1: inputs and labels in one stream
        "single_stream": Variant(
            "inverse_depth.models.single_stream:SingleStream", ("merged",), ("sampled",), ("difficult",)
        ),
        # App. C.3: the context's labels are updated too
        "context_updates": Variant(
            "inverse_depth.models.context_updates:ContextUpdates", ("merged",), tasks=("difficult",)
        ),
    },
}
"""By kind of attention, then by name."""
