"""The best continuations are those of a plain log-softmax and sort."""

import pytest
import torch

from prune_lab.decoding.continuations import best_continuations

EOS, FORBIDDEN = 2, [0, 1]


def plain(logits: torch.Tensor, number: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    log_probs = torch.log_softmax(logits.double(), dim=1)
    end = log_probs[:, EOS].clone()
    log_probs[:, FORBIDDEN] = -torch.inf
    best, tokens = log_probs.sort(dim=1, descending=True)
    return best[:, :number], tokens[:, :number], end


@pytest.mark.parametrize("vocabulary", [5, 64, 1000, 1280, 1281, 10_007])
@pytest.mark.parametrize("number", [1, 2, 10])
def test_candidates_are_those_of_a_full_sort(vocabulary: int, number: int) -> None:
    generator = torch.Generator().manual_seed(vocabulary)
    logits = torch.randn(33, vocabulary, generator=generator) * 5
    logits[0, -3:] = 50.0 + torch.arange(3)  # the last columns, beyond whole chunks
    logits[1, : 10 * 5 : 5] = 60.0 + torch.arange(len(logits[1, : 10 * 5 : 5]))  # all in one chunk
    logits[2, FORBIDDEN] = 80.0  # nearly all of the probability is forbidden
    expected = plain(logits, number)
    found = best_continuations(logits.clone(), number, eos_id=EOS, forbidden=FORBIDDEN)
    assert torch.equal(found.tokens[:, : max(1, vocabulary - 2)], expected[1][:, : max(1, vocabulary - 2)])
    torch.testing.assert_close(found.log_probs.double(), expected[0], rtol=0, atol=2e-5)
    torch.testing.assert_close(found.log_prob_of_end.double(), expected[2], rtol=0, atol=2e-5)


def test_equal_logits_give_different_tokens() -> None:
    found = best_continuations(torch.zeros(2, 5000), 10, eos_id=EOS, forbidden=FORBIDDEN)
    for row in found.tokens.tolist():
        assert len(set(row)) == 10 and not set(row) & set(FORBIDDEN)
    torch.testing.assert_close(found.log_probs, torch.full((2, 10), 5000.0).log().neg())


def test_probabilities_too_small_for_their_type_keep_their_logarithm() -> None:
    logits = torch.zeros(1, 4000)
    logits[0, 7], logits[0, 9] = 500.0, 200.0
    found = best_continuations(logits, 3, eos_id=EOS, forbidden=FORBIDDEN)
    assert found.tokens[0, :2].tolist() == [7, 9]
    torch.testing.assert_close(found.log_probs[0], torch.tensor([0.0, -300.0, -500.0]))
    assert float(found.log_prob_of_end[0]) == -500


def test_half_precision_is_computed_in_float32() -> None:
    logits = torch.randn(3, 2000, generator=torch.Generator().manual_seed(0)).bfloat16()
    found = best_continuations(logits, 4, eos_id=EOS, forbidden=FORBIDDEN)
    assert found.log_probs.dtype == torch.float32
    torch.testing.assert_close(found.log_probs.double(), plain(logits.float(), 4)[0], rtol=0, atol=1e-5)
