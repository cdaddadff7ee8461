"""prune-lab-prune: exact counts, scopes, steps, gates in three ways, recovery; every export is what it says."""

import dataclasses
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from prune_lab.heads import HeadMask
from prune_lab.model.storage import load_export, weights_hash
from prune_lab.model.transformer import Transformer
from prune_lab.pruning.surgery import fold_fractions, mask_heads
from prune_lab.results.record import Record
from prune_lab.training.checkpoint import load_checkpoint

Run = Callable[..., Any]
# Trained gates of the six heads: two closed, the others with fractions on both sides of 1.
LOG_A = {"encoder.0.self": [0.4, -0.1], "decoder.0.self": [-3.0, 3.0], "decoder.0.cross": [1.0, 0.1]}
KEPT = {"encoder.0.self": [0], "decoder.0.self": [1], "decoder.0.cross": [0, 1]}
SELECTION = {"scope": "global", "floor": 0, "rearrange": False, "kinds": None, "unit": "head"}


@pytest.fixture(scope="module")
def base(tiny_run: Path) -> Path:
    """An unpruned run."""
    return tiny_run


@pytest.fixture(scope="module")
def gated(base: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An export with gates."""
    model = load_export(base / "export")
    model.add_gates("hard_concrete")
    for site, values in LOG_A.items():
        model.gates()[site].log_a.data = torch.tensor(values)  # type: ignore[union-attr]
    directory = tmp_path_factory.mktemp("gated") / "export"
    model.save_pretrained(directory)
    return directory


@pytest.fixture
def prune(run: Run, tiny_text: list[str]) -> Run:
    """`prune("export=DIR", "budgets=[4]")`: the directories of the points by number of heads, and the outcome."""

    def prune(*overrides: str) -> tuple[dict[int, Path], Any]:
        found = run("prune", *tiny_text, "speed=null", "training.max_tokens=600", "output=run", *overrides)
        assert found.status == 0, found.err
        return {int(path.name.removesuffix("-heads")): path for path in Path("run").glob("*-heads")}, found

    return prune


def logits(model: Transformer) -> torch.Tensor:
    source = torch.tensor([[5, 6, 7, 8, 2], [9, 4, 2, 0, 0]])
    target = torch.tensor([[1, 8, 7, 2], [1, 5, 2, 0]])
    with torch.no_grad():
        return model(source, target)[:, :2]


def heads_of(place: Path) -> dict[str, list[int]]:
    """The heads of the export, after a check that its record says the same and the masked model computes the same."""
    model, record = load_export(place / "export"), Record.load(place)
    assert record.heads == model.heads() and record.remaining_heads == sum(map(len, model.heads().values()))
    return model.heads()


def test_budgets_are_exact_and_pruned_is_masked(prune: Run, base: Path, folder: Path) -> None:
    places, found = prune(f"export={base}", "budgets=[5,3,0]", "scoring_sentences=20")
    assert sorted(places) == [0, 3, 5]
    whole = load_export(base / "export")
    for budget, place in places.items():
        heads = heads_of(place)
        assert sum(map(len, heads.values())) == budget
        masked = mask_heads(whole, HeadMask.keeping(heads, whole))
        torch.testing.assert_close(logits(load_export(place / "export")), logits(masked), rtol=1e-5, atol=1e-5)
        record = Record.load(place)
        assert (record.method, record.label, record.state) == ("gradient", f"gradient, {budget} heads", "pruned")
        assert record.test_set["name"] == "synthetic test"
        assert record.base_hash == weights_hash(whole) and record.settings["updates"] == 4
        assert record.settings["recovery_updates"] == 0 and record.gate_evaluation is None
    scores = json.loads((folder / "run" / "scores-6-heads.json").read_text())
    assert scores["criterion"] == "gradient" and scores["settings"]["num_sentences"] == 20
    assert {site: len(heads) for site, heads in scores["scores"].items()} == dict.fromkeys(KEPT, 2)
    assert scores["model"] == {"weights_hash": weights_hash(whole), "total_heads": 6}
    first, *lines = found.out.splitlines()
    assert re.fullmatch(r"gradient: scored 6 heads in \d+\.\d s", first)
    assert [re.sub(r"\d+\.\d\d$", "N", line) for line in lines[:3]] == [
        f"{budget} heads: run/{budget}-heads/export  synthetic test BLEU N" for budget in (5, 3, 0)
    ]
    table = lines[lines.index("") + 1 :]
    assert table[0].startswith("synthetic test, ") and max(map(len, table)) <= 80
    rows = [line.split() for line in table if line.startswith("gradient")]
    assert [int(row[1]) for row in rows] == [5, 3, 0], table


def test_shares_of_the_heads_without_a_record(prune: Run, base: Path) -> None:
    places, _ = prune(f"export={base / 'export'}", "shares=[0.75,0.25]", "criterion=magnitude", "report_split=null")
    assert sorted(places) == [2, 5], "4.5 heads are 5, 1.5 are 2"
    assert not list(Path("run").rglob("record.json")) and not list(Path("run").rglob("hypotheses.txt"))
    for budget, place in places.items():
        assert sum(map(len, load_export(place / "export").heads().values())) == budget


@pytest.mark.parametrize("scope", ["per_site", "per_kind"])
def test_scopes_share_the_budget_out(prune: Run, base: Path, scope: str) -> None:
    places, _ = prune(f"export={base}", "budgets=[3]", f"selection.scope={scope}", "criterion=random", "seed=3")
    assert [len(kept) for kept in heads_of(places[3]).values()] == [1, 1, 1]
    record = Record.load(places[3])
    assert record.settings["selection"] == {**SELECTION, "scope": scope}
    assert record.settings["criterion"] == {"name": "random", "seed": 3} and record.seed == 3


def test_heads_of_a_key_value_head_go_together_where_that_is_asked_for(prune: Run, base: Path, folder: Path) -> None:
    """The two heads of each site read one: by themselves they go as their scores say."""
    whole = load_export(base / "export")
    torch.manual_seed(3)
    grouped = Transformer(dataclasses.replace(whole.config, attention="grouped_query"))
    grouped.tokenizer, grouped.languages = whole.tokenizer, whole.languages
    grouped.save_pretrained("grouped")
    grouped.eval()
    words = ["export=grouped", "budgets=[4,3]", "scoring_sentences=20"]
    places, _ = prune(*words, "selection.unit=group")
    content = json.loads((folder / "run" / "scores-6-heads.json").read_text())
    assert "key_value" not in content and "groups" not in content, "what a head reads is the model's to say"
    values = {site: list(heads.values()) for site, heads in content["scores"].items()}
    best_first = sorted(values, key=lambda site: -sum(values[site]))
    expected = {4: {best_first[0]: [0, 1], best_first[1]: [0, 1], best_first[2]: []}}
    better = max((0, 1), key=lambda head: values[best_first[1]][head])
    expected[3] = {**expected[4], best_first[1]: [better]}
    for budget, place in places.items():
        heads = heads_of(place)
        assert heads == expected[budget]
        assert Record.load(place).settings["selection"] == {**SELECTION, "unit": "group"}
        pruned = load_export(place / "export")
        for site in pruned.attention_sites().values():
            width = site.attention.head_dim if site.numbers else 0
            assert len(site.attention.key.weight) == len(site.attention.value.weight) == width  # type: ignore[union-attr, arg-type]
        masked = mask_heads(grouped, HeadMask.keeping(heads, grouped))
        torch.testing.assert_close(logits(pruned), logits(masked), rtol=1e-5, atol=1e-5)
    places, _ = prune(*words, "output=other")
    for budget in (4, 3):
        best = sorted(((site, head) for site in values for head in (0, 1)), key=lambda each: -values[each[0]][each[1]])
        kept = Record.load(folder / "other" / f"{budget}-heads").heads
        assert {(site, head) for site, heads in kept.items() for head in heads} == set(best[:budget])


def test_a_directory_of_before_there_were_units_goes_on(run: Run, prune: Run, base: Path, tiny_text: list[str]) -> None:
    words = [f"export={base}", "criterion=magnitude"]
    prune(*words, "budgets=[4]")
    configuration = Path("run/prune.yaml")
    before = configuration.read_text()
    configuration.write_text("".join(line for line in before.splitlines(True) if line != "  unit: head\n"))
    assert configuration.read_text() != before
    places, _ = prune(*words, "budgets=[4,2]")
    assert sorted(places) == [2, 4]
    again = [*tiny_text, "speed=null", "training.max_tokens=600", "output=run", *words, "budgets=[4]"]
    message = run("prune", *again, "selection.unit=group").refused()
    assert (
        message == "prune-lab-prune: selection.unit: 'group', but run holds results with 'head'; choose another output="
    )


def test_a9_a_floor_keeps_a_head_at_each_site_and_the_total(prune: Run, base: Path) -> None:
    places, _ = prune(f"export={base}", "budgets=[4]", "selection.floor=1", "criterion=random", "seed=2")
    assert sorted(len(kept) for kept in heads_of(places[4]).values()) == [1, 1, 2]


def test_steps_score_anew_and_recovery_trains_after_each(prune: Run, base: Path, folder: Path) -> None:
    recovery = ["trainer.max_steps=2", "scheduler.warmup_updates=0", "scheduler.decay_updates=1"]
    places, found = prune(f"export={base}", "budgets=[4,3]", "schedule=iterative", "schedule.step_share=0.2", *recovery)
    assert {path.name for path in (folder / "run").glob("scores*")} == {"scores-6-heads.json", "scores-4-heads.json"}
    four, three = Record.load(places[4]), Record.load(places[3])
    assert (four.method, four.settings["schedule"]) == ("gradient+recovery", {"name": "iterative", "step_share": 0.2})
    assert [record.settings["recovery_updates"] for record in (four, three)] == [2, 4]
    assert [record.settings["updates"] for record in (four, three)] == [6, 8]
    for site, kept in three.heads.items():
        assert set(kept) <= set(four.heads[site])
    assert "4-heads: update 2/2  " in found.out
    assert (four.validation_decoding, four.training["parts"]) == ("greedy", 2) and four.seconds["training"] > 0
    assert four.validation_bleu is not None and (places[4] / "metrics.csv").is_file()


def test_gradual_points_lose_heads_in_the_first_share_of_the_updates(prune: Run, base: Path) -> None:
    training = ["trainer.max_steps=6", "scheduler.warmup_updates=0", "scheduler.decay_updates=2"]
    places, found = prune(
        f"export={base}", "budgets=[4,2]", "schedule=gradual", "schedule.num_cuts=3", "schedule.share=0.66", *training
    )
    for budget, seen in ((4, [5, 4]), (2, [3, 2])):
        record = Record.load(places[budget])
        assert sum(map(len, heads_of(places[budget]).values())) == budget
        assert record.settings["schedule"] == {"name": "gradual", "num_cuts": 3}
        assert (record.settings["masking_updates"], record.settings["recovery_updates"]) == (4, 2)
        assert record.settings["updates"] == 4 + 6
        lines = [
            line for line in found.out.splitlines() if line.startswith(f"{budget}-heads: ") and "heads from" in line
        ]
        assert [int(line.split()[1]) for line in lines] == seen


def test_a_gradual_point_says_its_criterion_also_where_only_its_record_was_missing(prune: Run, base: Path) -> None:
    command = [f"export={base}", "budgets=[4]", "schedule=gradual", "criterion=magnitude", "trainer.max_steps=4"]
    command.append("schedule.num_cuts=2")
    places, _ = prune(*command)
    first = Record.load(places[4])
    (places[4] / "record.json").unlink()
    prune(*command)
    again = Record.load(places[4])
    assert first.settings["criterion"]["name"] == again.settings["criterion"]["name"] == "magnitude"
    assert again.weights_hash == first.weights_hash


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ([], "schedule: gradual masks heads while the model trains; allowed with trainer.max_steps above 0"),
        (
            ["rescale=true", "trainer.max_steps=4"],
            "rescale: true with schedule=gradual; allowed are schedules that cut",
        ),
        (["trainer.max_steps=4"], "schedule.num_cuts: 10; allowed are numbers up to that of the updates, 2"),
    ],
)
def test_what_does_not_go_with_gradual_pruning(
    run: Run, folder: Path, base: Path, overrides: Any, message: str
) -> None:
    assert message in run("prune", f"export={base}", "budgets=[2]", "schedule=gradual", *overrides).refused()


def test_one_shot_points_recover_each_on_its_own(prune: Run, base: Path) -> None:
    recovery = ["trainer.max_steps=1", "scheduler.warmup_updates=0", "scheduler.decay_updates=1"]
    places, _ = prune(f"export={base}", "budgets=[4,2]", *recovery)
    assert [Record.load(places[budget]).settings["recovery_updates"] for budget in (4, 2)] == [1, 1]


def test_the_model_that_is_pruned_teaches_in_the_recovery(prune: Run, base: Path) -> None:
    recovery = ["trainer.max_steps=1", "scheduler.warmup_updates=0", "scheduler.decay_updates=1"]
    taught = ["distillation.weight=0.5", "distillation.temperature=2"]
    places, _ = prune(f"export={base}", "budgets=[4]", *recovery, *taught)
    settings = Record.load(places[4]).settings
    assert (settings["distillation"], settings["distillation_temperature"]) == (0.5, 2)
    teacher = load_checkpoint(places[4] / "last.ckpt")["prune_lab"]["teacher"]
    assert teacher == weights_hash(load_export(base / "export"))


def test_auto_is_the_keep_rule_of_the_gates(prune: Run, gated: Path) -> None:
    """Rounded: the survivors count fully, as without gates."""
    places, _ = prune(f"export={gated}", "budgets=auto")
    assert list(places) == [4] and heads_of(places[4]) == KEPT
    model, record = load_export(places[4] / "export"), Record.load(places[4])
    assert (record.method, record.state, record.gate_evaluation) == ("hard_concrete", "pruned", "round")
    assert (Record.load("run/input").method, Record.load("run/input").state) == ("hard_concrete", "masked")
    assert not model.gates()
    whole = load_export(gated)
    whole.remove_gates()
    torch.testing.assert_close(logits(model), logits(mask_heads(whole, HeadMask.keeping(KEPT, whole))))


def test_gates_as_fractions_are_folded(prune: Run, gated: Path) -> None:
    places, _ = prune(f"export={gated}", "budgets=auto", "gate_evaluation=fraction")
    model, record = load_export(places[4] / "export"), Record.load(places[4])
    assert (record.gate_evaluation, record.state, heads_of(places[4])) == ("fraction", "pruned", KEPT)
    assert not model.gates()
    fractional = load_export(gated)
    expected = fold_fractions(mask_heads(fractional, HeadMask.keeping(KEPT, fractional)))
    torch.testing.assert_close(logits(model), logits(expected), rtol=1e-5, atol=1e-6)
    rounded = load_export(gated)
    rounded.remove_gates()
    assert (logits(model) - logits(mask_heads(rounded, HeadMask.keeping(KEPT, rounded)))).abs().max() > 1e-3


def test_b3_a_head_whose_fraction_is_0_is_no_part_of_a_budget(prune: Run, gated: Path) -> None:
    places, _ = prune(f"export={gated}", "budgets=[5]", "gate_evaluation=fraction", "criterion=gate")
    record = Record.load(places[5])
    assert (record.state, record.settings["budget"], record.remaining_heads) == ("pruned", 5, 5)
    assert heads_of(places[5])["encoder.0.self"] == [0, 1], "its fraction is small but not 0"
    places, _ = prune(f"export={gated}", "budgets=[4]", "gate_evaluation=fraction", "criterion=random", "output=other")
    scored = json.loads(Path("other/scores-5-heads.json").read_text())["scores"]
    assert list(scored["decoder.0.self"]) == ["1"] and Record.load("other/4-heads").remaining_heads == 4


@pytest.mark.parametrize(
    ("wanted", "key"), [("budgets=[4,6]", "budgets"), ("shares=1", "shares")], ids=["budgets", "shares"]
)
def test_b3_a_budget_above_the_heads_that_count_is_told_at_once(
    run: Run, folder: Path, gated: Path, wanted: str, key: str
) -> None:
    arguments = [f"export={gated}", wanted, "gate_evaluation=fraction", "criterion=gate", "output=run"]
    assert run("prune", *arguments).refused() == (
        f"prune-lab-prune: {key}: 6 heads, but of the 6 there are, 5 count with gate_evaluation=fraction "
        "(the gates of the others are 0); allowed are whole numbers from 0 to 5"
    )
    assert list(folder.iterdir()) == []
    kept = [f"export={gated}", wanted, "gate_evaluation=keep", "criterion=gate", "output=run"]
    assert "of the 6 there are, 4 count with gate_evaluation=keep" in run("prune", *kept).refused()


RECOVERY = ("trainer.max_steps=2", "scheduler.warmup_updates=0", "scheduler.decay_updates=1")
STEPS = ("schedule=iterative", "schedule.step_share=0.1")


def test_b3_fractions_recover_between_steps_and_budgets_stay_exact(prune: Run, gated: Path) -> None:
    places, _ = prune(f"export={gated}", "budgets=[4,2]", "gate_evaluation=fraction", *STEPS, *RECOVERY)
    for budget in (4, 2):
        record = Record.load(places[budget])
        assert record.remaining_heads == budget and not load_export(places[budget] / "export").gates()
    assert record.settings["recovery_updates"] == 6 and len(list(Path("run").glob("scores-*"))) == 3


def test_gates_that_are_scored_after_each_step_stay_and_train_until_the_export(prune: Run, gated: Path) -> None:
    arguments = [f"export={gated}", "criterion=gate", *STEPS, *RECOVERY, "gates.learning_rate=0.1"]
    places, _ = prune(*arguments, "budgets=[3,1]")
    for budget in (3, 1):
        record = Record.load(places[budget])
        assert (record.remaining_heads, record.state, record.gate_evaluation) == (budget, "pruned", "round")
        assert not load_export(places[budget] / "export").gates()
    first, last = (json.loads(Path(f"run/scores-{count}-heads.json").read_text())["scores"] for count in (6, 2))
    assert any(first[site][head] != value for site, heads in last.items() for head, value in heads.items())
    places, _ = prune(f"export={gated}", "criterion=gate", *STEPS, "budgets=[1]", "gate_evaluation=fraction", "seed=2",
                      "output=other")  # fmt: skip
    assert Record.load("other/1-heads").remaining_heads == 1


def test_gates_that_are_scored_after_a_recovery_can_be_no_fractions(run: Run, folder: Path, gated: Path) -> None:
    arguments = [f"export={gated}", "criterion=gate", "budgets=[3]", "gate_evaluation=fraction", *STEPS, *RECOVERY]
    message = run("prune", *arguments).refused()
    assert message.startswith("prune-lab-prune: gate_evaluation: fraction, but criterion=gate scores gates anew")
    assert list(folder.iterdir()) == []


def test_gates_may_stay(prune: Run, gated: Path) -> None:
    places, _ = prune(f"export={gated}", "budgets=auto", "gate_evaluation=keep")
    model = load_export(places[4] / "export")
    assert model.heads() == KEPT
    kept = {site: gate.log_a.tolist() for site, gate in model.gates().items()}  # type: ignore[union-attr,operator]
    assert kept == {site: pytest.approx([LOG_A[site][head] for head in heads]) for site, heads in KEPT.items()}
    assert Record.load(places[4]).gate_evaluation == "round"


def test_a_criterion_may_look_at_gates(prune: Run, gated: Path) -> None:
    places, _ = prune(f"export={gated}", "budgets=[1]", "criterion=gate", "criterion.value=log_a")
    assert heads_of(places[1]) == {"encoder.0.self": [], "decoder.0.self": [1], "decoder.0.cross": []}


def test_speed_is_measured_on_the_pruned_model(prune: Run, base: Path) -> None:
    places, _ = prune(f"export={base}", "budgets=[3]", "speed={num_lines: 4, warm_up: 0, repeats: 2}")
    speed = Record.load(places[3]).speed
    assert speed is not None and speed["repeats"] == 2 and speed["spread"][0] <= speed["sentences_per_second"]


def test_the_export_of_a_point_can_be_pruned_further_by_original_numbers(prune: Run, base: Path) -> None:
    places, _ = prune(f"export={base}", "budgets=[3]", "criterion=random")
    three = heads_of(places[3])
    Path("run").rename("first")
    places, _ = prune("export=first/3-heads", "budgets=[1]", "criterion=random", "seed=5")
    (site,) = [site for site, kept in heads_of(places[1]).items() if kept]
    assert set(heads_of(places[1])[site]) <= set(three[site])
    assert Record.load(places[1]).base_hash == Record.load("first/3-heads").base_hash


def test_the_input_is_measured_and_the_points_are_compared_with_it(prune: Run, base: Path, folder: Path) -> None:
    places, _ = prune(f"export={base}", "budgets=[4]", "criterion=magnitude")
    whole, four = Record.load("run/input"), Record.load(places[4])
    assert (whole.method, whole.state, whole.bleu) == ("unpruned", "unpruned", Record.load(base).bleu)
    assert four.significance is not None and four.bleu is not None and whole.bleu is not None
    assert four.significance["difference"] == pytest.approx(four.bleu - whole.bleu)


def test_the_same_command_again_does_nothing_twice_and_more_budgets_are_added(
    prune: Run, base: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prune(f"export={base}", "budgets=[4]", "criterion=magnitude")
    before = {
        path: path.read_bytes() for path in Path("run").rglob("*") if path.is_file() and "prune." not in path.name
    }
    with monkeypatch.context() as patched:
        for name in ("pruner.score_on_text", "derived.record_export"):
            patched.setattr(f"prune_lab.study.{name}", None)
        _, found = prune(f"export={base}", "budgets=[4]", "criterion=magnitude")
    assert found.out.startswith("4 heads: run/4-heads/export  synthetic test BLEU")
    prune(f"export={base}", "budgets=[4,2]", "criterion=magnitude")
    after = {path: path.read_bytes() for path in Path("run").rglob("*") if path.is_file()}
    assert before.items() <= after.items() and Path("run/2-heads/record.json") in after


def test_scores_are_read_back_and_their_time_counts_for_each_point(
    prune: Run, base: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = [f"export={base}", "criterion=fisher", "selection.rearrange=true", "scoring_sentences=20"]
    places, _ = prune(*words, "budgets=[4]")
    file = folder / "run" / "scores-6-heads.json"
    content = json.loads(file.read_text())
    assert Record.load(places[4]).seconds["choosing"] == content["seconds"] > 0
    file.write_text(json.dumps({**content, "seconds": 500.0}))
    with monkeypatch.context() as patched:
        patched.setattr("prune_lab.study.on_text.score_heads", None)
        places, found = prune(*words, "budgets=[4,2]")
    assert found.out.count("fisher: 6 heads were scored before, in 500.0 s\n") == 1
    record = Record.load(places[2])
    assert record.seconds["choosing"] == 500.0 and "training" not in record.seconds
    prune(*words, "budgets=[2]", "output=other")
    assert Record.load("other/2-heads").heads == record.heads


def test_steps_count_what_the_steps_before_them_took(prune: Run, base: Path, folder: Path) -> None:
    """And factors count as scores do."""
    places, _ = prune(f"export={base}", "budgets=[4,2]", "criterion=magnitude", "rescale=true", *STEPS)
    four, two = (Record.load(places[budget]).seconds["choosing"] for budget in (4, 2))
    scores = {
        count: json.loads(Path(f"run/scores-{count}-heads.json").read_text())["seconds"] for count in (6, 5, 4, 3)
    }
    assert four > scores[6] + scores[5] and two > four + scores[4] + scores[3]


def test_the_keep_rule_a_second_time_tells_what_is_there_and_does_nothing(
    prune: Run, gated: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, first = prune(f"export={gated}", "budgets=auto")
    for name in ("prune.prune_to", "derived.record_export"):
        monkeypatch.setattr(f"prune_lab.study.{name}", None)
    _, second = prune(f"export={gated}", "budgets=auto")
    assert second.out == first.out and second.out.startswith("4 heads: run/4-heads/export  synthetic test BLEU")


def test_an_input_that_lost_its_translations_is_measured_again(prune: Run, base: Path) -> None:
    arguments = [f"export={base}", "criterion=magnitude"]
    prune(*arguments, "budgets=[4]")
    translations = Path("run/input/hypotheses.txt")
    before = translations.read_bytes()
    translations.unlink()
    places, _ = prune(*arguments, "budgets=[4,2]")
    assert translations.read_bytes() == before and Record.load(places[2]).significance is not None


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["budgets=[7]"], "budgets: 7; allowed are whole numbers from 0 to 6, the heads there are"),
        (["budgets=[-1]"], "budgets: -1; allowed are whole numbers from 0 to 6, the heads there are"),
        (["budgets=[1.5]"], "budgets: 1.5; allowed are whole numbers from 0 to 6, the heads there are"),
        (["budgets=['4']"], "budgets: '4'; allowed are whole numbers from 0 to 6, the heads there are"),
        (["shares=[1.1]"], "shares: 1.1; allowed are numbers from 0 to 1"),
        ([], "budgets and shares: allowed is one of them: budgets=[24,12], budgets=auto or shares=[0.5,0.25]"),
        (["budgets=[3]", "shares=[0.5]"], "budgets and shares: allowed is one of them: budgets=[24,12], budgets=auto"),
        (["budgets=auto"], "budgets: auto needs a model with gates"),
        (
            ["budgets=[3]", "gate_evaluation=fraction"],
            "gate_evaluation: fraction; allowed for a model with hard_concrete",
        ),
        (["budgets=[3]", "gate_evaluation=half"], "gate_evaluation: 'half'; allowed are round, fraction, keep"),
        (["budgets=[3]", "criterion=gate"], "criterion: gate, but this model has no gates"),
        (
            ["budgets=[2]", "selection.floor=1"],
            "selection.floor: 1 at each of 3 sites keeps 3 heads, but the budget is 2",
        ),
        (["budgets=[2]", "selection.scope=layer"], "selection.scope: 'layer'; allowed are global, per_kind, per_site"),
        (["budgets=[2]", "selection.unit=layer"], "selection.unit: 'layer'; allowed are head, group"),
        (["budgets=[2]", "selection.unit=null"], "selection.unit: None; allowed are head, group"),
        (
            ["budgets=[2]", "criterion=fisher", "selection.rearrange=true", "selection.unit=group"],
            "selection.rearrange: true with selection.unit=group; allowed with selection.unit=head",
        ),
        (["budgets=[2]", "criterion.absolute=all"], "criterion.absolute: 'all'; allowed are sentence, token, batch"),
        (["budgets=[2]", "schedule.step_share=0"], "unknown key schedule.step_share"),
        (
            ["budgets=[2]", "criterion=gradients"],
            "criterion=gradients: no such option (did you mean gradient?); allowed are",
        ),
        (["budgets=[2]", "scoring_sentences=0"], "scoring_sentences: 0; allowed are whole numbers from 1"),
        (["budgets=[2]", "speed.repeats=0"], "speed.repeats: 0; allowed are whole numbers from 1"),
        (["budgets=[2]", "trainer.max_steps=-1"], "trainer.max_steps: -1; allowed are whole numbers from 0"),
        (
            ["budgets=[2]", "distillation.weight=0.5"],
            "distillation.weight: 0.5 without recovery; set trainer.max_steps, or leave it out",
        ),
        (
            ["budgets=[2]", "distillation.weight=1.5", "trainer.max_steps=1"],
            "distillation.weight: 1.5; allowed are num",
        ),
        (["budgets=[2]", "distillation.temperature=2"], "distillation.temperature: 2 without distillation.weight; set"),
        (["budgets=[2]", "report_split=train"], "report_split: 'train'; allowed are validation, test and null"),
        (["budgets=[2]", "seed=x"], "seed: 'x'; allowed are whole numbers from 0"),
        (["budgets=[2]", "data=text", "report_split=null"], "data.train: not set; pruning needs data.train"),
    ],
)
def test_bad_input_is_told_in_one_line_and_nothing_is_written(
    run: Run, folder: Path, base: Path, overrides: list[str], message: str
) -> None:
    found = run("prune", f"export={base}", *overrides).refused()
    assert found.startswith("prune-lab-prune: ") and message in found
    assert list(folder.iterdir()) == []


def test_a_directory_that_is_no_export(run: Run, folder: Path, base: Path) -> None:
    (folder / "nothing").mkdir()
    message = run("prune", "export=nothing", "budgets=[2]").refused()
    assert message == "prune-lab-prune: export=nothing: not an export, it has no config.json"
    assert (
        run("prune", "export=nowhere", "budgets=[2]").refused().startswith("prune-lab-prune: export=nowhere: no such")
    )
    assert run("prune", "budgets=[2]").refused() == (
        "prune-lab-prune: export is not set; give it as export=VALUE (see --help)"
    )
    assert [path.name for path in folder.iterdir()] == ["nothing"]


def test_step_by_step_no_budget_can_be_added(run: Run, prune: Run, base: Path, tiny_text: list[str]) -> None:
    """The way to a budget leads over the others: what is there already came by another way."""
    prune(f"export={base}", "budgets=[2]", "criterion=magnitude", *STEPS)
    again = [*tiny_text, "speed=null", "training.max_tokens=600", "output=run", f"export={base}", *STEPS]
    message = run("prune", *again, "criterion=magnitude", "budgets=[4,2]").refused()
    assert message == "prune-lab-prune: budgets: [4, 2], but run holds results with [2]; choose another output="


def test_a_gated_input_is_no_unpruned_model_to_be_faster_than(
    run: Run, base: Path, gated: Path, tiny_text: list[str]
) -> None:
    """Without its gates it would be a model that nobody has trained."""
    speed = ["speed={num_lines: 2, warm_up: 0, repeats: 5, max_sentences: 2}", "output=run"]
    assert run("prune", *tiny_text, *speed, f"export={gated}", "budgets=auto").status == 0
    assert "ratio" not in Record.load("run/4-heads").speed
    speed[-1] = "output=other"
    assert run("prune", *tiny_text, *speed, f"export={base}", "budgets=[4]", "criterion=magnitude").status == 0
    assert "ratio" in Record.load("other/4-heads").speed


def test_bleu_of_a_criterion_is_scored_as_the_data_say(prune: Run, base: Path, folder: Path) -> None:
    words = ["criterion=ablation", "criterion.measure=bleu", "budgets=[4]", "scoring_sentences=3"]
    places, _ = prune(f"export={base}", *words, "data.score_tokenize=char", "data.lowercase=true")
    criterion = Record.load(places[4]).settings["criterion"]
    assert (criterion["tokenize"], criterion["lowercase"]) == ("char", True)
    assert "tok:char" in criterion["signature"] and "case:lc" in criterion["signature"]


def test_factors_come_before_recovery_and_need_no_gates(
    prune: Run, run: Run, tiny_text: list[str], base: Path, gated: Path, folder: Path
) -> None:
    words = ["criterion=fisher", "selection.rearrange=true", "rescale=true", "budgets=[4]", "scoring_sentences=20"]
    places, found = prune(f"export={base}", *words)
    record = Record.load(places[4])
    assert heads_of(places[4]) == record.heads
    assert record.settings["rescale"] is True
    assert list(record.settings["factors"]) == [site for site, kept in record.heads.items() if kept]
    assert re.search(r"rescaled \d sites in", found.out)
    message = run("prune", *tiny_text, f"export={gated}", *words, "output=other").refused()
    assert message == "prune-lab-prune: rescale: true for a model with gates; allowed are models without"
    message = run("prune", *tiny_text, f"export={base}", "selection.rearrange=true", "budgets=[4]").refused()
    assert message == ("prune-lab-prune: selection.rearrange: true, but gradient scores no pairs; allowed with fisher")
