"""What the measures of heads are called on the page, and what each of them is."""

from __future__ import annotations

# Weight on something, as a share of all weight; then how the weights are spread.
MASSES = ("to_self", "to_previous", "to_next", "to_begin", "to_end", "to_punctuation")
SHAPES = ("entropy", "confidence")
# Of the model and of what it puts out, and not of what is looked at.
CIRCUITS = ("qk_rank", "ov_rank", "relevance", "gate")

_WORDS = {
    "confidence": (
        "confidence",
        "the largest weight, end mark left out, as a mean over queries (Voita 2019, arXiv 1905.09418, section 4.1)",
    ),
    "entropy": (
        "entropy",
        "of the weights, over the logarithm of the number of keys: 0 for one key, 1 for all alike "
        "(Clark 2019, arXiv 1906.04341, section 3.3, has it in nats)",
    ),
    "top_1": ("top 1", "the largest weight of a query"),
    "top_2": ("top 2", "the sum of the two largest weights of a query"),
    "top_5": ("top 5", "the sum of the five largest weights of a query"),
    "to_begin": ("to begin mark", "weight on the begin mark of the target (marks: Clark 2019, section 3.2)"),
    "to_end": ("to end mark", "weight on the end mark of the source (marks: Clark 2019, section 3.2)"),
    "to_punctuation": ("to punctuation", "weight on pieces without letters and digits (Clark 2019, section 3.2)"),
    "to_self": ("to self", "weight on the query's own position (Clark 2019, section 3.1)"),
    "to_previous": ("to previous", "weight on the position before, of queries that have one (Clark 2019, section 3.1)"),
    "to_next": ("to next", "weight on the position after, of queries that have one (Clark 2019, section 3.1)"),
    "best_offset": ("best offset", "positions from the query at which most of the largest weights are, from −5 to 5"),
    "best_offset_share": ("share there", "of the largest weights (Voita 2019, section 5.1)"),
    "at_begin": ("begin mark, share", "of the largest weights, of queries further away than one position"),
    "rarest": ("rarest", "share of the largest weights on the rarest piece of the sentence (Voita 2019, section 5.3)"),
    "two_rarest": ("two rarest", "the same for the two rarest pieces"),
    "diagonal": (
        "diagonal",
        "share of the largest weights within one position of the place that is as far along the source as the "
        "predicted piece is along the target",
    ),
    "aligned": ("aligned", "share of linked target words, as they are predicted, whose largest weight is on a link"),
    "aligned_input": ("aligned, input", "the same of words as they are read, a position later"),
    "qk_rank": (
        "QK rank",
        "effective rank of W_Q W_K^T of the head (Roy and Vetterli 2007), which decides what is looked at: from 1 to "
        "the head width; where heads are mixed it may be more",
    ),
    "ov_rank": (
        "OV rank",
        "effective rank of W_V W_O of the head, which decides what is passed on: from 1 to the head width",
    ),
    "relevance": (
        "relevance",
        "share of the head in how much its site decides on the largest logit of a step, by layer-wise relevance "
        "propagation (Voita 2019, section 4.2): |R| over the sum of |R|, so that the heads of a site sum to 1; on the "
        "first sentences of the text",
    ),
    "signed_relevance": ("signed relevance", "the same with the sign of R: below 0, the head speaks against the logit"),
    "relevance_in_logits": ("relevance, logits", "R itself"),
    "gate": ("gate", "the factor on the head's output in evaluation"),
}
_OFFSET = "offset_"


def heading_of(measure: str) -> str:
    """The name of a measure in a table."""
    return _WORDS[measure][0] if measure in _WORDS else measure.replace("_", " ")


def meaning_of(measure: str) -> str | None:
    """What a measure is; None for those that are not known here."""
    return _WORDS[measure][1] if measure in _WORDS else None


def is_of_an_offset(measure: str) -> bool:
    """Whether it is one of the eleven shares at single offsets, which the file has and the page has not."""
    return measure.startswith(_OFFSET)
