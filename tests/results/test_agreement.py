"""Agreement of criteria: rank correlations against the plain way, grouping, and where scores are read from."""

import csv
import json
from itertools import combinations

import pytest
from made_scores import drawn, scores_of

from prune_lab.heads import HeadScores
from prune_lab.results.agreement import by_criterion, correlation, rank_correlations, write_agreements
from prune_lab.results.score_files import collect_scores, scores_content


def flat(scores):
    return [value for heads in scores.values.values() for value in heads.values()]


def naive_spearman(left, right):
    """Pearson's correlation of ranks, ties at their mean rank."""

    def ranks(values):
        return [sum(b < a for b in values) + (sum(b == a for b in values) + 1) / 2 for a in values]

    a, b = ranks(left), ranks(right)
    mean_a, mean_b = sum(a) / len(a), sum(b) / len(b)
    covariance = sum((x - mean_a) * (y - mean_b) for x, y in zip(a, b, strict=True))
    return covariance / (sum((x - mean_a) ** 2 for x in a) * sum((y - mean_b) ** 2 for y in b)) ** 0.5


def naive_kendall(left, right):
    """tau-b: (concordant - discordant) / sqrt((pairs without ties on the left) (those on the right))."""
    signs = [
        ((a > b) - (a < b), (c > d) - (c < d))
        for (a, c), (b, d) in combinations(list(zip(left, right, strict=True)), 2)
    ]
    untied = [sum(sign[side] != 0 for sign in signs) for side in (0, 1)]
    return sum(a * b for a, b in signs) / (untied[0] * untied[1]) ** 0.5


@pytest.mark.parametrize("seed", range(8))
def test_both_correlations_are_those_of_the_plain_way_with_ties(seed):
    first, second = drawn(seed), drawn(seed + 100, highest=2)
    found = correlation(first, second)
    assert found.spearman == pytest.approx(naive_spearman(flat(first), flat(second)), abs=1e-12)
    assert found.kendall == pytest.approx(naive_kendall(flat(first), flat(second)), abs=1e-12)
    assert found.num_heads == 12


def test_the_order_of_heads_and_any_rising_scale_change_nothing_and_the_reverse_is_minus_one():
    first, second = drawn(1, highest=40), drawn(2, highest=40)
    backwards = HeadScores(
        {site: dict(reversed(heads.items())) for site, heads in reversed(second.values.items())}, "gradient"
    )
    scaled = scores_of([value**3 + 2 for value in flat(second)])
    expected = correlation(first, second)
    for found in (correlation(first, backwards), correlation(first, scaled), correlation(second, first)):
        assert found.spearman == pytest.approx(expected.spearman, abs=1e-12)
        assert found.kendall == pytest.approx(expected.kendall, abs=1e-12)
    assert abs(expected.spearman) < 0.9
    opposite = correlation(first, scores_of([-value for value in flat(first)]))
    assert (opposite.spearman, opposite.kendall) == (pytest.approx(-1), pytest.approx(-1))
    same = correlation(first, first)
    assert (same.spearman, same.kendall) == (pytest.approx(1), pytest.approx(1))


def test_only_heads_that_both_have_scored_are_compared():
    first = drawn(1, highest=40)
    fewer = HeadScores({"decoder.0.cross": {3: 1.0, 1: 2.0, 2: 5.0}, "decoder.1.cross": {0: 9.0}}, "fisher")
    left = [first.values["decoder.0.cross"][head] for head in (1, 2, 3)]
    found = correlation(first, fewer)
    assert found.num_heads == 3 and found.spearman == pytest.approx(naive_spearman(left, [2.0, 5.0, 1.0]))
    nothing = correlation(first, HeadScores({"decoder.1.cross": {0: 9.0}}, "fisher"))
    assert (nothing.spearman, nothing.kendall, nothing.num_heads) == (None, None, 0)
    constant = correlation(first, scores_of([1.0] * 12))
    assert (constant.spearman, constant.kendall, constant.num_heads) == (None, None, 12)


def test_seeds_of_a_criterion_are_averaged_and_compared_with_each_other():
    gradient = drawn(1, highest=40, num_sentences=9)
    seeds = [drawn(seed, "random", highest=40, seed=seed) for seed in (2, 3, 4)]
    found = {(each.first, each.second): each for each in rank_correlations([*seeds, gradient])}
    assert list(found) == [("gradient", "random"), ("random", "random")]
    across, within = found.values()
    mean = sum(naive_spearman(flat(gradient), flat(each)) for each in seeds) / 3
    assert across.spearman == pytest.approx(mean) and across.num_pairs == 3
    pairs = list(combinations(seeds, 2))
    mean = sum(naive_kendall(flat(left), flat(right)) for left, right in pairs) / 3
    assert within.kendall == pytest.approx(mean) and within.num_pairs == 3


def test_options_make_a_criterion_another_one_and_what_it_found_beside_the_scores_does_not():
    plain, token = drawn(1, absolute="sentence", num_tokens=5), drawn(2, absolute="token", num_tokens=5)
    names = by_criterion([plain, drawn(1, absolute="sentence", num_tokens=5), token, drawn(3, "fisher")])
    assert {name: len(several) for name, several in names.items()} == {
        "fisher": 1,
        "gradient (absolute sentence)": 1,
        "gradient (absolute token)": 1,
    }
    shapley = [drawn(seed, "shapley", seed=seed, estimate={"permutations": 10 * seed}) for seed in (1, 2)]
    assert {name: len(several) for name, several in by_criterion(shapley).items()} == {"shapley": 2}


def test_seeds_that_draw_other_sentences_are_seeds_all_the_same():
    scores = [drawn(number, num_sentences=20, num_tokens=300 + number) for number in range(3)]
    (found,) = rank_correlations(scores)
    assert (found.first, found.second, found.num_pairs) == ("gradient", "gradient", 3)


def test_the_file_has_one_row_for_each_pair(tmp_path):
    found = rank_correlations([drawn(1), drawn(2, "fisher"), scores_of([1.0] * 12, "gate")])
    path = write_agreements({"abc": found}, tmp_path / "criteria.csv")
    with open(path, encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert [(row["first"], row["second"]) for row in rows] == [
        ("fisher", "gate"),
        ("fisher", "gradient"),
        ("gate", "gradient"),
    ]
    assert rows[0]["spearman"] == "" and float(rows[1]["kendall"]) == found[1].kendall
    assert {(row["model"], row["num_heads"], row["num_pairs"]) for row in rows} == {("abc", "12", "1")}


# Files


def write(path, scores, model="aa", total_heads=12, keep_model=True):
    content = scores_content(scores, weights_hash=model, total_heads=total_heads)
    if not keep_model:
        del content["model"]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content))


def test_scores_come_from_studies_and_prunings_by_the_model_that_was_scored(tmp_path):
    first, second, third = drawn(1, num_sentences=3), drawn(2, "fisher"), drawn(3, "random", seed=2)
    write(tmp_path / "study" / "scores" / "gradient-seed1-12heads.json", first)
    write(tmp_path / "study" / "scores" / "random-12heads-0a1b2c3d4e5f.json", third)
    write(tmp_path / "pruned" / "scores-12-heads.json", second)
    write(tmp_path / "other" / "scores-12-heads.json", drawn(4), model="bb")
    write(tmp_path / "elsewhere" / "notes-12-heads.json", drawn(5))
    directories = [tmp_path / name for name in ("study", "pruned", "other", "elsewhere", "study/scores")]
    assert collect_scores(directories) == {"aa": [first, third, second], "bb": [drawn(4)]}


def test_scores_of_models_that_lack_heads_are_left_out(tmp_path):
    smaller = HeadScores({"encoder.0.self": {0: 1.0, 2: 3.0}}, "gradient")
    write(tmp_path / "scores-2-heads.json", smaller)
    write(tmp_path / "scores-12-heads.json", drawn(1))
    assert collect_scores([tmp_path]) == {"aa": [drawn(1)]}


def test_files_that_do_not_say_their_model_go_by_the_record_of_it(tmp_path, record, recwarn):
    whole = record("unpruned", 12, layers=1, weights_hash="cd" * 32)
    whole.save(tmp_path / "study" / "base")
    whole.save(tmp_path / "pruned" / "input")
    write(tmp_path / "study" / "scores" / "gradient-seed1-12heads.json", drawn(1), keep_model=False)
    write(tmp_path / "pruned" / "scores-12-heads.json", drawn(2), keep_model=False)
    write(tmp_path / "pruned" / "scores-1-heads.json", HeadScores({"encoder.0.self": {0: 1.0}}, "x"), keep_model=False)
    assert collect_scores([tmp_path]) == {"cd" * 32: [drawn(2), drawn(1)]}
    assert not recwarn.list


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"criterion": "gradient", "settings": {}, "scores": {"encoder.0.self": {"0": 1', "not readable as scores"),
        (
            '{"criterion": "gradient", "settings": {}, "scores": {"encoder.0.self": {"0": NaN}}}',
            "not readable as score",
        ),
        ('{"criterion": "gradient", "settings": {}, "scores": {"encoder.0": {"0": 1.0}}}', "not readable as scores"),
        ('{"criterion": 3, "settings": {}, "scores": {}}', "not readable as scores of heads, perhaps cut short"),
        ("[]", "not readable as scores of heads, perhaps cut short"),
        (
            '{"criterion": "gradient", "settings": {}, "scores": {}}',
            "does not say of which model, nor does a record in",
        ),
    ],
)
def test_a_file_that_is_no_use_is_named_and_left_out(tmp_path, text, message):
    (tmp_path / "scores-12-heads.json").write_text(text)
    write(tmp_path / "good" / "scores-12-heads.json", drawn(1))
    with pytest.warns(UserWarning, match=message) as caught:
        assert collect_scores([tmp_path]) == {"aa": [drawn(1)]}
    assert len(caught) == 1 and str(tmp_path / "scores-12-heads.json") in str(caught[0].message)
