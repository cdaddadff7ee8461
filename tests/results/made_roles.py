"""Roles of heads that no model was looked at for, and files of analyses that hold them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from prune_lab.results.head_roles import FILE_NAME, FORMAT_VERSION, HeadRoles

BASE = "ab" * 32
TEXT = {"name": "made up", "split": "validation", "num_sentences": 30, "num_parsed": 30}


def roles_of(sites: Sequence[str], width: int, roles: Mapping[str, Sequence[str]], **text: Any) -> HeadRoles:
    """Roles of all heads of some sites; those that `roles` does not name have none."""
    heads = [f"{site}.{head}" for site in sites for head in range(width)]
    assert set(roles) <= set(heads)
    model = {"weights_hash": BASE, "remaining_heads": len(heads), "total_heads": len(heads)}
    return HeadRoles(roles={head: tuple(roles.get(head, ())) for head in heads}, model=model, text={**TEXT, **text})


def write_roles(found: HeadRoles, directory: Path, **changes: Any) -> Path:
    """Writes `analysis.json` as an analysis leaves it, as far as reports read it."""
    heads = [(*head.rsplit(".", 1), dict.fromkeys(names, 1.0)) for head, names in found.roles.items()]
    content = {
        "format_version": FORMAT_VERSION,
        "model": dict(found.model),
        "text": dict(found.text),
        "thresholds": dict(found.thresholds),
        "heads": [{"site": site, "head": int(head), "roles": roles} for site, head, roles in heads],
    }
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / FILE_NAME
    path.write_text(json.dumps({**content, **changes}), encoding="utf-8")
    return path
