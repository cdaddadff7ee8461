"""The configuration of a model: plain JSON in and out, and one line for each thing that can be wrong."""

import json

import pytest

from prune_lab.attention.registry import ATTENTION
from prune_lab.model.config import FORMAT_VERSION, ModelConfig

SMALL = {"source_vocab_size": 40, "target_vocab_size": 50, "d_model": 32, "encoder_heads": 4, "decoder_heads": 2}
STACKS = {"encoder_layers": 1, "decoder_layers": 2}


def config(**settings):
    return ModelConfig(**{**SMALL, **STACKS, **settings})


def refusal(**settings):
    with pytest.raises(ValueError) as caught:
        config(**settings)
    message = str(caught.value)
    assert "\n" not in message
    return message


def test_goes_through_json_and_back():
    original = config(
        heads={"decoder.1.cross": [1]},
        gates={"name": "hard_concrete", "kinds": ["encoder.self"], "options": {"temperature": 0.33}},
        attention={"name": "multi_head", "options": {}},
        dropout=0.25,
        positions="learned",
    )
    values = json.loads(json.dumps(original.to_dict()))
    assert values["format_version"] == FORMAT_VERSION
    assert ModelConfig.from_dict(values) == original
    assert values["decoder_head_dim"] == 16 and values["encoder_head_dim"] == 8


def test_attention_is_kept_with_its_options_however_it_was_written():
    plain = {"name": "multi_head", "options": {}}
    for written in ("multi_head", {"name": "multi_head"}, plain):
        assert config(attention=written).attention == plain
        assert ModelConfig.from_dict({**config().to_dict(), "attention": written}) == config()
    kinds = ("encoder.self", "decoder.self", "decoder.cross")
    by_kind = config(attention=dict.fromkeys(kinds, "multi_head"))
    assert by_kind.attention == dict.fromkeys(kinds, plain)
    assert ModelConfig.from_dict(json.loads(json.dumps(by_kind.to_dict()))) == by_kind


def test_what_to_dict_gives_is_independent():
    original = config()
    original.to_dict()["heads"]["encoder.0.self"].clear()
    assert original.heads["encoder.0.self"] == [0, 1, 2, 3]


def test_the_head_table_is_complete_and_ordered():
    heads = config(heads={"decoder.0.self": [], "encoder.0.self": (1, 3)}).heads
    assert heads == {
        "encoder.0.self": [1, 3],
        "decoder.0.self": [],
        "decoder.0.cross": [0, 1],
        "decoder.1.self": [0, 1],
        "decoder.1.cross": [0, 1],
    }
    assert list(heads) == config().sites()
    assert config().original_heads() == {site: 4 if site.startswith("encoder") else 2 for site in heads}


def test_head_widths_belong_to_the_stack():
    assert config().head_dim("encoder.0.self") == 8 and config().head_dim("decoder.1.cross") == 16
    assert config(encoder_heads=5, encoder_head_dim=6).head_dim("encoder.0.self") == 6


def test_a_width_that_the_heads_do_not_divide_is_refused():
    message = refusal(encoder_heads=5)
    told = "model.d_model: 32 is not divisible by model.encoder_heads: 5"
    assert message == f"{told}; choose a multiple, or set model.encoder_head_dim"
    assert "model.decoder_heads: 3" in refusal(decoder_heads=3)


@pytest.mark.parametrize(
    "name", ["source_vocab_size", "d_model", "encoder_layers", "decoder_heads", "d_feed_forward", "max_positions"]
)
@pytest.mark.parametrize("value", [0, -1, 1.5, "8", None, True])
def test_sizes_are_whole_numbers(name, value):
    assert refusal(**{name: value}) == f"model.{name}: {value!r}; allowed are whole numbers from 1"


@pytest.mark.parametrize("name", ["target_vocab_size", "d_model", "decoder_layers", "encoder_heads", "max_positions"])
def test_sizes_that_no_machine_could_hold_are_refused_at_once(name):
    assert refusal(**{name: 10**11}).startswith(f"model.{name}: 100000000000; allowed are numbers up to 1")
    assert refusal(encoder_head_dim=10**11) == "model.encoder_head_dim: 100000000000; allowed are whole numbers from 1"


@pytest.mark.parametrize("values", [None, 3, "config.json", ["d_model"], [("d_model", 32)]], ids=str)
def test_a_configuration_is_read_from_a_mapping(values):
    told = rf"^model: a {type(values).__name__}; allowed is a mapping, as `to_dict` gives$"
    with pytest.raises(ValueError, match=told):
        ModelConfig.from_dict(values)
    with pytest.raises(ValueError, match="^model: unknown key 3; allowed are source_vocab_size"):
        ModelConfig.from_dict({**SMALL, 3: 4})


@pytest.mark.parametrize("name", ["dropout", "attention_dropout"])
@pytest.mark.parametrize("value", [-0.1, 1, 1.0, "0.1", None, float("nan"), True])
def test_rates_are_below_1(name, value):
    assert refusal(**{name: value}) == f"model.{name}: {value!r}; allowed are numbers from 0 to below 1"


@pytest.mark.parametrize("name", ["share_embeddings", "tie_output", "projection_bias", "norm_bias"])
@pytest.mark.parametrize("value", ["false", 1, None])
def test_switches_are_true_or_false(name, value):
    assert refusal(**{name: value}) == f"model.{name}: {value!r}; allowed are true and false"


@pytest.mark.parametrize(
    ("name", "value", "allowed"),
    [
        ("activation", "tanh", "relu, gelu, swiglu"),
        ("norm", "none", "pre, post"),
        ("positions", "alibi", "sinusoidal, learned, rotary"),
    ],
)
def test_choices_are_named(name, value, allowed):
    assert refusal(**{name: value}) == f"model.{name}: {value!r}; allowed are {allowed}"


def test_an_unknown_attention_is_refused_with_the_known_ones():
    assert (
        refusal(attention="multihead")
        == f"attention: 'multihead' is unknown; allowed are {', '.join(sorted(ATTENTION))}"
    )
    assert "'no_such' is unknown" in refusal(
        attention={"encoder.self": "multi_head", "decoder.self": "multi_head", "decoder.cross": {"name": "no_such"}}
    )


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"share_embeddings": True},
            "model.share_embeddings: true with 40 source and 50 target entries; allowed with one joint vocabulary only",
        ),
        ({"pad_id": 40}, "model: pad, bos, eos and unk ids [40, 1, 2, 3]; allowed are four different ids from 0 to 39"),
        ({"bos_id": 0}, "model: pad, bos, eos and unk ids [0, 0, 2, 3]; allowed are four different ids from 0 to 39"),
        (
            {"unk_id": "3"},
            "model: pad, bos, eos and unk ids [0, 1, 2, '3']; allowed are four different ids from 0 to 39",
        ),
        ({"encoder_head_dim": 0}, "model.encoder_head_dim: 0; allowed are whole numbers from 1"),
        ({"decoder_head_dim": "8"}, "model.decoder_head_dim: '8'; allowed are whole numbers from 1"),
        (
            {"positions": "rotary", "encoder_head_dim": 5},
            "model.encoder_head_dim: 5; rotary positions need an even head width",
        ),
        (
            {"d_model": 5, "encoder_heads": 5, "decoder_heads": 1},
            "model.d_model: 5; sinusoidal positions need an even width",
        ),
        ({"heads": [0, 1]}, "model.heads: [0, 1]; allowed is a mapping from site to the numbers of its heads"),
        (
            {"heads": {"encoder.3.self": []}},
            "model.heads: site 'encoder.3.self' is not in this model; it has encoder.0.self, decoder.0.self",
        ),
        (
            {"heads": {"encoder.0.self": [4]}},
            "model.heads of encoder.0.self: [4]; allowed are ascending numbers from 0 to 3",
        ),
        (
            {"heads": {"encoder.0.self": [1, 0]}},
            "model.heads of encoder.0.self: [1, 0]; allowed are ascending numbers from 0 to 3",
        ),
        (
            {"heads": {"encoder.0.self": [0, 0]}},
            "model.heads of encoder.0.self: [0, 0]; allowed are ascending numbers from 0 to 3",
        ),
        (
            {"heads": {"encoder.0.self": 3}},
            "model.heads of encoder.0.self: 3; allowed are ascending numbers from 0 to 3",
        ),
        (
            {"heads": {"encoder.0.self": ["a", 1]}},
            "model.heads of encoder.0.self: ['a', 1]; allowed are ascending numbers from 0 to 3",
        ),
        (
            {"gates": "hard_concrete"},
            "model.gates: 'hard_concrete'; allowed are null and a mapping with the keys name, kinds and options",
        ),
        (
            {"gates": {"kinds": []}},
            "model.gates: {'kinds': []}; allowed are null and a mapping with the keys name, kinds and options",
        ),
        (
            {"gates": {"name": "hard_concrete", "kinds": ["cross"]}},
            "model.gates.kinds: ['cross']; allowed are lists of encoder.self, decoder.self",
        ),
        ({"gates": {"name": "hard_concrete", "options": 3}}, "model.gates.options: 3; allowed is a mapping"),
        ({"gates": {"name": "nope"}}, "gates: 'nope' is unknown; allowed are fixed, hard_concrete"),
        (
            {"gates": {"name": "fixed", "options": {"beta": 1}}},
            "gates.options.beta: unknown for fixed; allowed are value",
        ),
        ({"gates": {"name": None}}, "model.gates.name: None; allowed is the name of a kind of gate"),
    ],
    ids=str,
)
def test_the_message_names_key_value_and_what_is_allowed(settings, message):
    assert refusal(**settings).startswith(message)


def test_gates_may_leave_out_kinds_and_options():
    assert config(gates={"name": "fixed"}).gates == {
        "name": "fixed",
        "kinds": ["encoder.self", "decoder.self", "decoder.cross"],
        "options": {},
    }


def test_unknown_and_missing_keys_and_future_formats_are_refused():
    with pytest.raises(
        ValueError, match="model: unknown key 'd_modle'; allowed are source_vocab_size, target_vocab_size, d_model"
    ):
        ModelConfig.from_dict({**SMALL, "d_modle": 32})
    with pytest.raises(ValueError, match="model: key 'target_vocab_size' is missing"):
        ModelConfig.from_dict({"source_vocab_size": 40})
    with pytest.raises(ValueError, match="format_version: 99; this version of prune_lab reads 1"):
        ModelConfig.from_dict({**SMALL, "format_version": 99})


def test_settings_have_names():
    with pytest.raises(TypeError):
        ModelConfig(40, 50)
