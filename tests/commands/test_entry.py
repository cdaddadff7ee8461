"""What all commands share: configuration, run directories, locks, logs, and errors that a user can act on."""

import json
import logging
import os
import re
import socket
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from prune_lab.commands.earlier_run import refuse_another
from prune_lab.commands.errors import is_user_error, one_line
from prune_lab.commands.help import config_directory
from prune_lab.commands.lock import locked
from prune_lab.commands.naming import slug
from prune_lab.commands.settings import decoding_options
from prune_lab.decoding.options import DEFAULT_DECODING, DecodingOptions
from prune_lab.results.record import Record

TEXT = [
    f"data.{key}" for key in ("train.source=/text/train.en", "train.target=/text/train.de", "test.source=/t/test.en")
]
SAFE = re.compile(r"[A-Za-z0-9._-]+")
OVERRIDES = [
    ["export=/tmp/a b/c,d", "seed=1"],
    ["budgets=[24,12]"],
    ["+x={a: 1, 'b': \"two\"}", "~trainer.limit"],
    ["data.train.source='über straße.txt'", "name=日本語"],
    ["penalty.weight=1e-3"],
    ["a.b.c=../../x/"],
    [f"key{number}=value{number}" for number in range(40)],
]
Run = Callable[..., Any]


def note(config: dict[str, Any], directory: Path) -> None:
    """Leaves a result."""
    (directory / "result.json").write_text(json.dumps(config))


def refuse(config: dict[str, Any], *_: Any) -> None:
    """An error of the user when beam_size is 0."""
    DecodingOptions(**config["decoding"])


@pytest.mark.parametrize("overrides", OVERRIDES, ids=range(len(OVERRIDES)))
def test_d9_names_of_run_directories_need_no_quotes(overrides: list[str]) -> None:
    assert SAFE.fullmatch(slug(overrides))
    assert len(slug(overrides)) < 80


def test_the_same_configuration_has_the_same_directory_and_another_one_another() -> None:
    assert slug(["seed=1", "data=text"]).rpartition("_")[2] == slug(["data=text", "seed=1"]).rpartition("_")[2]
    assert slug(["seed=1", "seed=2"]) == slug(["seed=2"])
    assert slug(["output=x", "seed=1"]) == slug(["seed=1"])
    assert slug([]) == slug(["output=x"]) == "default"
    names = [slug([f"export={path}"]) for path in ("a/x", "b/x", "x", "x,", "[x]")]
    assert len(set(names)) == len(names)
    assert slug(["data=multi30k", "data.directory=/text/m30k", "seed=1"]).startswith(
        "data-multi30k_directory-m30k_seed-1_"
    )


@pytest.mark.parametrize(
    ("overrides", "readable"),
    [
        (["+study.methods.closing={gates: {kinds: [encoder.self]}, weights: [9]}", "seed=2"], "closing_seed-2"),
        (["export=runs/" + "x" * 100, "seed=2"], "export_seed-2"),
        ([*TEXT, "penalty.weight=0.01,0.02,0.05", "seed=1,2"], "source-train.en_weight-0.01-0.02-0.05_seed-1-2"),
        ([*TEXT, "seed=range(1,4)"], "source-train.en_target-train.de_seed-range-1-4"),
        (["budgets=[24,12]", "seed=1"], "budgets-24-12_seed-1"),
        ([*TEXT, "criterion=gradient", "budgets=[24,12]"], "source-train.en_criterion-gradient_budgets-24-12"),
    ],
    ids=range(6),
)
def test_names_keep_what_is_swept_over_and_leave_out_what_is_too_long(overrides: list[str], readable: str) -> None:
    name, _, digest = slug(overrides).rpartition("_")
    assert name == readable and len(digest) == 8
    assert slug([*overrides, "seed=77"]) != slug(overrides), "the hash tells apart what is left out"


def test_a_run_leaves_its_configuration_and_its_log(run_dummy: Run, folder: Path) -> None:
    def work(config: dict[str, Any], directory: Path) -> None:
        assert Path.cwd() == folder
        logging.getLogger("prune_lab.x").info("half way")
        warnings.warn("some\nlines", stacklevel=1)
        note(config, directory)
        print("done")

    found = run_dummy(work, "seed=7")
    assert (found.status, found.out, found.err) == (0, "done\n", "half way\nwarning: some lines\n")
    (directory,) = (folder / "outputs" / "dummy").iterdir()
    assert sorted(path.name for path in directory.iterdir()) == ["dummy.log", "dummy.yaml", "result.json"]
    assert directory.name.startswith("seed-7_")
    config = json.loads((directory / "result.json").read_text())
    assert yaml.safe_load((directory / "dummy.yaml").read_text()) == config
    assert config == {"output": None, "seed": 7, "decoding": {**vars(DEFAULT_DECODING)}}
    text = (directory / "dummy.yaml").read_text()
    assert text.startswith("# prune-lab-dummy ") and "seed=7" in text.splitlines()[0]
    log = (directory / "dummy.log").read_text().splitlines()
    assert [line.split(" ", 2)[2] for line in log] == ["INFO half way", "WARNING some lines"]
    assert run_dummy(work, "seed=7").status == 0
    assert run_dummy(work, "seed=8").status == 0
    assert len(list((folder / "outputs" / "dummy").iterdir())) == 2


def test_output_is_the_directory(run_dummy: Run, folder: Path) -> None:
    assert run_dummy(note, "output=a/b").status == 0
    assert (folder / "a" / "b" / "result.json").is_file()
    assert not (folder / "outputs").exists()


@pytest.mark.parametrize("early", [True, False], ids=["before the directory", "in it"])
def test_an_error_of_the_user_is_one_line_and_leaves_nothing(run_dummy: Run, folder: Path, early: bool) -> None:
    work, settings = (note, {"check": refuse}) if early else (refuse, {})
    message = run_dummy(work, "decoding.beam_size=0", **settings).refused()
    assert message == "prune-lab-dummy: decoding.beam_size: 0; allowed are whole numbers from 1"
    assert list(folder.iterdir()) == []


def test_an_error_of_the_user_changes_nothing_of_an_earlier_run(run_dummy: Run, folder: Path) -> None:
    assert run_dummy(note, "output=here").status == 0
    before = {path: path.read_bytes() for path in (folder / "here").iterdir()}
    run_dummy(refuse, "output=here", "decoding.beam_size=0").refused()
    assert {path: path.read_bytes() for path in (folder / "here").iterdir()} == before
    (folder / "mine").mkdir()
    run_dummy(refuse, "output=mine", "decoding.beam_size=0").refused()
    assert list((folder / "mine").iterdir()) == []


def test_a_bug_keeps_its_traceback_on_screen_and_in_the_log(run_dummy: Run, folder: Path) -> None:
    def work(config: dict[str, Any], directory: Path) -> None:
        raise RuntimeError("the sizes differ")

    found = run_dummy(work, "output=run")
    assert found.status == 1
    for text in (found.err, (folder / "run" / "dummy.log").read_text()):
        assert "Traceback" in text and "in work" in text and "RuntimeError: the sizes differ" in text
    assert found.err.count("Traceback") == 1
    assert not (folder / "run" / ".lock").exists()


def test_a_run_that_crashes_leaves_a_record_that_says_why(run_dummy: Run, folder: Path) -> None:
    def crash(config: dict[str, Any], directory: Path) -> None:
        raise RuntimeError("out of\nmemory")

    assert run_dummy(crash, "output=there").status == 1
    record = Record.load(folder / "there")
    assert (record.status, record.reason) == ("failed", "RuntimeError: out of memory")


def test_a_value_error_of_a_library_is_a_bug(run_dummy: Run) -> None:
    found = run_dummy(lambda config, directory: json.loads("{"))
    assert found.status == 1 and "JSONDecodeError" in found.err


def test_the_whole_traceback_of_a_user_error_can_be_asked_for(run_dummy: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HYDRA_FULL_ERROR", "1")
    found = run_dummy(refuse, "decoding.beam_size=0")
    assert found.status == 2 and "Traceback" in found.err


def test_two_processes_never_write_to_one_directory(run_dummy: Run, folder: Path) -> None:
    (folder / "run").mkdir()
    with locked(folder / "run"):
        message = run_dummy(note, "output=run").refused()
    owner = f"process {os.getpid()} on {socket.gethostname()} ("
    assert message.startswith(f"prune-lab-dummy: run: in use by {owner}")
    assert message.endswith("wait for it, or choose another output=")
    assert list((folder / "run").iterdir()) == []


def test_the_lock_of_a_dead_process_is_taken_over(run_dummy: Run, folder: Path) -> None:
    (folder / "run").mkdir()
    (folder / "run" / ".lock").write_text('{"pid": 1, "host": "elsewhere", "command": "x"}')
    assert run_dummy(note, "output=run").status == 0
    assert not (folder / "run" / ".lock").exists()


def test_other_processes_of_a_run_share_its_directory(
    run_dummy: Run, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "run").mkdir()
    monkeypatch.setenv("LOCAL_RANK", "1")
    with locked(folder / "run"):
        assert run_dummy(note, "output=run").status == 0
        assert sorted(path.name for path in (folder / "run").iterdir()) == [".lock", "result.json"]


def test_jobs_of_a_multirun_have_a_directory_each(run_dummy: Run, folder: Path) -> None:
    found = run_dummy(note, "--multirun", "decoding.max_length_a=7", "seed=1,2")
    assert found.status == 0, found.err
    (sweep,) = (folder / "multirun" / "dummy").iterdir()
    assert sweep.name.startswith("max_length_a-7_seed-1-2_")
    jobs = {path.parent.name: json.loads(path.read_text()) for path in sweep.glob("*/result.json")}
    assert sorted(name.rpartition("_")[0] for name in jobs) == ["seed-1", "seed-2"]
    assert sorted(config["seed"] for config in jobs.values()) == [1, 2]
    assert all(config["decoding"]["max_length_a"] == 7 for config in jobs.values())
    assert run_dummy(note, "--multirun", "decoding.max_length_a=7", "seed=1,2").status == 0
    assert len(list(sweep.glob("*/result.json"))) == 2
    assert all(SAFE.fullmatch(part) for path in sweep.rglob("*") for part in path.relative_to(folder).parts)


def test_each_failing_job_is_told_and_the_others_finish(run_dummy: Run, folder: Path) -> None:
    def work(config: dict[str, Any], directory: Path) -> None:
        refuse(config)
        if config["seed"] == 3:
            raise RuntimeError("the sizes differ")
        note(config, directory)

    found = run_dummy(work, "-m", "output=sweep", "seed=1,3", "decoding.beam_size=0,5")
    assert found.status == 1
    assert len(list((folder / "sweep").glob("*/result.json"))) == 1
    assert "error: job 0: decoding.beam_size: 0; allowed" in found.err
    assert "error: job 2: decoding.beam_size: 0; allowed" in found.err
    assert "error: job 3: RuntimeError" in found.err and found.err.count("Traceback") == 1
    assert "Error executing job" not in found.err, "a line of Hydra's"
    assert found.err.endswith("prune-lab-dummy: failed: job 0, job 2, job 3\n")
    (log,) = (path for path in (folder / "sweep").glob("*/dummy.log") if "Traceback" in path.read_text())
    assert log.parent.name.startswith("seed-3_beam_size-5_")
    found = run_dummy(work, "-m", "output=other", "seed=1", "decoding.beam_size=0")
    lines = [line.partition(";")[0] for line in found.err.splitlines()]
    assert lines == [
        "job 0: output=other seed=1 decoding.beam_size=0",
        "error: job 0: decoding.beam_size: 0",
        "prune-lab-dummy: failed: job 0",
    ]
    assert found.status == 2 and not (folder / "other").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["speed.num_line=3"],
            "unknown key speed.num_line (did you mean speed.num_lines?); allowed in speed are num_li",
        ),
        (
            ["beam_size=3"],
            "unknown key beam_size (did you mean decoding.beam_size?); allowed are data, decoding, output",
        ),
        (["data.train.sauce=f"], "unknown key data.train.sauce; allowed in data.train are num_pairs"),
        (["data=text", "data.train.sauce=f"], "unknown key data.train.sauce (did you mean data.train.source"),
        (["data.options={num_nouns: 9}"], "data.options: not all of these are set in it; to add keys, put a plus sign"),
        (["+datas=text", "export=x"], "unknown key datas; allowed are data, decoding, output, export, split"),
        (["+datas.x=text", "export=x"], "unknown key datas.x; allowed are data"),
        (["data=multi30"], "data=multi30: no such option (did you mean multi30k"),
        (["decoding=sample"], "decoding=sample: no such option; allowed are beam, greedy"),
        (["decoding=null"], "decoding=null: no such option; allowed are beam, greedy"),
        (["decoding=[1]"], "decoding=[1]: no such option; allowed are beam, greedy"),
        (["decoding=true"], "decoding=true: no such option; allowed are beam, greedy"),
        (["~decoding"], "decoding is missing; it cannot be left out, and takes the options beam, greedy"),
        (["label=3"], "label: 3; allowed are text, and null"),
        (["output=3"], "output: 3; allowed are text (./3 for a path that is a number), and null"),
        (["export=x", "data.test=3"], "data.test is 3; it must hold num_pairs"),
        (["seed=1,2"], "seed=1,2: more than one value; write seed=[1,2] for a list, or add --multirun"),
        (["export=a b,c"], "export=a b,c: more than one value"),
        (["label='"], "label=': not readable as KEY=VALUE; special characters need quotes, as in 'KEY=\"VALUE\"'"),
        (["split"], "split: not readable as KEY=VALUE"),
        ([], "export is not set; give it as export=VALUE (see --help)"),
        (["export=${nothing}"], "export: Interpolation key 'nothing' not found"),
        (["--multirun", "export=x", "splits=a,b"], "unknown key splits (did you mean split?); allowed are data"),
        (["--multirun", "export=x", "data=text,nothing"], "data=nothing: no such option"),
    ],
    ids=str,
)
def test_what_is_wrong_with_the_command_line(run: Run, folder: Path, arguments: list[str], message: str) -> None:
    assert run("evaluate", *arguments).refused().startswith(f"prune-lab-evaluate: {message}")
    assert list(folder.iterdir()) == []


def test_a_file_in_place_of_a_directory(run_dummy: Run, folder: Path) -> None:
    (folder / "file").write_text("x")
    for output in ("file", "file/below"):
        message = run_dummy(note, f"output={output}").refused()
        assert message == f"prune-lab-dummy: output={output}: is a file or below one; allowed is a directory"
    assert (folder / "file").read_text() == "x"


def test_errors_of_the_file_system_name_the_file() -> None:
    error = FileNotFoundError(2, "No such file or directory", "a/b.txt")
    assert is_user_error(error) and one_line(error) == "a/b.txt: no such file or directory"
    assert not is_user_error(ZeroDivisionError("x")) and not is_user_error(ValueError("not raised here"))


def test_a_key_that_nothing_takes(run_dummy: Run, folder: Path) -> None:
    message = run_dummy(refuse, "+decoding.temperature=1").refused()
    assert message == "prune-lab-dummy: unknown key decoding.temperature; it was added with +, and nothing takes it"
    assert list(folder.iterdir()) == []
    found = run_dummy(lambda config, directory: DecodingOptions(temperature=1))  # type: ignore[call-arg]
    assert found.status == 1 and "TypeError" in found.err


@pytest.mark.parametrize("name", ["evaluate", "translate", "report"])
def test_help_says_what_it_does_and_explains_the_keys(run: Run, folder: Path, name: str) -> None:
    found = run(name, "--help")
    assert found.status == 0 and found.err == ""
    lines = found.out.splitlines()
    assert lines[0].startswith(f"prune-lab-{name}: ")
    assert sum(line.startswith(f"  prune-lab-{name} ") or f"| prune-lab-{name} " in line for line in lines) >= 2
    keys = yaml.safe_load((config_directory() / f"{name}.yaml").read_text())
    for key in set(keys) - {"defaults", "hydra"}:
        assert any(line.startswith(f"{key}:") for line in lines), key
    assert "hydra:" not in found.out and "defaults:" not in found.out
    if name != "report":
        assert "decoding=beam   (there is: beam, greedy)" in found.out and "    beam_size: 5" in found.out
    assert list(folder.iterdir()) == []


def test_help_shows_the_values_in_force(run: Run, folder: Path) -> None:
    """Also where a group changes those of the command's file, or the command those of a group, or an override both."""
    lines = run("study", "--help", "seed=7").out.splitlines()
    assert "  name: quickstart" in lines and "    vocab_size: 600" in lines and "vocab_size: 8000" not in "".join(lines)
    assert "seed: 7                   # of the base model" in lines
    assert "  budgets: [18, 12, 6]    # heads to keep, for methods that keep an exact number" in lines
    assert [line for line in lines if line.startswith("  study:")] == ["  study:"], "a global group has no key above it"
    lines = run("prune", "--help").out.splitlines()
    assert {line.split("#")[0].strip() for line in lines if "max_steps: " in line} == {
        "trainer: {max_steps: 0}",
        "max_steps: 0",
    }
    assert "Groups" not in run("report", "--help").out


def test_the_configuration_can_be_shown(run: Run, folder: Path) -> None:
    found = run("evaluate", "--cfg", "job", "export=x", "decoding=greedy")
    config = yaml.safe_load(found.out)
    assert (found.status, config["export"], config["decoding"]["beam_size"]) == (0, "x", 1)
    assert "hydra" not in config
    assert list(folder.iterdir()) == []


def test_the_key_of_a_decoding_is_the_one_named() -> None:
    assert decoding_options({"beam_size": 2}).beam_size == 2
    with pytest.raises(ValueError, match="^validation_decoding.beam_size: 0; allowed"):
        decoding_options({"beam_size": 0}, "validation_decoding")
    with pytest.raises(ValueError, match="^unknown key validation_decoding.beam"):
        decoding_options({"beam": 0}, "validation_decoding")


def test_decoding_files_agree_with_the_library() -> None:
    files = {path.stem: yaml.safe_load(path.read_text()) for path in (config_directory() / "decoding").glob("*.yaml")}
    assert DecodingOptions(**files["beam"]) == DEFAULT_DECODING
    assert DecodingOptions(**files["greedy"]) == DecodingOptions(**{**files["beam"], "beam_size": 1})
    assert all(set(values) == set(vars(DEFAULT_DECODING)) for values in files.values())


def finished(directory: Path, command: str, config: dict[str, Any]) -> None:
    """A directory as a run of `command` leaves it."""
    (directory / "export").mkdir(parents=True)
    (directory / f"{command}.yaml").write_text(yaml.safe_dump(config))


def test_options_that_an_earlier_release_did_not_have_are_none(tmp_path: Path) -> None:
    finished(tmp_path, "train", {"attention": {"name": "multi_head", "options": {}}, "seed": 1})
    now = {"attention": {"name": "multi_head", "options": {"value_head_dim": None}}, "seed": 1}
    refuse_another(tmp_path, "train", now)
    now["attention"]["options"]["value_head_dim"] = 8  # type: ignore[index]
    with pytest.raises(ValueError, match="^attention.options.value_head_dim: 8, but .* holds results with None"):
        refuse_another(tmp_path, "train", now)


def test_a_directory_with_results_takes_the_same_settings_only(tmp_path: Path) -> None:
    config = {"seed": 1, "optimizer": {"lr": 0.1}, "trainer": {"max_steps": 4}, "output": None}
    refuse_another(tmp_path, "train", config)
    finished(tmp_path, "train", config)
    refuse_another(tmp_path, "train", {**config, "output": str(tmp_path), "trainer": {"max_steps": 8}})
    with pytest.raises(ValueError, match=r"^optimizer.lr: 0.5, but .* holds results with 0.1; choose another output="):
        refuse_another(tmp_path, "train", {**config, "optimizer": {"lr": 0.5}})
    with pytest.raises(ValueError, match="holds results of prune-lab-train; choose another directory"):
        refuse_another(tmp_path, "evaluate", {"export": "x"})
    refuse_another(tmp_path, "report", {"runs": [str(tmp_path)]})
