"""BLEU and chrF: the numbers of the sacrebleu command line, its signatures, and the odd inputs."""

import json
import logging
import subprocess
import sys
import warnings
from pathlib import Path

import pytest

from prune_lab.evaluation.scoring import score

# Characters that split lines in Python's str.splitlines, that no vocabulary has, that are combined or blank.
REFERENCES = [
    "Ein Mann fährt mit dem Fahrrad – „ganz schnell“ – über die Straße.",
    "Zwei Hunde spielen\u2028im Schnee , 3,5 km von hier .",
    "Das Mädchen hält 1.000 € in der Hand & lächelt <freundlich>.",
    "Cafe\u0301 und Café sind nicht dasselbe \u00a0 Wort.",
    "Der Bär 🐻 trinkt\u0085Wasser\x0b aus dem Fluß.",
    "",
    "日本語の文は単語に分かれていない。",
]
HYPOTHESES = [
    "Ein Mann fährt mit einem Fahrrad – „sehr schnell“ – über die Straße.",
    "Zwei Hunde spielen im Schnee\u2028, 3,5 km von hier . ",
    "Das Mädchen hält 1.000 € in der Hand & lacht <freundlich>.",
    "Café und Cafe\u0301 sind nicht dasselbe Wort.",
    "Der Bär 🐻 trinkt Wasser\x0c aus dem Fluss.\u3000",
    "Etwas ohne Vorlage.",
    "",
]


def command_line(directory: Path, *options: str) -> list[dict]:
    """What `sacrebleu` prints for the same lines in files, split at line feeds only."""
    for name, lines in (("reference.txt", REFERENCES), ("hypothesis.txt", HYPOTHESES)):
        with open(directory / name, "w", encoding="utf-8", newline="\n") as file:
            file.write("".join(line + "\n" for line in lines))
    command = [sys.executable, "-m", "sacrebleu", "reference.txt", "-i", "hypothesis.txt", "-m", "bleu", "chrf"]
    result = subprocess.run([*command, "-w", "2", *options], cwd=directory, capture_output=True, text=True, check=True)
    return json.loads(result.stdout)


@pytest.mark.parametrize(
    ("keywords", "options"),
    [
        ({}, ()),
        ({"tokenize": "none"}, ("-tok", "none")),
        ({"tokenize": "intl", "lowercase": True}, ("-tok", "intl", "-lc", "--chrf-lowercase")),
    ],
)
def test_c1_scores_equal_the_sacrebleu_command_line(tmp_path, keywords, options):
    expected_bleu, expected_chrf = command_line(tmp_path, *options)
    scores = score(HYPOTHESES, REFERENCES, **keywords)
    assert round(scores.bleu, 2) == expected_bleu["score"]
    assert round(scores.chrf, 2) == expected_chrf["score"]
    assert scores.signature == expected_bleu["signature"]
    assert scores.chrf_signature == expected_chrf["signature"]
    assert scores.num_sentences == len(REFERENCES)


def test_a_perfect_translation_scores_100_and_keeps_full_precision():
    lines = ["the cat sat on the mat .", "a dog ran over the road ."]
    perfect = score(lines, lines)
    assert perfect.bleu == pytest.approx(100) and perfect.chrf == pytest.approx(100)
    assert perfect.brevity_penalty == 1 and perfect.length_ratio == 1
    worse = score(["the cat sat on a mat .", "a dog ran over the road"], lines)
    assert worse.bleu != round(worse.bleu, 2)
    assert worse.length_ratio == worse.hypothesis_length / worse.reference_length < 1
    assert worse.brevity_penalty < 1
    assert worse.to_dict()["bleu"] == worse.bleu


def test_c5_all_empty_output_scores_zero():
    scores = score(["", "", " "], ["a line", "another line", "a third"])
    assert scores.bleu == 0 and scores.chrf == 0 and scores.brevity_penalty == 0 and scores.hypothesis_length == 0
    both_empty = score([""], [""])
    assert both_empty.bleu == 0 and both_empty.length_ratio == 0


def test_c9_the_full_signature_names_tokenizer_case_and_version():
    scores = score(["a b c d e"], ["a b c d f"])
    for part in ("nrefs:1", "case:mixed", "eff:no", "tok:13a", "smooth:exp", "version:"):
        assert part in scores.signature
    assert "tok:none" in score(["a"], ["a"], tokenize="none").signature
    assert "case:lc" in score(["a"], ["a"], lowercase=True).signature


@pytest.mark.parametrize(
    ("language", "suited"), [("zh", "zh"), ("zh-CN", "zh"), ("zho_Hans", "zh"), ("ja", "ja-mecab"), ("KO", "ko-mecab")]
)
def test_c9_targets_without_spaces_warn_with_the_default_tokenizer(language, suited):
    with pytest.warns(UserWarning, match=f"tokenize='{suited}'"):
        score(["你好"], ["你好"], target_language=language)


@pytest.mark.parametrize(("language", "tokenize"), [("de", "13a"), ("zh", "zh"), ("ja", "char"), (None, "13a")])
def test_c9_suited_tokenizers_do_not_warn(language, tokenize):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        score(["你好 a"], ["你好 a"], tokenize=tokenize, target_language=language)


def test_tokenised_text_with_tokenize_none_is_not_called_a_mistake(caplog):
    lines = ["a dog runs ."] * 120
    with caplog.at_level(logging.WARNING, logger="sacrebleu"):
        score(lines, lines, tokenize="none")
        assert not caplog.records
        score(lines, lines)
        assert caplog.records


@pytest.mark.parametrize(
    ("hypotheses", "references", "keywords", "message"),
    [
        (["a", "b"], ["a"], {}, "2 hypotheses against 1 references"),
        ([], [], {}, "at least one sentence"),
        ("ab", ["a", "b"], {}, "hypotheses is one string of 2 characters"),
        (["a"], ["a"], {"tokenize": "14b"}, "tokenize='14b' is no BLEU tokenizer; allowed are 13a"),
    ],
)
def test_bad_input_is_one_line_that_names_it(hypotheses, references, keywords, message):
    with pytest.raises(ValueError, match=message) as error:
        score(hypotheses, references, **keywords)
    assert "\n" not in str(error.value)


def test_a_tokenizer_whose_package_is_missing_is_one_line_with_the_remedy(monkeypatch):
    def missing(**_):
        raise RuntimeError("Please install the right package:\n  pip install it\n")

    monkeypatch.setattr("prune_lab.evaluation.scoring.BLEU.__init__", lambda self, **options: missing(**options))
    with pytest.raises(ValueError, match=r"pip install 'sacrebleu\[ja\]'$") as error:
        score(["a"], ["a"], tokenize="ja-mecab")
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("tokenize", ["flores200", "flores101", "spm", "spBLEU-1K"])
def test_the_remedy_for_sentence_pieces_is_their_package(monkeypatch, tokenize):
    monkeypatch.setitem(sys.modules, "sentencepiece", None)
    with pytest.raises(ValueError, match="needs a package that is not installed: pip install sentencepiece$"):
        score(["a"], ["a"], tokenize=tokenize)


def test_a_model_that_cannot_be_downloaded_is_one_line(monkeypatch):
    def offline(self, **_):
        raise OSError("<urlopen error [Errno -2]\nName or service not known>")

    monkeypatch.setattr("prune_lab.evaluation.scoring.BLEU.__init__", offline)
    with pytest.raises(ValueError, match=r"'flores200' needs a model .* failed \(<urlopen .* not known>\); allowed"):
        score(["a"], ["a"], tokenize="flores200")
