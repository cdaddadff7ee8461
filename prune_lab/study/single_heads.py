"""Each head of the base alone removed, and alone left at its site (Michel 2019, arXiv 1905.10650, sections 3.2, 3.3).

Every such model is pruned from the base and translates the validation text: what is learned of single heads is there to
choose with, and the test set stays for the points. What is measured is kept line by line, so that a study that was
stopped goes on; none of it is a point of the curve.
"""

from __future__ import annotations

import json
import logging
import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from prune_lab.data.corpus import Corpus
from prune_lab.evaluation.generate import translate_lines
from prune_lab.evaluation.significance import bleu_of_statistics, bleu_statistics, compare
from prune_lab.heads import HeadMask
from prune_lab.model.transformer import Transformer
from prune_lab.pruning.surgery import prune_heads
from prune_lab.results.files import hash_lines, write_atomically
from prune_lab.results.single_heads import FILE_NAME, FORMAT_VERSION, SingleHead, questions_of, read_single_heads
from prune_lab.training.files import DamagedFileError

if TYPE_CHECKING:
    from prune_lab.study.stages import Stages

STAGE = "single heads"
# So many resamples that p-values can be below 0.05 after Holm's correction for this many heads and more.
_NUM_SAMPLES = 10_000
_SAMPLES_PER_HEAD = 40

log = logging.getLogger(__name__)


def pruned_for(model: Transformer, question: str, site: str, head: int) -> Transformer:
    """A copy without the head, or without all other heads of its site."""
    others = [number for number in model.heads()[site] if number != head]
    return prune_heads(model, HeadMask.removing({site: [head] if question == "removed" else others}, model))


def measure_single_heads(stages: Stages) -> dict[str, Exception]:
    """Measure what the plan asks for and is not measured yet.

    Returns:
        empty, or what went wrong by the name of the stage; the study goes on to its report.
    """
    if not stages.setup.plan.single_heads:
        return {}
    try:
        _Measurement(stages).run()
    except Exception as error:
        is_mendable = isinstance(error, DamagedFileError)
        log.error(f"{STAGE}: failed ({error}); going on", exc_info=None if is_mendable else error)
        stages.progress.failed(STAGE)
        return {STAGE: error}
    return {}


class _Measurement:
    """Measures the single heads of a study's base.

    Args:
        stages: of the study.
    """

    def __init__(self, stages: Stages) -> None:
        self._stages = stages
        self._path: Path = stages.directory / FILE_NAME
        self._text: Corpus = stages.setup.splits.validation
        self._model = stages.base_model()
        original = self._model.original_heads()
        self._wanted = questions_of(original, stages.setup.plan.single_heads)
        self._num_samples = max(_NUM_SAMPLES, _SAMPLES_PER_HEAD * sum(original.values()))

    def run(self) -> None:
        """Measure what is missing, line by line."""
        start = time.monotonic()
        found = read_single_heads(self._path)
        is_same = found is not None and all(found.header.get(key) == value for key, value in self._common().items())
        header = dict(found.header) if found is not None and is_same else self._header()
        heads = found.heads if found is not None and is_same else ()
        lines = [header, *map(asdict, heads)]
        done = {head.key for head in heads}
        missing = [key for key in self._wanted if key not in done]
        if missing:  # also puts right a last line that was cut short
            write_atomically(self._path, "".join(f"{json.dumps(line, ensure_ascii=False)}\n" for line in lines))
        baseline = self._statistics(header["hypotheses"]) if missing else None
        for question, site, numbers in _by_site(missing):
            measured = [self._measured(question, site, number, baseline) for number in numbers]
            what = "one removed" if question == "removed" else "one left"
            differences = " ".join(f"{head.difference:+.2f}" for head in measured)
            print(f"{STAGE}: {site}, {what}: {differences} BLEU", flush=True)
        result = f"{len(self._wanted)} models, {self._text_name} BLEU {header['bleu']:.2f} with all heads"
        if missing:
            self._stages.progress.made(STAGE, result, 0.0, time.monotonic() - start)
        else:
            self._stages.progress.done_before(STAGE, result)

    def _measured(self, question: str, site: str, number: int, baseline: Any) -> SingleHead:
        lines = self._translations(pruned_for(self._model, question, site, number))
        found = compare(self._statistics(lines), baseline, num_samples=self._num_samples)
        head = SingleHead(
            question=question,
            site=site,
            head=number,
            bleu=found.bleu,
            difference=found.difference,
            low=found.low,
            high=found.high,
            p_value=found.p_value,
        )
        with open(self._path, "a", encoding="utf-8") as file:
            file.write(f"{json.dumps(asdict(head))}\n")
            file.flush()
            os.fsync(file.fileno())
        return head

    @property
    def _text_name(self) -> str:
        return f"{self._stages.setup.splits.name} validation"

    def _common(self) -> dict[str, Any]:
        """What must be the same for a line to count."""
        setup = self._stages.setup
        return {
            "format_version": FORMAT_VERSION,
            "base_hash": self._stages.base_hash,
            "original_heads": self._model.original_heads(),
            "text": self._text_name,
            "text_hash": hash_lines(line for pair in self._text.pairs for line in pair),
            "num_sentences": len(self._text.pairs),
            "decoding": setup.decoding.to_record(),
            "tokenize": setup.splits.score_tokenize,
            "lowercase": setup.splits.lowercase,
            "num_samples": self._num_samples,
        }

    def _header(self) -> dict[str, Any]:
        lines = self._translations(self._model)
        bleu = float(bleu_of_statistics(self._statistics(lines).sum(axis=0)))
        return {**self._common(), "bleu": bleu, "hypotheses": lines}

    def _translations(self, model: Transformer) -> list[str]:
        setup = self._stages.setup
        return translate_lines(model.to(setup.device), self._text.sources, setup.decoding).lines

    def _statistics(self, lines: Sequence[str]) -> Any:
        splits = self._stages.setup.splits
        return bleu_statistics(lines, self._text.targets, tokenize=splits.score_tokenize, lowercase=splits.lowercase)


def _by_site(keys: Sequence[tuple[str, str, int]]) -> Iterator[tuple[str, str, list[int]]]:
    """The heads of each question and site."""
    groups: dict[tuple[str, str], list[int]] = {}
    for question, site, head in keys:
        groups.setdefault((question, site), []).append(head)
    for (question, site), heads in groups.items():
        yield question, site, heads
