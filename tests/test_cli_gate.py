"""check and calibrate on the command line: output, files, history and exit codes.

The GPU is simulated (`gate_worker`), the inspection is made up unless a test is about it.
"""

import dataclasses
import json
import signal
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from gate_worker import H200, Gpu, image

from monomoe_gen import candidates, cli, device, dispatch, history, inspection, jobs, noise
from monomoe_gen.candidates import CellId, Pair, Side
from monomoe_gen.cli import gate
from monomoe_gen.device import DEFAULT, KNOWN
from monomoe_gen.errors import NoKernel
from monomoe_gen.gate import CellResult, Run
from monomoe_gen.gate_report import Report, junit, markdown, to_dict
from monomoe_gen.inspection import Inspection, Remark
from monomoe_gen.protocol import Env
from monomoe_gen.regress import Judgement, Verdict
from monomoe_gen.schedule import KernelSpec
from monomoe_gen.shapes import load_shape
from monomoe_gen.space import feasible

SHAPE = load_shape("qwen3.5-35b")
SPEC = KernelSpec(SHAPE, feasible(SHAPE, KNOWN[DEFAULT])[0])
FINE = Remark("files", "kernel", "ok", "as it was")
STALE = Remark("files", "kernel", "stale", "the templates changed since it was compiled")


class World:
    """What the commands find: remarks of the inspection, pairs to time, cells without a binary."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.gpu = Gpu()
        self.remarks: tuple[Remark, ...] = (FINE,)
        self.words: dict[int, str] = {1: "", 8: ""}
        self.failed: dict[CellId, str] = {}

    @property
    def history(self) -> Path:
        return self.root / "tuning_db" / history.FILE

    @property
    def noise(self) -> Path:
        return self.root / "tuning_db" / DEFAULT / noise.FILE

    def pairs(self) -> list[Pair]:
        return [
            Pair(
                CellId(SHAPE.name, tokens, "uniform"),
                Side(SPEC, image(words, words.encode()), "1" * 64, "nvrtc 0.0"),
                Side(SPEC, image("", b"baseline"), "0" * 64, "nvrtc 0.0"),
                None,
                "paired",
            )
            for tokens, words in self.words.items()
        ]


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    """A machine with an H200 and a table that nobody reads."""
    found = World(tmp_path)
    table = dispatch.load(dispatch.table_folder())
    floors = jobs.Floors((image(),), image())
    monkeypatch.setattr(device, "current_device", lambda: KNOWN[DEFAULT])
    monkeypatch.setattr("monomoe_gen.remeasure.current_device", lambda: KNOWN[DEFAULT])
    monkeypatch.setattr(noise, "current_uuid", lambda: H200["uuid"])
    monkeypatch.setattr(inspection, "inspect", lambda *a, **k: Inspection(table, (), found.remarks))
    monkeypatch.setattr("monomoe_gen.verify.rebuild", lambda *a: [])
    monkeypatch.setattr(candidates, "make_pairs", lambda *a, **k: (found.pairs(), found.failed))
    monkeypatch.setattr(candidates, "a_a_pairs", lambda pairs, device: (pairs, pairs))
    monkeypatch.setattr(jobs, "compile_floors", lambda device: floors)
    monkeypatch.setattr("monomoe_gen.sandbox.Sandbox", found.gpu.sandbox(tmp_path))
    monkeypatch.setattr(history, "tuning_db_dir", lambda: tmp_path / "tuning_db")
    monkeypatch.setattr(noise, "tuning_db_dir", lambda: tmp_path / "tuning_db")
    monkeypatch.setenv("GITHUB_SHA", "abc123")
    return found


def answer(capsys: pytest.CaptureFixture[str], code: int, *arguments: str) -> Any:
    assert cli.run(["check", *arguments, "--format", "json"]) == code
    return json.loads(capsys.readouterr().out)


def test_all_is_well(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    found = answer(capsys, 0)
    assert found["timed"] and found["threshold"] == 0.02 and found["noise"] is None
    assert [(c["tokens"], c["verdict"]) for c in found["cells"]] == [(1, "OK"), (8, "OK")]
    assert found["gpu"]["uuid"] == H200["uuid"]
    rows = history.read(world.history)
    assert [(r.tokens, r.verdict, r.commit) for r in rows] == [
        (1, "OK", "abc123"),
        (8, "OK", "abc123"),
    ]
    assert rows[0].time_us == found["cells"][0]["time_us"]
    assert answer(capsys, 0, "--no-record")["timed"]
    assert len(history.read(world.history)) == 2


@pytest.mark.parametrize(
    ("words", "options", "verdict", "code"),
    [
        ("slow=1.1", (), "REGRESSION", 3),
        ("slow=1.1", ("--fail-on", "wrong,inconclusive"), "REGRESSION", 0),
        ("slow=1.1", ("--delta", "20"), "OK", 0),
        ("slow=0.9", (), "IMPROVED", 0),
        ("wrong", (), "WRONG", 6),
        ("hang", (), "WRONG", 6),
        ("slow=1.1 clock=0.91", (), "CLOCK_CHANGED", 5),
    ],
)
def test_verdicts_have_their_exit_codes(
    world: World,
    capsys: pytest.CaptureFixture[str],
    words: str,
    options: tuple[str, ...],
    verdict: str,
    code: int,
) -> None:
    world.words = {1: "", 8: words}
    found = answer(capsys, code, *options)
    assert [c["verdict"] for c in found["cells"]] == ["OK", verdict]


def test_undecided_ends_with_4(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    world.gpu.noise = 0.05
    world.words = {1: "slow=1.02"}
    found = answer(capsys, 4, "--processes", "2", "--max-processes", "4")
    assert found["cells"][0]["verdict"] == "INCONCLUSIVE"
    assert found["cells"][0]["processes"] == 4


def test_the_most_serious_code_wins(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    world.words = {1: "slow=1.1", 4: "wrong"}
    answer(capsys, 6)
    world.words, world.remarks = {1: ""}, (STALE,)
    answer(capsys, 3)
    answer(capsys, 0, "--fail-on", "none")
    world.failed = {CellId(SHAPE.name, 2, "uniform"): "error: no such thing"}
    found = answer(capsys, 6)
    assert [c["verdict"] for c in found["cells"]] == ["OK", "WRONG"]


def test_a_sick_gpu_ends_with_5(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    world.gpu.throttled = 0.5
    assert {c["verdict"] for c in answer(capsys, 5)["cells"]} == {"ENVIRONMENT"}
    world.gpu.dead_after = 0
    found = answer(capsys, 5)
    assert "fresh process" in found["cells"][0]["message"]


def test_ctrl_c_ends_the_timing_and_reports_what_was_decided(
    world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    def env(worker: int) -> Env:
        if worker == 1 + 5:  # after the first look
            signal.raise_signal(signal.SIGINT)
        return H200

    world.gpu.noise, world.words = 0.02, {1: "slow=1.02", 8: "slow=1.5"}
    world.gpu.env = env
    found = answer(capsys, 130)
    assert [c["verdict"] for c in found["cells"]] == ["INCONCLUSIVE", "REGRESSION"]
    assert found["cells"][0]["message"] == "undecided when it was interrupted"
    assert [r.verdict for r in history.read(world.history)] == ["INCONCLUSIVE", "REGRESSION"]


def test_without_a_gpu_it_says_that_nothing_was_timed(
    world: World, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(device, "current_device", lambda: None)
    found = answer(capsys, 0)
    assert found["headline"] == "NOTHING WAS TIMED: there is no CUDA device here"
    assert not found["timed"] and found["cells"] == []
    assert cli.run(["check"]) == 0
    assert "NOTHING WAS TIMED" in capsys.readouterr().out
    assert cli.run(["check", "--format", "markdown"]) == 0
    assert "**NOTHING WAS TIMED" in capsys.readouterr().out
    world.remarks = (STALE,)
    answer(capsys, 3)
    assert world.gpu.workers == 0
    assert not world.history.exists()


def test_another_compiler_is_noted_once_and_kernel_by_kernel_for_programs(
    world: World, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(device, "current_device", lambda: None)
    message = "bytes not compared: compiled by nvrtc 1.0, installed is nvrtc 2.0"
    notes = [Remark("files", f"kernel-{n}", "note", message) for n in range(3)]
    grown = [Remark("resources", f"kernel-{n}", "note", "1 -> 2 registers") for n in range(3)]
    world.remarks = (*notes, *grown)
    for form in ("table", "markdown"):
        assert cli.run(["check", "--format", form]) == 0
        out = capsys.readouterr().out
        assert out.count(message) == 1 and "3 kernels" in out
        assert out.count("1 -> 2 registers") == 3
    assert [row["subject"] for row in answer(capsys, 0)["inspection"]] == 2 * [
        "kernel-0", "kernel-1", "kernel-2",
    ]  # fmt: skip


def test_a_gpu_without_a_table_is_no_gpu(
    world: World, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    other = device.Device("Other", "other", 1, 1, 1, 1, "sm_80")
    monkeypatch.setattr(device, "current_device", lambda: other)
    found = answer(capsys, 0)
    assert "no kernels for the GPU of this machine, Other" in found["headline"]


def test_reports_are_written_beside_the_answer(
    world: World, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    world.words = {1: "", 8: "slow=1.1"}
    names = [str(tmp_path / f"check.{suffix}") for suffix in ("md", "json", "xml")]
    assert cli.run(["check", *(f"--write={name}" for name in names)]) == 3
    out = capsys.readouterr().out
    assert "2 cells on NVIDIA H200: 1 OK, 1 REGRESSION; threshold 2.0% (not calibrated)" in out
    assert "❌ REGRESSION | +" in Path(names[0]).read_text()
    assert json.loads(Path(names[1]).read_text())["cells"][1]["verdict"] == "REGRESSION"
    suite = ElementTree.parse(names[2]).getroot()
    assert [s.get("failures") for s in suite] == ["1", "0"]


def test_the_baseline_is_a_folder_of_tables_or_of_one(
    world: World,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    asked: list[Any] = []
    real = inspection.inspect
    monkeypatch.setattr(
        inspection, "inspect", lambda d, folder, before, done: asked.append(before) or real()
    )
    place = tmp_path / "generated" / DEFAULT
    place.mkdir(parents=True)
    answer(capsys, 0, "--baseline", str(place.parent))
    (place / dispatch.FILE).write_text("{}")
    answer(capsys, 0, "--baseline", str(place.parent))
    answer(capsys, 0, "--baseline", str(place))
    assert asked == [None, place, place]


@pytest.mark.parametrize("gpu", [True, False])
def test_what_selects_nothing_is_refused(
    world: World,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    gpu: bool,
) -> None:
    if not gpu:
        monkeypatch.setattr(device, "current_device", lambda: None)
    assert cli.run(["check", "--model", "toy-bf16"]) == 2
    assert "the table has" in capsys.readouterr().err
    assert world.gpu.workers == 0


def test_a_token_count_without_a_kernel_is_refused() -> None:
    table = dispatch.load(dispatch.table_folder())
    small = dataclasses.replace(table, entries=tuple(e for e in table.entries if e.capacity <= 8))
    with pytest.raises(NoKernel, match="the table has 1 to 8 tokens"):
        candidates.select(small, [], (9,))


def test_calibration_sets_the_threshold(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    world.gpu.noise = 0.02
    assert cli.run(["calibrate", "--processes", "6", "--format", "json"]) == 0
    rows = {r["comparison"]: r["difference"] for r in json.loads(capsys.readouterr().out)}
    known = noise.find(world.noise, str(H200["uuid"]))
    assert known and known.cells == 2 and known.processes == 6
    assert rows["threshold of a check"] == pytest.approx(2 * known.floor)
    assert rows["identical cubins"] == known.identical
    assert 0.01 < known.floor < 0.06
    assert answer(capsys, 0)["threshold"] == pytest.approx(2 * known.floor)
    assert cli.run(["check", "--delta", "2"]) == 2
    assert "identical kernels differ by" in capsys.readouterr().err


def test_drift_in_the_history_is_something_worse(
    world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("ruptures")
    assert cli.run(["check", "--history"]) == 0
    assert "no timed checks yet" in capsys.readouterr().err
    world.words = {1: ""}
    for words in [""] * 5 + ["slow=1.04"] * 5:
        world.words = {1: words}
        cli.run(["check", "--fail-on", "none", "--processes", "2", "--max-processes", "2"])
    capsys.readouterr()
    assert cli.run(["check", "--history", "--format", "json"]) == 3
    (series,) = json.loads(capsys.readouterr().out)
    assert (series["runs"], series["tokens"]) == (10, 1)
    assert series["in_all"].startswith("+")
    assert cli.run(["check", "--history", "--model", SHAPE.name]) == 3
    assert cli.run(["check", "--history", "--model", "toy"]) == 0
    assert "has no timed checks of toy yet" in capsys.readouterr().err


def test_history_goes_with_no_option_about_checking(
    world: World, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    report = tmp_path / "report.json"
    for option, *values in (
        ["--tokens", "1"],
        ["--routing", "zipf"],
        ["--baseline", str(tmp_path)],
        ["--delta", "2"],
        ["--processes", "4"],
        ["--max-processes", "16"],
        ["--blocks", "2"],
        ["--no-gpu"],
        ["--require-gpu"],
        ["--fail-on", "none"],
        ["--write", str(report)],
        ["--no-record"],
    ):
        assert cli.run(["check", "--history", option, *values]) == 2
        assert f"give {option} or --history, not both" in capsys.readouterr().err
    apart = {"shapes", "history", "form", *gate.BESIDE_HISTORY}
    assert {parameter.name for parameter in gate.check.params} == apart, "each one is decided"


def result(verdict: Verdict, message: str = "", high: float = 0.05) -> CellResult:
    judgement = Judgement(verdict, 0.041, 0.032, high, 0.04, 4, 8)
    cell = CellId("m", 1, "uniform")
    return CellResult(cell, verdict, message, "paired", "k", "0", "nvrtc", judgement, 10.4, 10.0)


def report(*results: CellResult, remarks: tuple[Remark, ...] = ()) -> Report:
    return Report(remarks, Run(results, H200, 0.02, 61.0), noise=0.004)


def test_json_has_no_number_that_json_lacks() -> None:
    text = json.dumps(to_dict(report(result(Verdict.OK, high=float("inf")))), allow_nan=False)
    assert json.loads(text)["cells"][0]["high"] is None


def test_markdown_stays_a_table_whatever_a_message_holds() -> None:
    text = markdown(report(result(Verdict.WRONG, "a | b\nc" + 400 * "x"), remarks=(STALE,)))
    (row,) = (line for line in text.splitlines() if line.startswith("| m |"))
    assert row.replace("\\|", "").count("|") == 10
    assert "a \\| b c" in row and len(row) < 500
    assert "* ❌ **stale** kernel: the templates changed" in text


def test_junit_fails_skips_and_survives_control_characters() -> None:
    found = report(
        result(Verdict.REGRESSION),
        result(Verdict.INCONCLUSIVE, "undecided"),
        result(Verdict.WRONG, "\x1b[31mred\x00"),
        remarks=(FINE, STALE),
    )
    root = ElementTree.fromstring(junit(found, {"regression": True, "wrong": True}))
    timing, inspected = root
    assert (timing.get("tests"), timing.get("failures"), timing.get("skipped")) == ("3", "2", "1")
    assert (inspected.get("tests"), inspected.get("failures")) == ("2", "0")
    messages = [f.get("message") for f in timing.iter("failure")]
    assert messages[0] == (
        "+4.1 % (+3.2 % .. +5.0 %) slower than the baseline by more than the threshold"
    )
    assert "red" in str(messages[1])


def test_junit_says_that_nothing_was_timed() -> None:
    root = ElementTree.fromstring(junit(Report((), None, "no GPU"), {}))
    (skipped,) = root.iter("skipped")
    assert skipped.get("message") == "NOTHING WAS TIMED: no GPU"
