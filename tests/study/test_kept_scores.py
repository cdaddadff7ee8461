"""Scores that are kept: read back as they were where all is the same they depend on, made again otherwise."""

import copy
import dataclasses
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from test_run import Killed, StopAt, results_of

from prune_lab.data.corpus import Corpus
from prune_lab.heads import HeadScores
from prune_lab.model.transformer import Transformer
from prune_lab.pruning.criteria.contract import Criterion
from prune_lab.pruning.criteria.gradient import Gradient
from prune_lab.pruning.criteria.registry import build_criterion, criteria, score_heads
from prune_lab.study.on_text import score_on_text
from prune_lab.study.run import run_study
from prune_lab.study.scoring_text import ScoringText
from prune_lab.study.setup import StudySetup

CHEAP: dict[str, dict[str, Any]] = {"shapley": {"max_permutations": 4, "check_every": 2, "tolerance": 0.1}}
Make = Callable[..., StudySetup]


@pytest.fixture(scope="module")
def setup(make_setup: Make) -> StudySetup:
    return make_setup({"gradient": {"criterion": "gradient"}}, scoring_sentences=12)


@pytest.fixture(scope="module")
def text(setup: StudySetup) -> ScoringText:
    data = setup.training_data().train
    return setup.scoring_text(setup.plan.points()[0], lambda: data)


@pytest.fixture
def model(setup: StudySetup) -> Transformer:
    return setup.build_model(1).eval()


@pytest.fixture
def scored(monkeypatch: pytest.MonkeyPatch) -> list[HeadScores]:
    """All that is scored from now on."""
    found: list[HeadScores] = []

    def noted(*arguments: Any) -> HeadScores:
        found.append(score_heads(*arguments))
        return found[-1]

    monkeypatch.setattr("prune_lab.study.on_text.score_heads", noted)
    return found


def kept(model: Transformer, criterion: Criterion, text: ScoringText, path: Path) -> tuple[HeadScores, float]:
    return score_on_text(model, criterion, text, file=lambda _: path, label="x")


@pytest.mark.parametrize("name", criteria())
def test_scores_are_read_back_as_they_were(
    model: Transformer, text: ScoringText, tmp_path: Path, scored: list[HeadScores], name: str
) -> None:
    if criteria()[name].needs_gates:
        model.add_gates("hard_concrete")
    criterion = build_criterion(name, **CHEAP.get(name, {}))
    first, again = (kept(model, criterion, text, tmp_path / "scores.json") for _ in range(2))
    assert first == again and len(scored) == 1 and first[1] > 0
    (fresh,) = scored
    assert (first[0].values, first[0].pairs, first[0].criterion) == (fresh.values, fresh.pairs, fresh.criterion)
    assert first[0].settings == json.loads(json.dumps(fresh.settings))
    assert (again[0].pairs is not None) is criterion.scores_pairs
    assert ("standard_errors" in again[0].settings.get("estimate", {})) is (name == "shapley")


class Rewritten(Gradient):
    """Gradient importance whose file has been changed."""


def shifted(model: Transformer) -> Transformer:
    other = model.copy()
    other.encoder.layers[0].feed_forward.inner.bias.data[0] += 1e-3  # type: ignore[union-attr, index, operator]
    return other


def other_text(text: ScoringText) -> ScoringText:
    splits = copy.copy(text.splits)
    first, *others = splits.train.pairs
    splits.__dict__["train"] = Corpus(pairs=[*others, first], name="data.train", origin="elsewhere")
    return dataclasses.replace(text, splits=splits)


@pytest.mark.parametrize(
    "change",
    [
        lambda model, _, text: (model, build_criterion("gradient", normalise=True), text),
        lambda model, _, text: (model, build_criterion("fisher"), text),
        lambda model, criterion, text: (model, criterion, dataclasses.replace(text, seed=2)),
        lambda model, criterion, text: (model, criterion, dataclasses.replace(text, num_sentences=13)),
        lambda model, criterion, text: (model, criterion, dataclasses.replace(text, max_tokens=300)),
        lambda model, criterion, text: (model, criterion, other_text(text)),
        lambda model, criterion, text: (shifted(model), criterion, text),
        lambda model, criterion, text: (model, Rewritten(), text),
    ],
    ids=["option", "criterion", "seed", "sentences", "tokens", "text", "weights", "code"],
)
def test_other_scores_are_made_again(
    model: Transformer, text: ScoringText, tmp_path: Path, scored: list[HeadScores], change: Callable[..., Any]
) -> None:
    names: list[str] = []

    def file(name: str) -> Path:
        names.append(name)
        return tmp_path / "scores.json"

    criterion = build_criterion("gradient")
    for given in ((model, criterion, text), change(model, criterion, text)):
        score_on_text(*given, file=file, label="x")
    assert len(scored) == len(set(names)) == 2


def test_bleu_scored_in_another_way_is_made_again(
    model: Transformer, text: ScoringText, tmp_path: Path, scored: list[HeadScores]
) -> None:
    for tokenize, lowercase in (("none", False), ("none", False), ("char", False), ("char", True)):
        criterion = build_criterion("ablation", measure="bleu").with_scoring(tokenize=tokenize, lowercase=lowercase)
        kept(model, criterion, dataclasses.replace(text, num_sentences=2), tmp_path / "scores.json")
    assert [(each.settings["tokenize"], each.settings["lowercase"]) for each in scored] == [
        ("none", False), ("char", False), ("char", True),
    ]  # fmt: skip


def test_other_options_of_gates_with_the_same_weights_are_scored_again(
    model: Transformer, text: ScoringText, tmp_path: Path, scored: list[HeadScores]
) -> None:
    for temperature in (0.5, 0.9):
        gated = model.copy()
        gated.add_gates("hard_concrete", options={"temperature": temperature, "init": 1.0})
        kept(gated, build_criterion("gate"), text, tmp_path / "scores.json")
    first, second = scored
    assert first.values != second.values


def test_criteria_that_read_no_text_do_not_depend_on_it(
    model: Transformer, text: ScoringText, tmp_path: Path, scored: list[HeadScores]
) -> None:
    for seed in (1, 2):
        kept(model, build_criterion("magnitude"), dataclasses.replace(text, seed=seed), tmp_path / "scores.json")
    assert len(scored) == 1


@pytest.mark.parametrize(
    "damage",
    [
        lambda content: json.dumps(content)[:200],
        lambda content: json.dumps({key: value for key, value in content.items() if key != "basis"}),
        lambda content: json.dumps({key: value for key, value in content.items() if key != "seconds"}),
        lambda content: json.dumps({**content, "scores": {"encoder.0.self": {"0": None}}}),
        lambda content: json.dumps({**content, "pairs": {"encoder.0.self": {"0": 1.0}}}),
        lambda content: "[]",
    ],
    ids=["cut short", "of an earlier release", "no seconds", "no number", "no pairs", "a list"],
)
def test_files_that_are_damaged_or_old_are_replaced(
    model: Transformer, text: ScoringText, tmp_path: Path, scored: list[HeadScores], damage: Callable[..., str]
) -> None:
    path, criterion = tmp_path / "scores.json", build_criterion("fisher")
    first = kept(model, criterion, text, path)
    path.write_text(damage(json.loads(path.read_text())))
    second, third = (kept(model, criterion, text, path) for _ in range(2))
    assert len(scored) == 2 and second == third and second[0] == first[0]


@pytest.mark.usefixtures("without_report")
def test_a_study_that_was_killed_scores_nothing_again(
    make_setup: Make, based: Path, tmp_path: Path, scored: list[HeadScores]
) -> None:
    methods = {
        "shapley": {"criterion": "shapley", "options": CHEAP["shapley"]},
        "fisher": {"criterion": "fisher", "rearrange": True, "recovery": True},
        "again": {"criterion": "fisher"},
        "steps": {"criterion": "fisher", "schedule": "iterative", "budgets": [4]},
    }
    whole, killed = (shutil.copytree(based, tmp_path / name) for name in ("whole", "killed"))
    run_study(make_setup(methods, scoring_sentences=12), whole)
    assert [each.num_heads for each in scored] == [6, 6, 5], "shapley, fisher for all methods, and the second step"
    with pytest.raises(Killed):
        run_study(make_setup(methods, scoring_sentences=12, callbacks=lambda: [StopAt(3, 6)]), killed)
    shutil.rmtree(killed / "points" / "shapley-2heads-seed1")
    scored.clear()
    run_study(make_setup(methods, scoring_sentences=12), killed)
    assert [each.num_heads for each in scored] == [5], "which had not been scored"
    assert results_of(killed) == results_of(whole)
    files = [sorted(path.name for path in (place / "scores").iterdir()) for place in (whole, killed)]
    assert files[0] == files[1] and len(files[0]) == 3


def test_a_method_may_look_at_other_sentences_than_the_study(make_setup: Make) -> None:
    methods = {"few": {"criterion": "ablation", "scoring_sentences": 5}, "all": {"criterion": "ablation"}}
    setup = make_setup(methods, scoring_sentences=12)
    data = setup.training_data().train
    found = {
        point.method.name: sum(len(batch.source_ids) for batch in setup.scoring_text(point, lambda: data).batches())
        for point in setup.plan.points()
    }
    assert found == {"few": 5, "all": 12}
