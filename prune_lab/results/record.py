"""The record: one JSON file that a run leaves behind, with all that the report needs."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from prune_lab.results.files import json_text, write_atomically
from prune_lab.results.validation import REQUIRED, check_agreement, check_kinds, plain

FORMAT_VERSION = 1
FILE_NAME = "record.json"


@dataclass(frozen=True, kw_only=True)
class Record:
    """One evaluated model, or one failed run.

    A complete record names its heads, its scores with their signatures, and the settings they were measured with;
    a failed one needs only `method`, `seed` and `reason`. Values that JSON has no type for (paths, tuples, NumPy
    numbers, infinities) are made plain when the record is built. Keys that are not known are ignored on reading,
    so that records of a later release load as long as `format_version` is the same.

    Attributes:
        method: What chose the heads: `unpruned`, `hard_concrete`, `gradient`, `random`, `gradient_recovery`, ...
        seed: The seed of the run, an axis of the study.
        label: Name of the point for people; the method if empty.
        status: `complete` or `failed`.
        reason: Why a failed run failed, in one line.
        state: `unpruned`, `masked` (heads are zero, shapes as before) or `pruned` (heads are removed).
            A masked record holds neither size nor speed, since nothing became smaller.
        remaining_heads: Number of heads that remain.
        total_heads: Number of heads of the unpruned model.
        heads: Site -> numbers of the heads that remain, as numbered in the unpruned model; all sites, empty ones too.
        original_heads: Site -> number of heads in the unpruned model.
        bleu: Corpus BLEU on the test set, in full precision.
        bleu_signature: Its full sacrebleu signature.
        chrf: Corpus chrF on the test set.
        chrf_signature: Its full sacrebleu signature.
        comet: System score of a COMET model on the test set, as the model gives it (not multiplied by 100), or None.
        comet_model: None, or what COMET scores must share to be compared: name, hash (of the checkpoint), version (of
            unbabel-comet), precision.
        num_sentences: Number of test sentences.
        test_set: `name`, and `references_hash` (see `files.hash_lines`).
        decoding: beam_size, length_penalty (alpha) and length_penalty_formula, max_length_a, max_length_b,
            stop_rule, batch_size, ...
        decoding_kind: `greedy` or `beam`.
        validation_bleu: BLEU on the validation text, which choices are made on.
        validation_decoding: The search that it is of, `greedy` or `beam 5`: not always that of the test BLEU.
        parameters: Number of parameters of the exported model.
        file_bytes: Size of its weights file.
        attention: None (masked models, and records of earlier releases), or the model's attention and its cost:
            `variant` (`{"name", "options"}`, or a mapping from kind of site to that), `head_dim` (head width in encoder
            and decoder), `source_length` and `target_length` of the sentence that the cost is of, and the numbers of
            `prune_lab.analysis.cost.attention_cost`: parameters, flops, active_flops, cache_bytes, ...
        speed: None, or `sentences_per_second` (median), `spread` ([low, high]), repeats, warm_up, device, dtype,
            threads, batch_size, ...
        settings: criterion, scope, floor, penalty_weight, updates, recovery_updates, ...; the records of several
            seeds that share `settings["point"]` are one point of a curve.
        training: How training computed, as far as its results depend on it: products (type of the matrix products),
            parts (threads that shared a batch); empty where nothing was trained.
        base_hash: Hash of the weights of the base model.
        weights_hash: Hash of the model's own weights.
        export: Directory of the exported model, relative to the directory of the record.
        hypotheses: File of the translations that were scored, relative to the directory of the record.
        gate_evaluation: How gates were evaluated, `round` or `fraction`; None without gates.
        seeds: The separate seeds: data, dropout, gates, model.
        versions: torch, sacrebleu, prune_lab, python, ...
        hardware: What the run ran on, for people.
        started: Time stamp in ISO 8601.
        finished: Time stamp in ISO 8601.
        seconds: What each part took, in all processes that had a part in it: training and choosing (scores of heads and
            factors on them; in training for heads that go while a model trains), which count all that leads from the
            base to this model, also what it shares with other models; then decoding, scoring (BLEU and chrF), comet,
            speed. Without `choosing`, the training of a study's point is all that it took to make in one process.
        config: The full configuration of the run.
        significance: None, or the comparison with an unpruned model: baseline (its `method`: in a study `base` for
            points that train nothing, `unpruned` for others) and baseline_bleu, difference, low, high, p_value,
            differences (one for each resample), ..., all of the paired bootstrap; and `randomisation`, with p_value,
            num_samples, seed and differences (packed) of approximate randomisation. Records of earlier releases and of
            `prune-lab-evaluate` lack `baseline`, and the oldest `randomisation`.
        directory: Where the record was read from or saved to; not stored.
    """

    method: str
    seed: int
    label: str = ""
    status: str = "complete"
    reason: str = ""
    state: str | None = None
    remaining_heads: int | None = None
    total_heads: int | None = None
    heads: dict[str, list[int]] = field(default_factory=dict)
    original_heads: dict[str, int] = field(default_factory=dict)
    bleu: float | None = None
    bleu_signature: str | None = None
    chrf: float | None = None
    chrf_signature: str | None = None
    comet: float | None = None
    comet_model: dict[str, Any] | None = None
    num_sentences: int | None = None
    test_set: dict[str, Any] = field(default_factory=dict)
    decoding: dict[str, Any] = field(default_factory=dict)
    decoding_kind: str | None = None
    validation_bleu: float | None = None
    validation_decoding: str | None = None
    parameters: int | None = None
    file_bytes: int | None = None
    attention: dict[str, Any] | None = None
    speed: dict[str, Any] | None = None
    settings: dict[str, Any] = field(default_factory=dict)
    training: dict[str, Any] = field(default_factory=dict)
    base_hash: str | None = None
    weights_hash: str | None = None
    export: str | None = None
    hypotheses: str | None = None
    gate_evaluation: str | None = None
    seeds: dict[str, Any] = field(default_factory=dict)
    versions: dict[str, Any] = field(default_factory=dict)
    hardware: str = ""
    started: str = ""
    finished: str = ""
    seconds: dict[str, Any] = field(default_factory=dict)
    config: dict[str, Any] = field(default_factory=dict)
    significance: dict[str, Any] | None = None
    directory: Path | None = field(default=None, compare=False, repr=False)

    def __post_init__(self) -> None:
        """Makes all values plain and checks them.

        Raises:
            ValueError: A key is missing, has a value of the wrong kind, or contradicts another one.
        """
        for name in _STORED:
            object.__setattr__(self, name, plain(getattr(self, name), name))
        check_kinds(self)
        check_agreement(self)

    @property
    def complete(self) -> bool:
        """Whether the run ended with scores."""
        return self.status == "complete"

    @property
    def point(self) -> str:
        """What the runs of several seeds of one point have in common."""
        point = self.settings.get("point")
        return str(self.remaining_heads if point is None else point)

    @property
    def name(self) -> str:
        """The label, or the method where there is none."""
        return self.label or self.method

    def path_of(self, name: str) -> Path | None:
        """Where `export` or `hypotheses` is, seen from here; None if there is none or the record has no place."""
        relative = getattr(self, name)
        return None if relative is None or self.directory is None else self.directory / relative

    def to_dict(self) -> dict[str, Any]:
        """The record as plain values, `format_version` first."""
        return {"format_version": FORMAT_VERSION, **{name: getattr(self, name) for name in _STORED}}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any], *, source: str = FILE_NAME, directory: Path | None = None) -> Record:
        """Builds a record from plain values.

        Args:
            data: What `to_dict` returned; unknown keys are ignored.
            source: Name of the file, for messages.
            directory: Directory that the paths in the record start from.

        Raises:
            ValueError: In one line, naming the file and the key.
        """
        if not isinstance(data, Mapping):
            raise ValueError(f"{source}: a record is a JSON object, not {type(data).__name__}")
        version = data.get("format_version")
        if not isinstance(version, int) or not 1 <= version <= FORMAT_VERSION:
            raise ValueError(f"{source}: format_version is {version!r}; this release reads 1 to {FORMAT_VERSION}")
        for name in REQUIRED:
            if name not in data:
                raise ValueError(f"{source}: required record key {name!r} is missing")
        try:
            return cls(**{name: data[name] for name in _STORED if name in data}, directory=directory)
        except ValueError as error:
            raise ValueError(f"{source}: {error}") from error

    def save(self, directory: str | os.PathLike[str]) -> Path:
        """Writes `record.json` into a directory, in one step, and returns its path."""
        path = write_atomically(Path(directory) / FILE_NAME, json_text(self.to_dict()))
        object.__setattr__(self, "directory", path.parent)
        return path

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Record:
        """Reads a record file, or the `record.json` of a directory.

        Raises:
            FileNotFoundError: There is no such file.
            ValueError: The file is truncated or no record; in one line that names the file.
        """
        path = Path(path)
        if path.is_dir():
            path = path / FILE_NAME
        if not path.is_file():
            raise FileNotFoundError(f"{path}: no such record; a finished run leaves a {FILE_NAME} in its directory")
        try:
            data = json.loads(path.read_text(encoding="utf-8"))
        except (json.JSONDecodeError, UnicodeDecodeError) as error:
            raise ValueError(f"{path}: not valid JSON, the file may be truncated ({error})") from error
        return cls.from_dict(data, source=str(path), directory=path.parent)

    @classmethod
    def of_export(cls, export: str | os.PathLike[str]) -> Record | None:
        """The complete record of the run that made an export: it knows what chose the heads. None where there is none.

        Raises:
            ValueError: There is a file of that name, and it is truncated or no record.
        """
        export = Path(export)
        if not (export.parent / FILE_NAME).is_file():
            return None
        record = cls.load(export.parent)
        made = record.path_of("export")
        return record if record.complete and made is not None and made.resolve() == export.resolve() else None


_STORED = tuple(entry.name for entry in fields(Record) if entry.name != "directory")
