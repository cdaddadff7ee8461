"""An evaluation is what the sacrebleu command line finds, and its record says all that it was measured with."""

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from prune_lab import HeadMask, mask_heads, prune_heads
from prune_lab.analysis.cost import attention_cost
from prune_lab.data.corpus import Corpus, read_lines
from prune_lab.data.splits import Splits
from prune_lab.decoding.options import DecodingOptions
from prune_lab.evaluation.evaluate import evaluate, model_facts, record_export
from prune_lab.evaluation.generate import translate_lines
from prune_lab.evaluation.outcome import Evaluation
from prune_lab.evaluation.scoring import score
from prune_lab.model.storage import WEIGHTS, weights_hash
from prune_lab.model.transformer import Transformer
from prune_lab.results.curves import panels
from prune_lab.results.files import hash_lines
from prune_lab.results.record import Record

BEAM = DecodingOptions(beam_size=2, max_length_a=6, max_length_b=0)
GREEDY = DecodingOptions(beam_size=1, max_length_a=6, max_length_b=0)
SPEED = {"num_lines": 2, "repeats": 2, "warm_up": 0}
Build = Callable[..., Transformer]
Pairs = list[tuple[str, str]]


@pytest.fixture(scope="module")
def corpus(pairs: Pairs) -> Corpus:
    return Corpus(pairs=[*pairs[:6], ("", "ein Rest")], name="data.test", origin="memory")


def splits_of(**settings: Any) -> Splits:
    values = {"source_language": "en", "target_language": "de", "score_tokenize": "13a", "lowercase": False}
    return Splits(**{"name": "made_up", "sources": {}, **values, **settings})


def run(model: Transformer, corpus: Corpus, options: DecodingOptions = BEAM, **settings: Any) -> Evaluation:
    return evaluate(model, corpus, options, **{"splits": splits_of(), **settings})


def test_hypotheses_and_scores(text_model: Build, corpus: Corpus, tmp_path: Path) -> None:
    model = text_model()
    found = run(model, corpus, directory=tmp_path)
    assert found.hypotheses == translate_lines(model, corpus.sources, BEAM).lines
    assert found.hypotheses[-1] == ""
    assert (tmp_path / "hypotheses.txt").read_text(encoding="utf-8") == "".join(f"{x}\n" for x in found.hypotheses)
    assert read_lines(tmp_path / "hypotheses.txt") == found.hypotheses
    assert found.scores == score(found.hypotheses, corpus.targets, tokenize="13a", target_language="de")
    assert found.test_set == {"name": "made_up test", "references_hash": hash_lines(corpus.targets)}
    assert found.speed is None
    assert set(found.seconds) == {"decoding", "scoring"}


def test_nothing_is_written_without_a_directory(
    text_model: Build, corpus: Corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    run(text_model(), corpus)
    assert list(tmp_path.iterdir()) == []


def test_c4_all_settings_of_decoding_are_in_the_record(text_model: Build, corpus: Corpus) -> None:
    options = DecodingOptions(beam_size=3, length_penalty=0.8, max_length_a=4, max_length_b=0.5)
    record = run(text_model(), corpus, options, max_sentences=5).to_record(method="unpruned", seed=1)
    assert record.decoding_kind == "beam"
    expected = {"beam_size": 3, "length_penalty": 0.8, "max_length_a": 4, "max_length_b": 0.5, "batch_size": 5}
    assert expected.items() <= record.decoding.items()
    assert "((5 + n) / 6)^alpha" in record.decoding["length_penalty_formula"]
    assert record.decoding["stop_rule"] and record.decoding["max_length_formula"]


def test_c2_greedy_and_beam_never_share_a_curve(text_model: Build, corpus: Corpus) -> None:
    model = text_model()
    records = [run(model, corpus, options).to_record(method="unpruned", seed=1) for options in (GREEDY, BEAM)]
    assert [record.decoding_kind for record in records] == ["greedy", "beam"]
    assert len(panels(records)) == 2


def test_c9_rows_hold_the_full_signature_and_unlike_ones_never_share_a_curve(text_model: Build, corpus: Corpus) -> None:
    model = text_model()
    kinds = [splits_of(), splits_of(score_tokenize="none"), splits_of(lowercase=True)]
    records = [run(model, corpus, splits=splits).to_record(method="unpruned", seed=1) for splits in kinds]
    for record, case, tokenize in zip(records, ("mixed", "mixed", "lc"), ("13a", "none", "13a"), strict=True):
        assert record.bleu_signature is not None and record.chrf_signature is not None
        assert record.bleu_signature.startswith(f"nrefs:1|case:{case}|eff:no|tok:{tokenize}|smooth:exp|version:")
    assert len(panels(records)) == 3
    again = run(model, corpus).to_record(method="unpruned", seed=2)
    assert len(panels([records[0], again])) == 1


@pytest.mark.parametrize("language", ["zh", "ja", "ko"])
def test_c9_a_target_without_spaces_warns(text_model: Build, corpus: Corpus, language: str) -> None:
    with pytest.warns(UserWarning, match="does not split"):
        run(text_model(), corpus, splits=splits_of(target_language=language))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        run(text_model(), corpus, splits=splits_of(target_language=language, score_tokenize="char"))


def test_a2_only_what_is_smaller_has_a_size_and_a_speed(text_model: Build, corpus: Corpus, tmp_path: Path) -> None:
    model = text_model()
    mask = HeadMask.removing({"encoder.0.self": [1], "decoder.1.cross": [0, 1, 2]}, model)
    states = {"unpruned": model, "masked": mask_heads(model, mask), "pruned": prune_heads(model, mask)}
    found, sizes = {}, {}
    for state, each in states.items():
        each.save_pretrained(tmp_path / state)
        found[state] = run(each, corpus, weights=tmp_path / state / WEIGHTS, speed=SPEED)
        sizes[state] = (tmp_path / state / WEIGHTS).stat().st_size
        record = found[state].to_record(method="gradient", seed=1)
        assert record.state == state
        assert record.remaining_heads == (24 if state == "unpruned" else 20)
        assert record.heads == each.heads() and record.total_heads == 24
    masked, pruned, unpruned = (found[state] for state in ("masked", "pruned", "unpruned"))
    assert not {"parameters", "file_bytes", "attention"} & set(masked.model) and masked.speed is None
    assert unpruned.model["parameters"] - pruned.model["parameters"] == 4 * (4 * 32 * 8 + 3 * 8)
    assert pruned.model["file_bytes"] == sizes["pruned"] < sizes["unpruned"] == unpruned.model["file_bytes"]
    assert pruned.speed is not None and pruned.speed["num_sentences"] == 2
    assert masked.hypotheses == pruned.hypotheses
    assert masked.model["heads"] == pruned.model["heads"]


def test_records_say_what_attention_there_is_and_what_it_costs(text_model: Build, corpus: Corpus) -> None:
    by_kind = {"encoder.self": "multi_head", "decoder.self": "multi_head", "decoder.cross": "grouped_query"}
    for attention in ({"name": "grouped_query", "options": {"n_kv": 2}}, by_kind):
        model = text_model(attention=attention, encoder_head_dim=6)
        pruned = prune_heads(model, HeadMask.removing({"decoder.0.cross": [0, 1]}, model))
        for each in (model, pruned):
            found = run(each, corpus).to_record(method="gradient", seed=1).attention
            assert found is not None and found["variant"] == model.config.attention
            assert found["head_dim"] == {"encoder": 6, "decoder": 8}
            lengths = {"source_length": found["source_length"], "target_length": found["target_length"]}
            assert lengths == {"source_length": 25, "target_length": 25}
            assert attention_cost(each, **lengths).items() <= found.items()


def test_b2_closed_gates_count_as_gone(text_model: Build, corpus: Corpus) -> None:
    model = text_model()
    model.add_gates("hard_concrete", options={"init": -3.0})
    facts = model_facts(model)
    assert (facts["state"], facts["remaining_heads"], facts["total_heads"]) == ("masked", 0, 24)
    assert all(heads == [] for heads in facts["heads"].values())
    first, second = run(model, corpus), run(model, corpus)
    assert first.hypotheses == second.hypotheses


def test_an_export_leaves_a_record(text_model: Build, corpus: Corpus, tmp_path: Path) -> None:
    model = text_model()
    model.save_pretrained(tmp_path / "run" / "export")
    baseline = translate_lines(model, corpus.sources, BEAM).lines
    record = record_export(
        tmp_path / "run" / "export",
        tmp_path / "run",
        corpus=corpus,
        splits=splits_of(),
        options=BEAM,
        method="unpruned",
        seed=3,
        speed=SPEED,
        baseline=baseline,
        label="base",
        settings={"updates": 7},
        seconds={"training": 2.5},
        config={"data": {"name": "made_up"}},
    )
    assert Record.load(tmp_path / "run") == record
    assert (record.export, record.hypotheses, record.label) == ("export", "hypotheses.txt", "base")
    assert record.path_of("export") == tmp_path / "run" / "export"
    assert read_lines(record.path_of("hypotheses")) == baseline  # type: ignore[arg-type]
    assert record.base_hash == weights_hash(model)
    assert record.seconds["training"] == 2.5 and set(record.seconds) == {"training", "decoding", "scoring", "speed"}
    assert record.significance is not None and record.significance["difference"] == 0
    assert record.significance["randomisation"]["p_value"] == 1
    assert record.speed is not None and record.speed["spread"][0] <= record.speed["sentences_per_second"]
    assert {"torch", "sacrebleu", "prune_lab", "python"} <= set(record.versions)
    assert record.hardware and record.started <= record.finished


def test_a_record_of_a_pruned_export_takes_the_hash_of_its_base(
    text_model: Build, corpus: Corpus, tmp_path: Path
) -> None:
    model = text_model()
    pruned = prune_heads(model, HeadMask.removing({"encoder.0.self": [0]}, model))
    pruned.save_pretrained(tmp_path / "export")
    values: dict[str, Any] = {"corpus": corpus, "splits": splits_of(), "options": GREEDY, "method": "random", "seed": 1}
    assert record_export(tmp_path / "export", tmp_path, **values).base_hash is None
    model.save_pretrained(tmp_path / "unpruned")
    found = record_export(
        tmp_path / "export", tmp_path, base_hash=weights_hash(model), unpruned=tmp_path / "unpruned", **values
    )
    assert (found.base_hash, found.weights_hash) == (weights_hash(model), weights_hash(pruned))
    assert found.speed is None
    measured = {**values, "speed": {**SPEED, "repeats": 5}}
    again = record_export(tmp_path / "export", tmp_path, unpruned=tmp_path / "unpruned", **measured)
    assert again.speed is not None and again.speed["ratio"]["low"] <= again.speed["ratio"]["high"]
