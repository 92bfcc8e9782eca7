"""Validation errors in plain words: the key, what was found there, and what is allowed."""

from __future__ import annotations

import difflib
import re
import reprlib
from collections.abc import Iterable, Mapping, Sequence
from types import NoneType
from typing import Annotated, Any, get_args, get_origin

from pydantic import BaseModel, ValidationError


def explain(error: ValidationError, schema: type[BaseModel], config: Mapping[str, Any]) -> list[str]:
    """Say what is wrong, one line a key.

    Parameters
    ----------
    error : pydantic.ValidationError
    schema : type
        The model that refused its input.
    config : mapping
        That input.

    Returns
    -------
    list of str
    """
    lines = (_line(detail, schema, config) for detail in error.errors(include_url=False))
    return list(dict.fromkeys(lines))


def _line(detail: Any, schema: type[BaseModel], config: Mapping[str, Any]) -> str:
    keys = list(_keys(detail["loc"], schema))
    place = ".".join(map(str, keys))
    match detail["type"]:
        case "extra_forbidden":
            allowed = sorted(_annotation(keys[:-1], schema).model_fields)
            near = difflib.get_close_matches(str(keys[-1]), allowed, n=1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            return f"{place}: unknown key{hint} (allowed: {', '.join(allowed)})"
        case "missing" if meant := _like_named(keys[:-1], config):
            section = ".".join(map(str, keys[:-1]))
            return f"{section}: a section of its own, which lacks keys that must be given; did you mean {meant!r}?"
        case "missing":
            return f"{place}: missing; it must be given"
        case "value_error" if isinstance(detail["input"], dict):
            return f"{place}: {detail['ctx']['error']}" if place else str(detail["ctx"]["error"])
        case "value_error":
            return f"{place}: found {_brief(detail['input'])}, which {detail['ctx']['error']}"
        case "model_type" | "dict_type" | "model_attributes_type":
            return f"{place or 'all of it'}: found {_brief(detail['input'])}; must be a section of keys and values"
        case "string_pattern_mismatch":
            what = "must start with a letter and hold at most 48 letters, digits, '-' and '_'"
            return f"{place}: found {_brief(detail['input'])}; {what}"
        case _:
            return f"{place}: found {_brief(detail['input'])}; {_plain(detail['msg'])}"


def _like_named(keys: Sequence[Any], config: Any) -> str:
    """Return the name of another section of the same kind that differs by a slip, or nothing."""
    if not keys:
        return ""
    for key in keys[:-1]:
        config = config[key]
    others = [str(name) for name in config if name != keys[-1]] if isinstance(config, Mapping) else []
    return next(iter(difflib.get_close_matches(str(keys[-1]), others, n=1, cutoff=0.9)), "")


def _keys(location: Iterable[Any], schema: type[BaseModel]) -> Iterable[Any]:
    """Keep of a location what a person wrote: keys and places in lists, without the validator's marks."""
    annotation: Any = schema
    for part in location:
        if part == "[key]":
            continue
        container = get_origin(annotation) in (dict, list, tuple) or hasattr(annotation, "model_fields")
        if not container:
            return
        yield part
        annotation = _annotation([part], annotation)


def _annotation(keys: Iterable[Any], annotation: Any) -> Any:
    """Walk down a schema: what is expected at `keys` below `annotation`."""
    for key in keys:
        if hasattr(annotation, "model_fields"):
            field = annotation.model_fields.get(key)
            annotation = field.annotation if field else None
        else:
            annotation = (get_args(annotation) or (None,))[-1]
        while get_origin(annotation) is Annotated or NoneType in get_args(annotation):
            annotation = next(part for part in get_args(annotation) if part is not NoneType)
    return annotation


def _plain(message: str) -> str:
    message = re.sub(r"^\w+ should (be|have) ", r"must \1 ", message)
    message = re.sub(r" after validation, not \d+$|, unable to parse string.*$", "", message)
    return (
        message.replace("a valid tuple", "a pair [a, b]").replace("a valid ", "a ").replace("a integer", "an integer")
    )


def _brief(value: Any) -> str:
    text = reprlib.repr(value) if isinstance(value, dict | list | tuple) else repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
