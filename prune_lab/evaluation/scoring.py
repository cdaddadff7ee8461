"""Translation quality: corpus BLEU and chrF, each with the signature that makes the number repeatable."""

from __future__ import annotations

import re
import warnings
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF

# 13a and intl split at spaces and punctuation, which says nothing about the words of these languages.
_SUITED_TOKENIZER = {"zh": "zh", "ja": "ja-mecab", "ko": "ko-mecab"}
_UNSUITED_TOKENIZERS = ("13a", "intl")
# What sacrebleu needs besides itself; the tokenizers that are not here and need anything are models of SentencePiece.
_PACKAGES = {"ja-mecab": "'sacrebleu[ja]'", "ko-mecab": "'sacrebleu[ko]'"}
_LANGUAGE_ALIASES = {"zho": "zh", "chi": "zh", "cmn": "zh", "jpn": "ja", "kor": "ko"}


@dataclass(frozen=True, kw_only=True)
class Scores:
    """Corpus scores of one set of hypotheses.

    Attributes:
        bleu: Corpus BLEU from 0 to 100, in full precision.
        chrf: Corpus chrF (character 6-grams, beta 2) from 0 to 100, in full precision.
        signature: Full sacrebleu signature of the BLEU score, with the version.
        chrf_signature: Full sacrebleu signature of the chrF score.
        num_sentences: Number of hypotheses scored.
        brevity_penalty: Brevity penalty of the BLEU score, 1 when the output is not too short.
        length_ratio: Hypothesis length divided by reference length, in BLEU tokens.
        hypothesis_length: Length of all hypotheses in BLEU tokens.
        reference_length: Length of all references in BLEU tokens.
    """

    bleu: float
    chrf: float
    signature: str
    chrf_signature: str
    num_sentences: int
    brevity_penalty: float
    length_ratio: float
    hypothesis_length: int
    reference_length: int

    def to_dict(self) -> dict[str, Any]:
        """All fields as plain values."""
        return asdict(self)


def score(
    hypotheses: Sequence[str],
    references: Sequence[str],
    *,
    tokenize: str = "13a",
    lowercase: bool = False,
    target_language: str | None = None,
) -> Scores:
    """Scores hypotheses against one reference each, as the `sacrebleu` command line does.

    Args:
        hypotheses: One detokenised line for each sentence; an empty line is an empty translation.
        references: The raw reference lines, as many as there are hypotheses.
        tokenize: BLEU tokenizer. `none` is for text that is tokenised already, and is named in the signature.
        lowercase: Compare without case, in both scores.
        target_language: Language code such as `de` or `zh-CN`; only used to warn about an unsuited tokenizer.

    Returns:
        Both scores with their signatures.

    Raises:
        ValueError: The counts differ, there is nothing to score, or the tokenizer is unknown or not installed.
    """
    check_aligned(hypotheses, references)
    if target_language is not None:
        _warn_if_unsuited(tokenize, target_language)
    bleu = bleu_metric(tokenize=tokenize, lowercase=lowercase)
    chrf = CHRF(lowercase=lowercase)
    # The command line strips line ends and everything else that is blank at the end of a line.
    lines = [line.rstrip() for line in hypotheses]
    reference_lines = [line.rstrip() for line in references]
    bleu_score = bleu.corpus_score(lines, [reference_lines])
    chrf_score = chrf.corpus_score(lines, [reference_lines])
    return Scores(
        bleu=float(bleu_score.score),
        chrf=float(chrf_score.score),
        signature=str(bleu.get_signature()),
        chrf_signature=str(chrf.get_signature()),
        num_sentences=len(lines),
        brevity_penalty=float(bleu_score.bp),
        length_ratio=float(bleu_score.ratio),
        hypothesis_length=int(bleu_score.sys_len),
        reference_length=int(bleu_score.ref_len),
    )


def check_aligned(hypotheses: Sequence[str], references: Sequence[str]) -> None:
    """Raises ValueError unless there is at least one hypothesis and exactly one reference for each."""
    for name, lines in (("hypotheses", hypotheses), ("references", references)):
        if isinstance(lines, str):
            raise ValueError(f"{name} is one string of {len(lines)} characters; a list of lines is needed")
    if len(hypotheses) != len(references):
        raise ValueError(
            f"{len(hypotheses)} hypotheses against {len(references)} references; one reference for each is needed"
        )
    if not hypotheses:
        raise ValueError("0 hypotheses and 0 references; at least one sentence is needed for a score")


def bleu_metric(*, tokenize: str = "13a", lowercase: bool = False, effective_order: bool = False) -> BLEU:
    """The BLEU metric behind all scores of this package.

    Raises:
        ValueError: The tokenizer is unknown, needs a package that is not installed, or a model that is not at hand.
    """
    allowed = sorted(BLEU.TOKENIZERS)
    if tokenize not in allowed:
        raise ValueError(f"tokenize={tokenize!r} is no BLEU tokenizer; allowed are {', '.join(allowed)}")
    try:
        # sacrebleu takes lines that end in " ." for a mistake, which they are unless the text is meant to be tokenised.
        return BLEU(tokenize=tokenize, lowercase=lowercase, effective_order=effective_order, force=tokenize == "none")
    except (ImportError, RuntimeError) as error:
        package = _PACKAGES.get(tokenize, "sentencepiece")
        raise ValueError(
            f"tokenize={tokenize!r} needs a package that is not installed: pip install {package}"
        ) from error
    except OSError as error:
        raise ValueError(
            f"tokenize={tokenize!r} needs a model that sacrebleu downloads on first use, which failed "
            f"({' '.join(str(error).split())}); allowed without a network are 13a, intl, char, zh and none"
        ) from error


def _warn_if_unsuited(tokenize: str, target_language: str) -> None:
    code = re.split(r"[-_]", target_language.strip().lower())[0]
    suited = _SUITED_TOKENIZER.get(_LANGUAGE_ALIASES.get(code, code))
    if suited is not None and tokenize in _UNSUITED_TOKENIZERS:
        warnings.warn(
            f"BLEU with tokenize={tokenize!r} does not split {target_language!r} text into words: "
            f"use tokenize={suited!r}, or tokenize='char'",
            UserWarning,
            stacklevel=3,
        )
