"""What is no batch of source sentences is refused in one line, and what is one is read as before."""

import pytest
import torch

from prune_lab.decoding.options import DecodingOptions

END = "allowed are rows that end with an end mark"


@pytest.mark.parametrize("beam_size", [1, 3])
@pytest.mark.parametrize(
    ("ids", "message"),
    [
        (
            [[0, 0, 5, 2], [5, 6, 7, 2]],
            "source_ids: row 0 has padding (0) before a token; allowed is padding at the end",
        ),
        (
            [[5, 6, 7, 2], [5, 0, 7, 2]],
            "source_ids: row 1 has padding (0) before a token; allowed is padding at the end",
        ),
        ([[5, 6, 2], [0, 0, 0]], f"source_ids: row 1 holds no token; {END}"),
        ([[0]], f"source_ids: row 0 holds no token; {END}"),
        ([[], []], f"source_ids: 2 rows of length 0; {END}"),
        ([[5, 37, 2]], "source_ids: id 37; allowed are 0 to 36"),
        ([[5, 2, 0], [5, -1, 2]], "source_ids: id -1; allowed are 0 to 36"),
    ],
)
def test_ids_that_make_no_sense(small_model, ids, message, beam_size):
    model, source_ids = small_model(), torch.tensor(ids, dtype=torch.long)
    for search in (
        lambda: model.generate(source_ids, beam_size=beam_size),
        lambda: model.search(source_ids, DecodingOptions(beam_size=beam_size)),
    ):
        with pytest.raises(ValueError) as caught:
            search()
        assert str(caught.value) == message


def test_ids_that_do(small_model, sources):
    model = small_model()
    source_ids = sources((4, 1, 6), extra_padding=2)
    found = model.generate(source_ids)
    assert model.generate(source_ids.int()) == found
    assert model.generate(source_ids[1:2, :2]) == found[1:2]
    assert model.generate(torch.zeros(0, 5, dtype=torch.long)) == []
    assert model.generate(torch.tensor([[36, 2], [2, 0]])) == [
        model.generate(torch.tensor([row]))[0] for row in ([36, 2], [2])
    ]
