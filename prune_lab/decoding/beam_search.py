"""Beam search over a batch, with all bookkeeping in tensors.

Shapes: N sentences still unfinished, E hypotheses a sentence, V target vocabulary, T tokens so far.
"""

from __future__ import annotations

import torch
from torch import Tensor

from prune_lab.decoding.continuations import best_continuations, refuse_nan
from prune_lab.decoding.protocol import DecodingState
from prune_lab.decoding.result import Hypotheses


def beam_search(
    state: DecodingState,
    *,
    beam_size: int,
    length_penalty: float,
    max_lengths: Tensor,
    bos_id: int,
    eos_id: int,
    forbidden: list[int],
) -> Hypotheses:
    """Keep the `beam_size` best unfinished hypotheses of each sentence and return its best finished one.

    At each step the 2E best continuations are taken; those among the first E that end are finished and ranked by
    log P / ((5 + n) / 6)^alpha with n counting the end mark (Wu 2016, arXiv 1609.08144, eq. 14), the first E others
    go on. A sentence is done when E of its hypotheses are finished, or when no unfinished one can reach the best
    finished score within the maximum length. After `max_lengths` tokens the end mark is the only continuation.

    Args:
        state: the batch, at its start.
        beam_size: E.
        length_penalty: alpha.
        max_lengths: tokens allowed before the end mark [N].
        bos_id: begin mark.
        eos_id: end mark.
        forbidden: ids that are never chosen.

    Returns:
        the best hypothesis of each sentence.

    Raises:
        ValueError: logits that are NaN or infinite.
    """
    search = _Search(state, beam_size, length_penalty, max_lengths, eos_id, forbidden)
    last = torch.full((len(max_lengths), 1), bos_id, device=max_lengths.device)
    # Every sentence ends at its limit; the bound on the length is for logits that are not numbers, which end nowhere.
    while len(search.alive) and search.length <= search.longest:
        last = search.advance(state.step(last))
        search.drop_finished()
        last = last[search.going] if len(search.going) < len(last) else last
    refuse_nan(search.sum_of_best)
    return Hypotheses.from_tensors(search.best_tokens, search.best_lengths, search.best_scores)


class _Search:
    """The hypotheses of a batch and the best finished one of each sentence."""

    def __init__(
        self,
        state: DecodingState,
        beam_size: int,
        length_penalty: float,
        max_lengths: Tensor,
        eos_id: int,
        forbidden: list[int],
    ) -> None:
        device, num = max_lengths.device, len(max_lengths)
        self.state, self.beam_size, self.length_penalty = state, beam_size, length_penalty
        self.eos_id, self.forbidden = eos_id, forbidden
        self.longest = int(max_lengths.max())
        self.best_tokens = torch.full((num, self.longest + 1), eos_id, device=device)
        self.best_lengths = torch.zeros(num, dtype=torch.long, device=device)
        self.best_scores = torch.full((num,), -torch.inf, device=device)
        # Over all steps, to be looked at once: NaN in any of them stays.
        self.sum_of_best = torch.zeros((), device=device)
        # Of the sentences still searched (alive), all by row:
        self.alive = torch.arange(num, device=device)
        self.max_lengths = max_lengths
        self.num_finished = torch.zeros(num, dtype=torch.long, device=device)
        self.scores = torch.zeros(num, 1, device=device)
        self.tokens = torch.full((num, 1, self.longest + 1), eos_id, device=device)
        self.length = 0
        self.going = self.alive

    def penalty(self, num_tokens: Tensor | int) -> Tensor | float:
        """((5 + n) / 6)^alpha."""
        return ((5 + num_tokens) / 6) ** self.length_penalty

    def advance(self, logits: Tensor) -> Tensor:
        """Take one step with the logits [N, E, V]; returns the newest tokens [N, E']."""
        totals, tokens = self._continuations(logits)
        num_candidates = min(2 * self.beam_size, totals.shape[1] * totals.shape[2])
        parents = torch.arange(totals.shape[1], device=totals.device)[:, None].expand_as(totals[0]).flatten()
        totals, flat = totals.flatten(1).topk(num_candidates, dim=1)
        parents, chosen = parents[flat], tokens.flatten(1).gather(1, flat)
        ends = (chosen == self.eos_id) & (totals > -torch.inf)
        self._finish(totals, parents, ends)

        # The first E candidates that do not end go on, in order of score.
        totals = totals.masked_fill(chosen == self.eos_id, -torch.inf)
        width = min(self.beam_size, num_candidates)
        self.scores, order = totals.topk(width, dim=1)
        parents, chosen = parents.gather(1, order), chosen.gather(1, order)
        self.tokens = self.tokens.gather(1, parents[:, :, None].expand(-1, -1, self.tokens.shape[2]))
        self.tokens[:, :, self.length] = chosen
        self.length += 1
        self.state.reorder(parents)
        return chosen

    def _continuations(self, logits: Tensor) -> tuple[Tensor, Tensor]:
        """Summed log probabilities and tokens of the best continuations of each hypothesis [N, E, C]."""
        num_rows, num_beams, _ = logits.shape
        found = best_continuations(
            logits.flatten(0, 1), 2 * self.beam_size, eos_id=self.eos_id, forbidden=self.forbidden
        )
        self.sum_of_best += found.log_probs[:, 0].sum()
        log_probs, tokens, end = (part.unflatten(0, (num_rows, num_beams)) for part in found)
        at_limit = (self.max_lengths == self.length)[:, None]
        first = torch.arange(log_probs.shape[2], device=logits.device) == 0
        only_end = torch.where(first, end[:, :, None], -torch.inf)
        log_probs = torch.where(at_limit[:, :, None], only_end, log_probs)
        tokens = tokens.masked_fill(at_limit[:, :, None] & first, self.eos_id)
        return log_probs + self.scores[:, :, None], tokens

    def _finish(self, totals: Tensor, parents: Tensor, ends: Tensor) -> None:
        """Rank the hypotheses that end now, among the first E candidates, against the best one of their sentence."""
        ends = ends & (torch.arange(ends.shape[1], device=ends.device) < self.beam_size)
        ranked = (totals / self.penalty(self.length + 1)).masked_fill(~ends, -torch.inf)
        score, candidate = ranked.max(dim=1)
        better = (score > self.best_scores[self.alive]).nonzero()[:, 0]
        rows = self.alive[better]
        self.best_scores[rows] = score[better]
        self.best_lengths[rows] = self.length
        self.best_tokens[rows] = self.tokens[better, parents[better, candidate[better]]]
        self.num_finished += ends.sum(dim=1)

    def drop_finished(self) -> None:
        """Let the sentences that are done leave the batch; `going` says which rows stayed."""
        # The longest hypothesis has the largest penalty: no sum of log probabilities can turn into a better score.
        reachable = self.scores[:, 0] / self.penalty(self.max_lengths + 1)
        done = (self.num_finished >= self.beam_size) | (reachable <= self.best_scores[self.alive])
        self.going = (~done).nonzero()[:, 0]
        if len(self.going) < len(self.alive):
            self.alive = self.alive[self.going]
            self.max_lengths, self.num_finished = self.max_lengths[self.going], self.num_finished[self.going]
            self.scores, self.tokens = self.scores[self.going], self.tokens[self.going]
            if len(self.going):
                self.state.select(self.going)
