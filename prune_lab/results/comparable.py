"""What scores must have in common to be compared: test set, signature, decoding, size of the unpruned model."""

from __future__ import annotations

import json
from dataclasses import dataclass

from prune_lab.results.record import Record

# Settings that change how fast a hypothesis is found, not which one.
_SPEED_ONLY = ("batch_size",)
_USUAL_PRODUCTS = "float32"


@dataclass(frozen=True)
class Comparable:
    """What must be equal for BLEU scores to be compared: scores that differ in any of it are on separate curves."""

    test_set: str
    references_hash: str
    bleu_signature: str
    decoding_kind: str
    decoding: str
    total_heads: int

    @classmethod
    def of(cls, record: Record) -> Comparable:
        """The setting of a complete record."""
        assert record.bleu_signature and record.decoding_kind and record.total_heads is not None
        decoding = {name: value for name, value in record.decoding.items() if name not in _SPEED_ONLY}
        decoding.setdefault("products", _USUAL_PRODUCTS)  # of records that do not say it
        return cls(
            test_set=str(record.test_set["name"]),
            references_hash=str(record.test_set["references_hash"]),
            bleu_signature=record.bleu_signature,
            decoding_kind=record.decoding_kind,
            decoding=json.dumps(decoding, sort_keys=True),
            total_heads=record.total_heads,
        )

    @property
    def decoding_label(self) -> str:
        """Decoding in a few words: `greedy`, or `beam 5, length penalty 1.0`."""
        settings = json.loads(self.decoding)
        rounded = "" if settings["products"] == _USUAL_PRODUCTS else f", {settings['products']}"
        if self.decoding_kind == "greedy":
            return f"greedy{rounded}"
        label = f"beam {settings['beam_size']}" if "beam_size" in settings else "beam"
        if settings.get("length_penalty") is not None:
            label += f", length penalty {settings['length_penalty']}"
        return label + rounded

    @property
    def short_signature(self) -> str:
        """Tokenizer, case and version of the signature, for titles: `tokenize 13a, cased, sacrebleu 2.6.0`."""
        parts = dict(part.split(":", 1) for part in self.bleu_signature.split("|") if ":" in part)
        case = {"mixed": "cased", "lc": "lower-cased"}.get(parts.get("case", ""), "")
        words = [f"tokenize {parts['tok']}" if "tok" in parts else "", case]
        words.append(f"sacrebleu {parts['version']}" if "version" in parts else "")
        return ", ".join(word for word in words if word) or self.bleu_signature
