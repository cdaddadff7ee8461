"""The attention viewer: one HTML file that shows what each head reads, with nothing to fetch and nothing averaged.

The page is made of the files in `attention_page/`. A link to a view ends in what it shows:
``#pair=0&site=encoder.0.self&head=1``.

Shapes: H live heads of a site, T tokens that read, S tokens that are read.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
import os
import re
from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np

from prune_lab.analysis.viewed_pairs import ViewedHead, ViewedPair, view_pairs, viewed_heads
from prune_lab.heads import HeadSite
from prune_lab.results.files import write_atomically

__all__ = ["STEPS", "ViewedHead", "ViewedPair", "view_pairs", "viewed_heads", "write_attention_view"]

# Weights are stored as whole numbers of 16 bits, 0 to STEPS: off by half a step at most, and less than PRECISION.
STEPS = 65535
PRECISION = "0.00001"
# In this order they are one script: each uses only functions of any, and constants of those before it.
SCRIPTS = ("data", "elements", "choice", "chooser", "heads", "lines", "matrix", "table", "page")


def write_attention_view(
    path: str | os.PathLike[str],
    pairs: Sequence[ViewedPair],
    heads: Mapping[str, Sequence[ViewedHead]],
    *,
    original_heads: Mapping[str, int] | None = None,
    title: str = "What each head reads",
) -> Path:
    """Writes the viewer as one HTML file, which works without a network and from any folder.

    Args:
        path: file to write; its folder is made if need be.
        pairs: all with weights for the sites in `heads`.
        heads: site -> its live heads by ascending number, in the order of the weights; may be empty.
        original_heads: site -> heads in the unpruned model (see `Transformer.original_heads`), so that the removed ones
            are shown; when None, those below the highest number that is known of a site.
        title: of the page.

    Returns:
        The path written.

    Raises:
        ValueError: no pairs or sites, heads whose number is not that of the weights, or numbers that are not ascending
            or beyond those of the unpruned model.
    """
    sites = [_site(name, list(live), original_heads) for name, live in heads.items()]
    if not pairs or not sites:
        raise ValueError(f"{len(pairs)} sentence pairs and {len(sites)} sites; a view needs one of each at least")
    for number, pair in enumerate(pairs, start=1):
        _check_pair(number, pair, heads)
    content = {
        "title": title,
        "steps": STEPS,
        "precision": PRECISION,
        "sites": sites,
        "pairs": [
            {
                "source": pair.source,
                "target": pair.target,
                "weights": [encode_weights(np.asarray(pair.weights[site["name"]])) for site in sites],
            }
            for pair in pairs
        ],
    }
    # Halves of surrogate pairs, which JSON can hold and tokens may, are no text.
    return write_atomically(path, _page(title, content).encode("utf-8", "replace"))


def encode_weights(weights: np.ndarray) -> str:
    """Weights of any shape as base64 of little-endian whole numbers of 16 bits, row by row."""
    steps = np.rint(np.clip(weights.astype(np.float64), 0, 1) * STEPS)
    return base64.b64encode(steps.astype("<u2").tobytes()).decode("ascii")


def _site(name: str, live: list[ViewedHead], original_heads: Mapping[str, int] | None) -> dict[str, Any]:
    """What the page is told of a site."""
    place, numbers = HeadSite.parse(name), [head.number for head in live]
    if numbers != sorted(set(numbers)):
        raise ValueError(f"heads of {name}: {numbers}; allowed are ascending numbers, each once")
    total = max(numbers, default=-1) + 1
    if original_heads is not None:
        if name not in original_heads:
            raise ValueError(f"original_heads: nothing of {name}; there are {', '.join(original_heads)}")
        if total > original_heads[name]:
            allowed = f"the unpruned model has {original_heads[name]}, with numbers from 0"
            raise ValueError(f"heads of {name}: {numbers}; {allowed}")
        total = original_heads[name]
    known = [{"number": head.number, "gate": head.gate, "roles": head.roles} for head in live]
    return {"name": name, "kind": place.kind, "layer": place.layer, "total": total, "heads": known}


def _check_pair(number: int, pair: ViewedPair, heads: Mapping[str, Sequence[ViewedHead]]) -> None:
    for site, live in heads.items():
        if site not in pair.weights:
            raise ValueError(f"pair {number}: no weights of {site}; there are those of {', '.join(pair.weights)}")
        num_weights = len(pair.weights[site])
        if num_weights != len(live):
            found = f"{site} has {num_weights} heads with weights and {len(live)} in heads"
            raise ValueError(f"pair {number}: {found}; allowed are equal numbers")


def _page(title: str, content: Mapping[str, Any]) -> str:
    folder = files("prune_lab.analysis") / "attention_page"
    style = (folder / "style.css").read_text(encoding="utf-8")
    script = "\n".join((folder / f"{name}.js").read_text(encoding="utf-8") for name in SCRIPTS)
    # Only what has these hashes is run or applied, and nothing is fetched: whatever a token holds, it stays text.
    policy = (
        f"default-src 'none'; script-src {_hash(script)}; style-src {_hash(style)}; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )
    parts = {
        "policy": policy,
        "title": html.escape(title),
        "style": style,
        "script": script,
        "data": _inside_script(content),
        "text": _plain_text(content),
    }
    template = (folder / "page.html").read_text(encoding="utf-8")
    return re.sub(r"\{\{(\w+)\}\}", lambda found: parts[found[1]], template)


def _hash(text: str) -> str:
    """How a content security policy names an inline script or style."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode('utf-8')).digest()).decode('ascii')}'"


def _inside_script(content: Mapping[str, Any]) -> str:
    """JSON in ASCII that no HTML parser can take for the end of its element, or for a comment."""
    text = json.dumps(content, separators=(",", ":"), allow_nan=False)
    return re.sub("[<>&]", lambda found: f"\\u{ord(found[0]):04x}", text)


def _plain_text(content: Mapping[str, Any]) -> str:
    """The sentences and the heads, for a browser that runs no script."""
    parts = ["<h2>Sentence pairs</h2><ol>"]
    for pair in content["pairs"]:
        sides = (f"<bdi>{html.escape(' '.join(pair[side]))}</bdi>" for side in ("source", "target"))
        parts.append(f"<li>{'<br>'.join(sides)}</li>")
    parts.append("</ol><h2>Heads that remain</h2><ul>")
    for site in content["sites"]:
        heads = "; ".join(map(_described, site["heads"])) or "none"
        parts.append(f"<li>{site['name']}: {html.escape(heads)}</li>")
    return "".join([*parts, "</ul>"])


def _described(head: Mapping[str, Any]) -> str:
    gate = [] if head["gate"] is None else [f"gate {head['gate']:.2f}"]
    about = ", ".join([*gate, *head["roles"]])
    return f"head {head['number']}" + (f" ({about})" if about else "")
