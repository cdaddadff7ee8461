"""prune-lab-report: one report of any set of runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from prune_lab.commands.entry import command


def check(config: dict[str, Any]) -> None:
    """The directories, before anything slow is imported."""
    for path in run_directories(config):
        if not path.exists():
            raise FileNotFoundError(f"runs: {path} does not exist; allowed are run, multirun and study directories")


def run(config: dict[str, Any], directory: Path) -> None:
    """Collects the records and writes the report."""
    from prune_lab.commands.unfinished import NO_RECORD, unfinished
    from prune_lab.results.collect import collect

    paths = run_directories(config)
    records = collect(paths)
    lacking = unfinished(paths)
    if not records:
        known = "".join(f"; {place}: {what}" for place, what in lacking if what != NO_RECORD)
        listed = ", ".join(map(str, paths))
        raise ValueError(f"runs: no record.json in or below {listed}; a finished run leaves one{known}")
    from prune_lab.results.answers_text import answers_text
    from prune_lab.results.head_roles import collect_analyses, roles_by_model
    from prune_lab.results.head_sizes_section import head_sizes_text
    from prune_lab.results.report import write_report
    from prune_lab.results.roles_kept_section import roles_kept_text
    from prune_lab.results.score_files import collect_scores

    title = {"title": config["title"]} if config["title"] is not None else {}
    unfinished_runs = [(str(place), what) for place, what in lacking]
    analyses = collect_analyses(paths)
    roles = roles_by_model(analyses)
    found_in_files: dict[str, Any] = {"scores": collect_scores(paths), "roles": roles, "analyses": analyses}
    page = write_report(records, directory, unfinished=unfinished_runs, **found_in_files, **title)
    num_failed = sum(not record.complete for record in records)
    print(f"{len(records) - num_failed} models evaluated" + (f", {num_failed} failed" if num_failed else ""))
    for place, what in lacking:
        print(f"unfinished: {place} ({what})")
    texts = (answers_text(records), roles_kept_text(records, roles), head_sizes_text(analyses, records))
    for text in filter(None, texts):
        print(text)
    print(f"report: {page}")


def run_directories(config: dict[str, Any]) -> list[Path]:
    """The directories under the key `runs`: a list, or a single one."""
    runs = config["runs"]
    listed = [runs] if isinstance(runs, str) else runs
    if not isinstance(listed, list) or not listed or not all(isinstance(path, str) for path in listed):
        raise ValueError(f"runs: {runs!r}; allowed is a list of directories, runs=[DIR,DIR]")
    return [Path(path) for path in listed]


main = command("report", run, check=check, goes_on=False)
