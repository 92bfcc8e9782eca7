"""Checkpoints of a training run: whole or absent, checked when read, and never pickled code."""

from __future__ import annotations

import hashlib
import io
from pathlib import Path
from typing import Any

import torch

from inverse_depth.storage import atomic_path

_MAGIC = b"inverse-depth checkpoint 1\n"


def save(path: Path, identity: str, state: dict[str, Any]) -> None:
    """Write a checkpoint atomically, with a checksum.

    Parameters
    ----------
    path : Path
    identity : str
        Whatever decides the run; a checkpoint of another identity is not resumed.
    state : dict
        Tensors, numbers, strings and containers of these.
    """
    payload = io.BytesIO()
    torch.save({"identity": identity, "state": state}, payload)
    content = payload.getvalue()
    with atomic_path(path) as temporary:
        temporary.write_bytes(_MAGIC + hashlib.sha256(content).digest() + content)


def load(path: Path, identity: str, device: torch.device) -> tuple[dict[str, Any] | None, str]:
    """Read a checkpoint back.

    Returns
    -------
    state : dict or None
        None if there is nothing to resume from.
    reason : str
        In words, for the log.
    """
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return None, "no checkpoint, starting from the beginning"
    body = content[len(_MAGIC) + 32 :]
    if content[: len(_MAGIC)] != _MAGIC or hashlib.sha256(body).digest() != content[len(_MAGIC) : len(_MAGIC) + 32]:
        return None, f"checkpoint {path} is damaged and was ignored, starting from the beginning"
    try:
        saved = torch.load(io.BytesIO(body), map_location=device, weights_only=True)
    except Exception as error:  # a file that is none of ours can raise many kinds
        return None, f"checkpoint {path} cannot be read ({error}) and was ignored, starting from the beginning"
    match saved:
        case {"identity": str() as found, "state": dict() as state}:
            pass
        case _:
            return None, f"checkpoint {path} holds no state of a run and was ignored, starting from the beginning"
    if found != identity:
        return None, f"checkpoint {path} belongs to other settings and was ignored, starting from the beginning"
    return state, f"resuming from {path}"
