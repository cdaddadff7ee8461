"""Keys that came later than others of their group: what was done before there were any, in the words of now."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

# A key of groups from the start -> keys that came later, with what they were when nothing could set them.
_LATER = {"selection.scope": {"selection.unit": "head"}, "study.selection.scope": {"study.selection.unit": "head"}}


def with_later_keys(flat: Mapping[str, Any]) -> dict[str, Any]:
    """Flat settings of a record or a configuration of any age, with the later keys of the groups that are in them."""
    later = {key: value for old, keys in _LATER.items() if old in flat for key, value in keys.items()}
    return {**flat, **{key: value for key, value in later.items() if key not in flat}}
