"""What is installed: the configuration in the wheel, the scripts, and which modules import what."""

import ast
import os
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "prune_lab"
SCRIPTS = ("study", "train", "prune", "evaluate", "translate", "report")
LIGHTNING = ("pytorch_lightning", "lightning")
# Who may import what, by the first parts of the path inside the package.
ALLOWED = {
    "hydra": ("commands",),
    "omegaconf": ("commands",),
    "wandb": ("commands", "training/callbacks/wandb_run.py"),
    **dict.fromkeys(LIGHTNING, ("training", "data/datamodule.py")),
    "matplotlib": ("results", "analysis"),
    "transformers": ("checkpoints",),
    "comet": ("evaluation/comet.py",),
}


def modules() -> list[str]:
    """All modules of the package by their path in it."""
    return sorted(path.relative_to(PACKAGE).as_posix() for path in PACKAGE.rglob("*.py"))


def imported(module: str) -> Iterator[str]:
    """The names that a module imports when it runs, wherever in it; not those for type checkers alone."""
    tree = ast.parse((PACKAGE / module).read_text(encoding="utf-8"))
    skipped = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            skipped |= {id(inner) for statement in node.body for inner in ast.walk(statement)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import) and id(node) not in skipped:
            yield from (entry.name for entry in node.names)
        elif isinstance(node, ast.ImportFrom) and id(node) not in skipped:
            assert node.level == 0, f"{module}: relative import"
            yield node.module or ""


@pytest.mark.parametrize("module", modules())
def test_each_library_is_imported_only_where_it_belongs(module: str) -> None:
    for name in imported(module):
        places = ALLOWED.get(name.partition(".")[0])
        assert places is None or module.startswith(places), f"{module} imports {name}"


_BELOW = ("model", "decoding", "attention", "gates", "data", "heads", "threads", "plain_values")
# What each part of the package may import of the package.
LAYERS = {
    "heads.py": (),
    "threads.py": (),
    "allocator.py": (),
    "kernels.py": (),
    "plain_values.py": (),
    "attention": ("attention", "heads", "kernels"),
    "gates": ("gates", "attention", "heads"),
    "decoding": ("decoding", "kernels"),
    "data": ("data",),
    "model": ("model", "decoding", "attention", "gates", "data", "heads", "kernels"),
    "pruning": ("pruning", "evaluation", *_BELOW),
    "results": ("results", "heads", "version", "plain_values"),
    "analysis": ("analysis", "results", *_BELOW),
    "evaluation": ("evaluation", "analysis", "results", *_BELOW, "allocator", "kernels", "version"),
}
# Training knows all that evaluation knows, but for the version.
LAYERS["training"] = ("training", *(part for part in LAYERS["evaluation"] if part != "version"))


@pytest.mark.parametrize("module", modules())
def test_dependencies_point_one_way(module: str) -> None:
    """Commands on the study, the study on its parts, these on the model, the model on attention, gates and data."""
    part = module.partition("/")[0]
    for name in imported(module):
        if name.partition(".")[0] != "prune_lab" or part not in LAYERS:
            continue
        used = [*name.split("."), ""][1]
        assert used in LAYERS[part], f"{module} imports {name}"


def test_only_commands_import_commands_and_only_they_and_the_study_import_the_study() -> None:
    for module in modules():
        for name in imported(module):
            if name.startswith("prune_lab.commands"):
                assert module.startswith("commands/"), module
            if name.startswith("prune_lab.study"):
                assert module.startswith(("commands/", "study/")), module


def test_no_module_imports_a_console_script() -> None:
    """What two of them need has a module of its own."""
    scripts = {f"prune_lab.commands.{name}" for name in SCRIPTS}
    for module in modules():
        assert not scripts & set(imported(module)), module


def python(code: str, folder: Path, **environment: str) -> str:
    """Runs code in a new process in a folder; returns what it prints."""
    found = subprocess.run(
        [sys.executable, "-c", code],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
        capture_output=True,
        text=True,
    )
    assert found.returncode == 0, found.stderr
    return found.stdout


@pytest.mark.slow
def test_a6_no_module_needs_transformers_and_heads_needs_no_torch(tmp_path: Path) -> None:
    """Every module of the package is imported, with `transformers` out of reach."""
    names = ["prune_lab." + module.removesuffix(".py").replace("/", ".") for module in modules()]
    names = [name.removesuffix(".__init__") for name in names if name != "prune_lab.__init__"]
    code = f"""
import importlib, sys
sys.modules["transformers"] = None
import prune_lab.heads
assert "torch" not in sys.modules, "prune_lab.heads imports torch"
for name in {names}:
    importlib.import_module(name)
print(sum(name.startswith("prune_lab.") for name in sys.modules))
"""
    assert int(python(code, tmp_path)) >= len(names)


@pytest.mark.slow
def test_a6_the_whole_flow_passes_without_transformers(tmp_path: Path, tiny: list[str], tiny_text: list[str]) -> None:
    """Every command, in a process that cannot import it."""
    text = [override for override in tiny_text if not override.startswith("validation_decoding")]
    tuning = "study.tuning={updates: 2, recovery_updates: 1, learning_rate: 0.002}"
    methods = [f"~study.methods.{name}" for name in ("gradient_recovery", "random")]
    study = [*tiny, tuning, *methods, "study.methods.hard_concrete.weights=[0.1]", "study.budgets=[3]"]
    commands = [
        ["train", *tiny, "trainer.max_steps=2", "logger=csv", "output=base"],
        ["train", *tiny, "trainer.max_steps=2", "logger=csv", "gates=hard_concrete", "penalty.weight=0.1",
         "init_from=base", "output=gated"],
        ["prune", *tiny_text, "export=base", "budgets=[3]", "training.max_tokens=600", "speed=null", "output=pruned"],
        ["evaluate", *text, "export=pruned/3-heads", "speed=null", "output=evaluated"],
        ["translate", "export=pruned/3-heads", "input=lines", "output=translations"],
        ["study", *study, "training.average_decay=null", "study.speed=null", "output=study"],
        ["report", "runs=[base,gated,pruned,evaluated,study]", "output=report"],
    ]  # fmt: skip
    (tmp_path / "lines").write_text("a b\n")
    code = f"""
import importlib, sys
sys.modules["transformers"] = None
for name, *arguments in {commands!r}:
    sys.argv = [f"prune-lab-{{name}}", *arguments]
    importlib.import_module(f"prune_lab.commands.{{name}}").main()
"""
    said = python(code, tmp_path)
    assert said.splitlines()[-1] == "report: report/report.html"
    for file in ("translations", "study/report.html", "study/points/gradient-3heads-seed1/export/model.safetensors"):
        assert (tmp_path / file).is_file()


def test_a_model_works_without_lightning_hydra_and_wandb(tiny_run: Path, tmp_path: Path) -> None:
    """It loads, runs, translates, is pruned, scored and saved in a process that cannot import them."""
    code = f"""
import sys
for name in ("pytorch_lightning", "lightning", "hydra", "omegaconf", "wandb", "transformers"):
    sys.modules[name] = None
from prune_lab import HeadMask, Transformer, Translator, mask_heads, prune_heads, score_heads
from prune_lab.data.batching import EncodedCorpus
model = Transformer.from_pretrained({str(tiny_run / "export")!r})
pairs = [("a b", "b a"), ("c", "d e")]
scores = score_heads(model, [EncodedCorpus.encode(model.tokenizer, pairs).batch([0, 1])], criterion="gradient")
mask = HeadMask.removing({{"encoder.0.self": [1]}}, model)
pruned = prune_heads(model, mask)
pruned.save_pretrained("pruned")
lines = Translator.from_pretrained("pruned").translate(["a b", ""])
assert lines == Translator(mask_heads(model, mask)).translate(["a b", ""]) and lines[1] == ""
print(scores.num_heads, sum(map(len, Transformer.from_pretrained("pruned").heads().values())))
"""
    assert python(code, tmp_path) == "6 5\n"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of this checkout."""
    pytest.importorskip("hatchling")
    directory = tmp_path_factory.mktemp("wheel")
    code = "import sys; from hatchling.build import build_wheel; print(build_wheel(sys.argv[1]))"
    built = subprocess.run(
        [sys.executable, "-c", code, str(directory)], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return directory / built.stdout.splitlines()[-1]


def test_the_wheel_holds_the_package_its_configuration_and_its_scripts(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        scripts = archive.read(next(name for name in names if name.endswith("entry_points.txt"))).decode()
    for path in (ROOT / "conf").rglob("*.yaml"):
        assert f"prune_lab/conf/{path.relative_to(ROOT / 'conf').as_posix()}" in names
    assert {f"prune_lab/{module}" for module in modules()} <= names
    viewer = [path.relative_to(PACKAGE) for path in (PACKAGE / "analysis" / "attention_page").iterdir()]
    assert viewer and {f"prune_lab/{path.as_posix()}" for path in viewer} <= names
    for name in SCRIPTS:
        assert f"prune-lab-{name} = prune_lab.commands.{name}:main" in scripts
        assert find_spec(f"prune_lab.commands.{name}") is not None
    others = {name for name in names if not name.startswith("prune_lab/") and ".dist-info/" not in name}
    assert others == set(), "nothing beside the package"
    assert not any(name.endswith((".pyc", ".ckpt", ".safetensors")) for name in names)


@pytest.mark.slow
def test_an_installed_wheel_works_from_an_empty_folder(wheel: Path, tmp_path: Path) -> None:
    """A new environment that sees this one's libraries, and nothing of the checkout."""
    place, folder = tmp_path / "venv", tmp_path / "folder"
    folder.mkdir()
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(place)], check=True)
    (packages,) = place.glob("lib/python*/site-packages")
    libraries = [path for path in sys.path if path.endswith("site-packages")]
    (packages / "libraries.pth").write_text("".join(f"{path}\n" for path in libraries))
    subprocess.run(
        [
            sys.executable,
            "-m",
            "pip",
            "install",
            "-q",
            "--no-deps",
            "--no-index",
            "--target",
            str(packages),
            str(wheel),
        ],
        check=True,
    )
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}

    def command(name: str, *arguments: str) -> str:
        code = f"from prune_lab.commands.{name} import main; main()"
        found = subprocess.run(
            [str(place / "bin" / "python"), "-c", code, *arguments],
            cwd=folder, env=environment, capture_output=True, text=True, stdin=subprocess.DEVNULL,
        )  # fmt: skip
        assert found.returncode == 0, found.stderr
        return found.stdout

    where = subprocess.run(
        [str(place / "bin" / "python"), "-c", "import prune_lab; print(prune_lab.__file__)"],
        cwd=folder, env=environment, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert where.stdout.startswith(str(packages))
    assert "name: quickstart" in command("study", "--cfg", "job")
    assert list(folder.iterdir()) == []
    sizes = [f"data.{split}.num_pairs={num}" for split, num in (("train", 100), ("validation", 4), ("test", 4))]
    updates = ["model=micro", "tokenizer.vocab_size=120", "trainer.max_steps=2", "logger=csv", "decoding=greedy"]
    said = command("train", *sizes, *updates, "output=run")
    assert "export: run/export" in said and (folder / "run" / "export" / "config.json").is_file()
