"""What a result says about its own numbers: the search of the validation, the type of matrix products, and the threads
that shared a batch."""

import warnings

import pytest
import torch

from prune_lab.decoding.options import DecodingOptions


def test_c2_the_label_is_that_of_the_search_that_gave_the_number(task, train, tmp_path):
    first = train(task.model(), tmp_path)
    again = train(task.model(), tmp_path, validation_decoding=DecodingOptions(beam_size=2))
    assert (again.validation_bleu, again.validation_search) == (first.validation_bleu, "greedy")


@pytest.mark.parametrize(
    ("has_instructions", "precision", "asked", "used"),
    [
        (True, "32-true", "bfloat16", "bfloat16"),
        (False, "32-true", "bfloat16", "float32"),
        (True, "32-true", "float32", "float32"),
        (False, "bf16-mixed", "float32", "bfloat16"),
    ],
)
def test_the_type_of_products_is_told_as_it_was(
    task, train, tmp_path, monkeypatch, has_instructions, precision, asked, used
):
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"avx512_bf16": has_instructions})
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        result = train(task.model(), tmp_path, max_steps=1, trainer={"precision": precision}, products=asked)
    assert result.products == used
    told = any("products stay in float32" in str(warning.message) for warning in caught)
    assert told == (asked == "bfloat16" and not has_instructions)


@pytest.mark.parametrize(
    ("model", "more", "used"),
    [({}, {}, 2), ({"attention_dropout": 0.1}, {}, 1), ({}, {"compile_options": {"backend": "eager"}}, 1)],
)
def test_batches_are_shared_only_where_the_order_of_random_numbers_is_fixed(task, train, tmp_path, model, more, used):
    result = train(task.model(**model), tmp_path, max_steps=1, parts=2, **more)
    assert result.parts == used
