"""A whole study: base, base trained on, all points, report. What `prune-lab-study` does, usable from Python."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from pathlib import Path

from prune_lab.data.tokenizer import Tokenizer
from prune_lab.results.answers_text import answers_text
from prune_lab.results.beside_published import published_text
from prune_lab.results.collect import collect
from prune_lab.results.files import write_atomically
from prune_lab.results.head_roles import collect_roles
from prune_lab.results.making_time import time_text
from prune_lab.results.record import Record
from prune_lab.results.report import write_report
from prune_lab.results.roles_kept_section import roles_kept_text
from prune_lab.results.score_files import collect_scores
from prune_lab.results.single_heads import single_heads_text
from prune_lab.results.table import text_table
from prune_lab.study.head_analysis import analyse_heads
from prune_lab.study.identity import IDENTITY, check_identity, contents_of
from prune_lab.study.plan import Point
from prune_lab.study.setup import StudySetup
from prune_lab.study.single_heads import measure_single_heads
from prune_lab.study.stages import Stages
from prune_lab.training.files import DamagedFileError

TOKENIZER = "tokenizer.json"

log = logging.getLogger(__name__)


class StudyIncompleteError(RuntimeError):
    """Some points failed; the message names them.

    Attributes:
        exit_status: of the command: 2 when all that is in the way are damaged files, which the user can remove, else 1.
    """

    def __init__(self, failures: Mapping[str, Exception]) -> None:
        names = ", ".join(failures)
        super().__init__(f"{len(failures)} of the study's points failed: {names}; the same command tries again")
        self.exit_status = 2 if all(isinstance(error, DamagedFileError) for error in failures.values()) else 1


def run_study(setup: StudySetup, directory: str | Path) -> list[Record]:
    """Do every stage that is not done yet, then write the report.

    A point that fails leaves a record with its reason, and the others go on; the same call later does it again.

    Args:
        setup: what to do.
        directory: where; made if needed.

    Returns:
        the records, the unpruned models first.

    Raises:
        ValueError: the directory holds a study with other models or data.
        DamagedFileError: a file that the study left cannot be read, and it is not of a point.
        StudyIncompleteError: after the report, when points failed.
    """
    directory = Path(directory)
    is_new = check_identity(setup.config, setup.plan, contents_of(setup.splits, setup.trained_base), directory)
    stages = Stages(setup, directory)
    stages.score_what_is_done()
    try:
        _keep_tokenizer(setup.tokenizer, directory / TOKENIZER)
        stages.base()
    except ValueError:
        if is_new and not (directory / "base").exists():
            # Nothing was done yet: a setting that the training refuses is mended and the same command run again.
            for name in (IDENTITY, TOKENIZER):
                (directory / name).unlink(missing_ok=True)
        raise
    failures = analyse_heads(stages)
    if setup.plan.trains:
        stages.continued()
    errors = {point.name: _failure(stages, point) for point in setup.plan.points()}
    failures |= {name: error for name, error in errors.items() if error is not None} | measure_single_heads(stages)
    records = collect([directory])
    title, scores, roles = f"Study {setup.plan.name}", collect_scores([directory]), collect_roles([directory])
    report = write_report(records, directory, title=title, configuration=setup.config, scores=scores, roles=roles)
    print()
    print(text_table(records))
    parts = (answers_text(records), time_text(records), single_heads_text(records), roles_kept_text(records, roles))
    for text in filter(None, (*parts, published_text(records, setup.config))):
        print(f"\n{text}\n")
    print(f"report: {report}")
    if failures:
        raise StudyIncompleteError(failures)
    return records


def _keep_tokenizer(tokenizer: Tokenizer, path: Path) -> None:
    """Keep the tokenizer of all models of the study.

    Raises:
        ValueError: the study has another one.
    """
    if not path.exists():
        write_atomically(path, json.dumps(tokenizer.content, ensure_ascii=False) + "\n")
    elif Tokenizer.load(path).hash != tokenizer.hash:
        raise ValueError(f"{path}: the study has this tokenizer, not one with the hash {tokenizer.hash}")


def _failure(stages: Stages, point: Point) -> Exception | None:
    """Make a point; if that cannot be, leave a record of why, and return it."""
    try:
        stages.point(point)
    except Exception as error:
        is_mendable = isinstance(error, DamagedFileError)
        reason = str(error) if is_mendable else " ".join(f"{type(error).__name__}: {error}".split())
        log.error(f"{point.name}: failed ({reason}); going on", exc_info=None if is_mendable else error)
        settings = {"point": point.key, "penalty_weight": point.weight, "budget": point.budget}
        record = Record(
            method=point.method.name,
            seed=point.seed,
            label=point.label,
            status="failed",
            reason=reason,
            settings={key: value for key, value in settings.items() if value is not None},
        )
        record.save(stages.place_of(point))
        stages.progress.failed(point.name)
        return error
    return None
