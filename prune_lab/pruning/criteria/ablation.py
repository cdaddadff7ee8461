"""What is lost without a head: exact, one evaluation of the model per head.

Shapes: B sentences of a batch, S source length, H heads at a site.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar

import torch

from prune_lab.data.batching import Batch
from prune_lab.decoding.options import DecodingOptions
from prune_lab.heads import HeadMask, HeadScores
from prune_lab.model.transformer import Transformer
from prune_lab.pruning.criteria.by_batch import measure_batches
from prune_lab.pruning.criteria.contract import Criterion, evaluating, live_scores
from prune_lab.pruning.criteria.gradient import summed_loss
from prune_lab.pruning.surgery import mask_heads

MEASURES = ("loss", "bleu")


class Ablation(Criterion):
    """The loss without the head minus the loss with it, or BLEU with the head minus BLEU without it.

    Args:
        measure: `loss`: negative log-likelihood per target token, without label smoothing. `bleu`: sacreBLEU of what
            the model translates, with its tokenizer's text where it has one, else of the ids.
        beam_size: of that translation; 1 is greedy search.
        tokenize: BLEU tokenizer of sacrebleu; when None that of the data where a command or a study says it, else
            `13a` for text and `none` for ids.
        lowercase: compare without case; as the data say when None, else False.

    Raises:
        ValueError: an unknown `measure` or `tokenize`, a `beam_size` that is no whole number from 1, or a `lowercase`
            that is neither true nor false.
    """

    name: ClassVar[str] = "ablation"

    def __init__(
        self,
        *,
        measure: str = "loss",
        beam_size: int = 1,
        tokenize: str | None = None,
        lowercase: bool | None = None,
    ) -> None:
        if measure not in MEASURES:
            raise ValueError(f"criterion.measure: {measure!r}; allowed are {', '.join(MEASURES)}")
        if isinstance(beam_size, bool) or not isinstance(beam_size, int) or beam_size < 1:
            raise ValueError(f"criterion.beam_size: {beam_size!r}; allowed are whole numbers from 1")
        if tokenize is not None:
            from prune_lab.evaluation.scoring import bleu_metric

            try:
                bleu_metric(tokenize=tokenize)
            except ValueError as error:
                raise ValueError(f"criterion.{error}") from error
        if lowercase is not None and not isinstance(lowercase, bool):
            raise ValueError(f"criterion.lowercase: {lowercase!r}; allowed are true and false")
        self.measure, self.beam_size, self.tokenize, self.lowercase = measure, beam_size, tokenize, lowercase

    def with_scoring(self, *, tokenize: str, lowercase: bool) -> Ablation:
        """See `Criterion.with_scoring`."""
        scoring = {
            "tokenize": tokenize if self.tokenize is None else self.tokenize,
            "lowercase": lowercase if self.lowercase is None else self.lowercase,
        }
        return Ablation(measure=self.measure, beam_size=self.beam_size, **scoring)  # type: ignore[arg-type]

    def __call__(self, model: Transformer, batches: Iterable[Batch]) -> HeadScores:
        """See `Criterion.__call__`; the text is read once, and for BLEU it stays in memory.

        Raises:
            ValueError: no sentences, or a score that is not finite.
        """
        heads = [(site, head) for site, numbers in model.heads().items() for head in numbers]
        with evaluating(model):
            lost, settings = (self._loss if self.measure == "loss" else self._bleu)(model, batches, heads)
        by_head = dict(zip(heads, lost, strict=True))
        values = {
            name: live_scores(site, [by_head.get((name, number), 0.0) for number in site.numbers])
            for name, site in model.attention_sites().items()
        }
        return HeadScores(values, self.name, {"measure": self.measure, **settings})

    def _loss(
        self, model: Transformer, batches: Iterable[Batch], heads: list[tuple[str, int]]
    ) -> tuple[list[float], dict[str, Any]]:
        """What each head's absence adds to the loss per token."""
        sums = torch.zeros(len(heads), dtype=torch.float64)
        num_sentences = num_tokens = 0
        for batch, added in measure_batches(
            model, batches, lambda batch: _added_losses(model, batch, heads), gradients=False
        ):
            sums += added
            num_sentences += batch.num_sentences
            num_tokens += int((batch.target_ids[:, 1:] != model.config.pad_id).sum())
        _check_some(num_sentences)
        return (sums / num_tokens).tolist(), {"num_sentences": num_sentences, "num_tokens": num_tokens}

    def _bleu(
        self, model: Transformer, batches: Iterable[Batch], heads: list[tuple[str, int]]
    ) -> tuple[list[float], dict[str, Any]]:
        """What each head's absence takes from BLEU."""
        from prune_lab.evaluation.scoring import bleu_metric

        device = model.output_weight.device
        stored = [batch.to(device) for batch in batches]
        references = [line for batch in stored for line in _lines(model, _gold(model, batch))]
        _check_some(len(references))
        options = DecodingOptions(beam_size=self.beam_size)
        tokenize = self.tokenize or ("none" if model.tokenizer is None else "13a")
        lowercase = bool(self.lowercase)
        metric = bleu_metric(tokenize=tokenize, lowercase=lowercase)

        def bleu(of: Transformer) -> float:
            lines = [line for batch in stored for line in _lines(of, of.search(batch.source_ids, options).ids)]
            return float(metric.corpus_score(lines, [references]).score)

        whole = bleu(model)
        without = [bleu(mask_heads(model, HeadMask.removing({site: [head]}, model))) for site, head in heads]
        search = {"num_sentences": len(references), "beam_size": self.beam_size}
        scoring = {"tokenize": tokenize, "lowercase": lowercase, "signature": str(metric.get_signature())}
        return [whole - other for other in without], {**search, **scoring, "bleu": whole}


def _added_losses(model: Transformer, batch: Batch, heads: list[tuple[str, int]]) -> torch.Tensor:
    """The summed loss of a batch without each head, minus the one with all: [heads], float64."""
    sites = model.attention_sites()
    whole = float(summed_loss(model, batch))
    losses = []
    for name, head in heads:
        # Masked, as it would be removed: where tokens choose among heads, a factor of 0 would leave it to be chosen.
        live = torch.tensor([number != head for number in sites[name].numbers], device=model.output_weight.device)
        losses.append(float(summed_loss(model, batch, {name: live})) - whole)
    return torch.tensor(losses, dtype=torch.float64)


def _gold(model: Transformer, batch: Batch) -> list[list[int]]:
    """The target ids of each sentence without marks."""
    marks = {model.config.pad_id, model.config.bos_id, model.config.eos_id}
    return [[number for number in ids if number not in marks] for ids in batch.target_ids.tolist()]


def _lines(model: Transformer, ids: Iterable[list[int]]) -> list[str]:
    if model.tokenizer is None:
        return [" ".join(map(str, sentence)) for sentence in ids]
    return [model.tokenizer.decode_target(sentence) for sentence in ids]


def _check_some(num_sentences: int) -> None:
    if not num_sentences:
        raise ValueError("batches: no sentences; ablation is measured on at least one")
