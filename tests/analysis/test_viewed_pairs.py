"""What the viewer is given: the weights that a model computes, its heads, and only what can be weights."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from made_pairs import random_weights

from prune_lab import HeadMask, ModelConfig, Transformer, Translator, mask_heads, prune_heads
from prune_lab.analysis.attention_view import ViewedHead, ViewedPair, view_pairs, viewed_heads
from prune_lab.data.batching import EncodedCorpus
from prune_lab.decoding.options import DecodingOptions
from prune_lab.model.observation import Observation

REMOVED = {"encoder.0.self": [1], "encoder.1.self": [0, 2], "decoder.0.cross": [3], "decoder.1.self": [0, 1, 2, 3]}


def test_weights_are_those_of_a_padded_batch_of_all_pairs(
    text_model: Callable[..., Transformer], text_pairs: list[tuple[str, str]]
) -> None:
    model = text_model().double()
    chosen = text_pairs[:5]
    batch = EncodedCorpus.encode(model.tokenizer, chosen).batch(range(5))
    seen = Observation(need_weights=True)
    with torch.no_grad():
        model.hidden(batch.source_ids, batch.target_ids[:, :-1], seen=seen)
    viewed = view_pairs(model, chosen)
    assert len({len(pair.source) for pair in viewed}) > 1, "some rows are padded"
    for row, pair in enumerate(viewed):
        for site in model.sites():
            num_queries, num_keys = pair.lengths(site)
            expected = seen.weights[site][row, :, :num_queries, :num_keys].numpy()
            np.testing.assert_allclose(pair.weights[site], expected, rtol=0, atol=1e-7, err_msg=site)


def test_tokens_are_the_pieces_with_their_marks(
    text_model: Callable[..., Transformer], text_pairs: list[tuple[str, str]]
) -> None:
    model = text_model()
    (pair,) = view_pairs(model, text_pairs[:1])
    assert pair.source[-1] == "< /s >" and pair.target[0] == "< s >" and "< /s >" not in pair.target
    assert "".join(pair.source[:-1]).replace("\u2581", " ").strip() == text_pairs[0][0]
    assert "".join(pair.target[1:]).replace("\u2581", " ").strip() == text_pairs[0][1]
    with pytest.raises(IndexError):
        model.tokenizer.target_pieces([model.config.target_vocab_size])


def test_without_a_target_the_model_reads_its_own_translation(
    text_model: Callable[..., Transformer], text_pairs: list[tuple[str, str]]
) -> None:
    model = text_model()
    sources = [source for source, _ in text_pairs[:4]]
    viewed = view_pairs(model, [(source, None) for source in sources])
    for pair, translation in zip(viewed, Translator(model).translate(sources), strict=True):
        assert " ".join("".join(pair.target[1:]).replace("\u2581", " ").split()) == translation
    # Each position was predicted from those before it, so that reading the result gives the same tokens.
    greedy = view_pairs(model, [(sources[0], None)], decoding=DecodingOptions(beam_size=1))[0]
    ids = model.tokenizer.encode_source(sources[0])
    found = model.generate(torch.tensor([ids]), beam_size=1)[0]
    assert list(greedy.target) == model.tokenizer.target_pieces([model.config.bos_id, *found])


def test_rows_sum_to_one_and_the_decoder_reads_nothing_that_comes_later(
    text_model: Callable[..., Transformer], text_pairs: list[tuple[str, str]]
) -> None:
    model = text_model()
    for pair in view_pairs(model, text_pairs[:3]):
        for site, weights in pair.weights.items():
            assert weights.shape == (4, *pair.lengths(site))
            np.testing.assert_allclose(weights.sum(2), 1, atol=1e-5)
            if site.startswith("decoder") and site.endswith("self"):
                assert not np.triu(weights, 1).any()


def test_masked_and_removed_heads_have_no_weights(
    text_model: Callable[..., Transformer], text_pairs: list[tuple[str, str]]
) -> None:
    model = text_model()
    mask = HeadMask.removing(REMOVED, model)
    masked, pruned = (view_pairs(make(model, mask), text_pairs[:2]) for make in (mask_heads, prune_heads))
    for one, other in zip(masked, pruned, strict=True):
        assert {site: len(weights) for site, weights in one.weights.items()} == {
            site: 4 - len(REMOVED.get(site, ())) for site in model.sites()
        }
        for site in model.sites():
            np.testing.assert_allclose(one.weights[site], other.weights[site], atol=1e-5, err_msg=site)


@pytest.mark.parametrize("attention", ["grouped_query", "mixture_of_head", "talking_heads", "dynamically_composable"])
def test_every_kind_of_attention_is_seen(
    text_model: Callable[..., Transformer], text_pairs: list[tuple[str, str]], attention: str
) -> None:
    model = text_model(attention=attention)
    (pair,) = view_pairs(model, [(text_pairs[0][0], None)])
    assert {len(weights) for weights in pair.weights.values()} == {4}


def test_half_precision_weights_are_weights(
    text_model: Callable[..., Transformer], text_pairs: list[tuple[str, str]]
) -> None:
    (pair,) = view_pairs(text_model().bfloat16(), text_pairs[:1])
    assert all(weights.dtype == np.float32 for weights in pair.weights.values())


def test_a_model_is_left_as_it_was(text_model: Callable[..., Transformer], text_pairs: list[tuple[str, str]]) -> None:
    model = text_model(dropout=0.5).train()
    model.encoder.eval()
    modes = [module.training for module in model.modules()]
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    state = torch.get_rng_state()
    first, second = (view_pairs(model, [text_pairs[0], (text_pairs[1][0], None)]) for _ in range(2))
    assert [module.training for module in model.modules()] == modes
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())
    assert torch.equal(torch.get_rng_state(), state), "no dropout"
    for one, other in zip(first, second, strict=True):
        assert all(np.array_equal(one.weights[site], other.weights[site]) for site in one.weights)


def test_heads_have_the_gates_of_evaluation_and_their_roles(text_model: Callable[..., Transformer]) -> None:
    model = text_model()
    model.add_gates("hard_concrete", kinds=["encoder.self"], options={"evaluation": "fraction"})
    with torch.no_grad():
        model.gates()["encoder.0.self"].log_a[:] = torch.tensor([-9.0, 0.0, 9.0, 1.0])
    model = mask_heads(model, HeadMask.removing({"encoder.0.self": [2], "decoder.1.cross": [0, 1, 2, 3]}, model))
    heads = viewed_heads(model, {"encoder.0.self": {0: ["nsubj"], 2: ["gone"]}, "decoder.0.self": {1: ("rare word",)}})
    assert list(heads) == model.sites()
    fraction = 1 / (1 + np.exp(-1.0)) * 1.2 - 0.1
    first = heads["encoder.0.self"]
    assert [(head.number, head.roles) for head in first] == [(0, ("nsubj",)), (1, ()), (3, ())]
    assert [head.gate for head in first] == pytest.approx([0, 0.5, fraction], abs=1e-6)
    assert heads["decoder.1.cross"] == []
    assert heads["decoder.0.self"][1] == ViewedHead(1, None, ("rare word",))


def test_roles_of_unknown_heads_are_refused(text_model: Callable[..., Transformer]) -> None:
    with pytest.raises(ValueError, match=r"head 4 of encoder\.0\.self: allowed are whole numbers from 0 to 3"):
        viewed_heads(text_model(), {"encoder.0.self": {4: ["nsubj"]}})
    with pytest.raises(ValueError, match=r"site 'encoder\.9\.self' is not in this model"):
        viewed_heads(text_model(), {"encoder.9.self": {}})


@pytest.mark.parametrize(
    ("pairs", "message"),
    [
        ([], r"pairs: \[\]; allowed is a list"),
        ("a b", "pairs: 'a b'; allowed is a list"),
        (["a b"], r"pair 1: 'a b'; allowed are two lines, the second may be None"),
        ([("a", "b"), ("a", 3)], r"pair 2: \('a', 3\); allowed are two lines"),
        ([("a", "b"), (" ", None)], r"pair 2: the source ' ' is blank"),
    ],
)
def test_what_is_no_pair_of_lines_is_refused(text_model: Callable[..., Transformer], pairs: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        view_pairs(text_model(), pairs)


def test_a_model_needs_a_tokenizer_and_positions_for_a_sentence(
    text_model: Callable[..., Transformer], small_model: Callable[..., Transformer], text_pairs: list[tuple[str, str]]
) -> None:
    with pytest.raises(ValueError, match="the model has no tokenizer"):
        view_pairs(small_model(), text_pairs[:1])
    with pytest.raises(ValueError, match="model: a ModelConfig; allowed is a Transformer"):
        view_pairs(ModelConfig(source_vocab_size=9, target_vocab_size=9), text_pairs[:1])  # type: ignore[arg-type]
    other = text_model()
    other.tokenizer = type(other.tokenizer).train(text_pairs, kind="words", joint=False, vocab_size=30)
    with pytest.raises(ValueError, match=r"the tokenizer has 30 source entries, the model has \d+"):
        view_pairs(other, text_pairs[:1])
    with pytest.raises(ValueError, match="4"):
        view_pairs(text_model(positions="learned", max_positions=4), [(" ".join(["a"] * 9), "a")])


SITE = "decoder.0.cross"


def pair_of(weights: Any, site: str = SITE) -> ViewedPair:
    """Two decoder inputs, three source tokens."""
    return ViewedPair(("a", "b", "< /s >"), ("< s >", "c"), {site: weights})


def test_lengths_go_by_the_kind_of_site() -> None:
    pair = pair_of(random_weights(4, 2, 3))
    assert [pair.lengths(site) for site in ("encoder.3.self", "decoder.1.self", SITE)] == [(3, 3), (2, 2), (2, 3)]
    assert pair_of(np.zeros((0, 2, 3))).weights[SITE].shape == (0, 2, 3)
    # Rows of zeros read nothing; sums may be off as those of bfloat16 are.
    assert pair_of(np.array([[[0, 0, 0], [0.5, 0.504, 0]]])).weights[SITE].dtype == np.float32


@pytest.mark.parametrize(
    ("shape", "found"),
    [((4, 3, 2), r"\[4, 3, 2\]"), ((4, 2, 2), r"\[4, 2, 2\]"), ((2, 3), r"\[2, 3\]"), ((0, 3, 3), r"\[0, 3, 3\]")],
)
def test_weights_of_another_shape_are_refused(shape: tuple[int, ...], found: str) -> None:
    message = rf"weights of decoder\.0\.cross: shape {found}; allowed is \[heads, 2, 3\]"
    for weights in (np.zeros(shape), torch.zeros(shape)):
        with pytest.raises(ValueError, match=message):
            pair_of(weights)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -0.1, 1.1])
def test_numbers_that_are_no_weights_are_refused(value: float) -> None:
    weights = random_weights(2, 2, 3)
    weights[1, 0, 2] = value
    with pytest.raises(
        ValueError, match=rf"weights of {SITE}: {value:g} at \[1, 0, 2\]; allowed are numbers from 0 to 1"
    ):
        pair_of(weights)


@pytest.mark.parametrize("factor", [0.98, 0.5])
def test_rows_with_another_sum_are_refused(factor: float) -> None:
    weights = random_weights(2, 2, 3)
    weights[0, 1] *= factor
    with pytest.raises(ValueError, match=rf"row \[0, 1\] sums to {factor:g}; allowed are 1, within 0\.01, and 0"):
        pair_of(weights)


def test_pairs_need_tokens_and_known_sites() -> None:
    with pytest.raises(ValueError, match=r"source: \(\); allowed are tokens, at least the end mark"):
        ViewedPair((), ("< s >",), {})
    with pytest.raises(ValueError, match="target: 'abc'; allowed are tokens"):
        ViewedPair(("< /s >",), "abc", {})  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"target: \(1,\); allowed are tokens"):
        ViewedPair(("< /s >",), (1,), {})  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"encoder\.0\.cross: allowed are"):
        pair_of(random_weights(4, 2, 3), "encoder.0.cross")


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ((-1,), "head -1: allowed are whole numbers from 0"),
        ((True,), "head True: allowed are whole numbers from 0"),
        ((2, float("nan")), "gate of head 2: nan; allowed are finite numbers, or None"),
        ((2, "open"), "gate of head 2: 'open'; allowed are finite numbers"),
        ((2, 1.0, "nsubj"), "roles of head 2: 'nsubj'; allowed are strings"),
        ((2, 1.0, (1,)), r"roles of head 2: \(1,\); allowed are strings"),
    ],
)
def test_what_is_no_head_is_refused(values: tuple[Any, ...], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ViewedHead(*values)
