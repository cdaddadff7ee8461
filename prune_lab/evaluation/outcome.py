"""What was measured of a model: for its record, and for the user."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from prune_lab.evaluation.environment import versions
from prune_lab.evaluation.scoring import Scores
from prune_lab.results.comet import comet_in_words
from prune_lab.results.record import Record


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """What was measured of a model on a corpus.

    Attributes:
        hypotheses: one translation for each source line.
        scores: BLEU and chrF with their signatures.
        model: heads, state and size (see `model_facts`).
        speed: of decoding (see `measure_decoding`), or None.
        test_set: name of the corpus and hash of its references.
        decoding: all settings that the hypotheses depend on.
        hardware: what it was measured on, for people.
        started: time stamp in ISO 8601.
        finished: time stamp in ISO 8601.
        seconds: what decoding, scoring and the measurement of speed took.
        comet: system score of a COMET model, as the model gives it (not multiplied by 100), or None.
        comet_model: what it must share with others to be compared: name, hash, version, precision.
    """

    hypotheses: list[str]
    scores: Scores
    model: dict[str, Any]
    speed: dict[str, Any] | None
    test_set: dict[str, str]
    decoding: dict[str, Any]
    hardware: str
    started: str
    finished: str
    seconds: dict[str, float]
    comet: float | None = None
    comet_model: dict[str, str] | None = None

    def to_record(self, **facts: Any) -> Record:
        """A record of this; `facts` are the other keys of a `Record`: method, seed, label, settings, ..."""
        return Record(
            **self.model,
            bleu=self.scores.bleu,
            bleu_signature=self.scores.signature,
            chrf=self.scores.chrf,
            chrf_signature=self.scores.chrf_signature,
            comet=self.comet,
            comet_model=self.comet_model,
            num_sentences=self.scores.num_sentences,
            test_set=self.test_set,
            decoding=self.decoding,
            decoding_kind=self.decoding["search"],
            speed=self.speed,
            versions=versions(),
            hardware=self.hardware,
            started=self.started,
            finished=self.finished,
            **{**facts, "seconds": {**(facts.get("seconds") or {}), **self.seconds}},
        )

    def in_words(self) -> str:
        """Two lines: the scores and what they are of, and the signature; a third for COMET, where it was asked for."""
        scores, model, decoding = self.scores, self.model, self.decoding
        search = "greedy" if decoding["search"] == "greedy" else f"beam {decoding['beam_size']}"
        heads = f"{model['remaining_heads']} of {model['total_heads']} heads, {model['state']}"
        scored = f"BLEU {scores.bleu:.2f}  chrF {scores.chrf:.2f}"
        of_what = f"{self.test_set['name']}, {scores.num_sentences} sentences, {search}"
        lines = [f"{scored}  {of_what}", f"{heads}; {scores.signature}"]
        if self.comet is not None and self.comet_model is not None:
            lines.append(f"COMET {self.comet:.4f}  {comet_in_words(self.comet_model)}")
        return "\n".join(lines)
