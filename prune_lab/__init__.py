"""prune_lab: a laboratory for attention heads in encoder-decoder Transformers."""

import importlib
from typing import TYPE_CHECKING, Any

from prune_lab.version import __version__

if TYPE_CHECKING:
    from prune_lab.evaluation.generate import Translator
    from prune_lab.heads import HeadId, HeadMask, HeadScores, HeadSite
    from prune_lab.model.config import ModelConfig
    from prune_lab.model.transformer import Transformer
    from prune_lab.pruning.criteria.registry import score_heads
    from prune_lab.pruning.surgery import mask_heads, prune_heads

__all__ = [
    "HeadId",
    "HeadMask",
    "HeadScores",
    "HeadSite",
    "ModelConfig",
    "Transformer",
    "Translator",
    "__version__",
    "mask_heads",
    "prune_heads",
    "score_heads",
]

# Imported on first use: commands look at files before they pay for torch, and `prune_lab.heads` needs no torch at all.
_MODULES = {
    "HeadId": "prune_lab.heads",
    "HeadMask": "prune_lab.heads",
    "HeadScores": "prune_lab.heads",
    "HeadSite": "prune_lab.heads",
    "ModelConfig": "prune_lab.model.config",
    "Transformer": "prune_lab.model.transformer",
    "Translator": "prune_lab.evaluation.generate",
    "mask_heads": "prune_lab.pruning.surgery",
    "prune_heads": "prune_lab.pruning.surgery",
    "score_heads": "prune_lab.pruning.criteria.registry",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(_MODULES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
