"""The report: its numbers by hand, its page in a browser."""

import html
import itertools
import json
import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from trace_buffers import MMA, PRODUCER, Buffer, as_rehearsed

from monomoe_gen import dispatch, trace_file, tuning_db
from monomoe_gen.device import DEFAULT, KNOWN
from monomoe_gen.dispatch import Entry, Origin, Table
from monomoe_gen.errors import MonomoeError
from monomoe_gen.pages import analysis, tables, timelines
from monomoe_gen.pages.analysis import ModelData, Point
from monomoe_gen.pages.load import load_models
from monomoe_gen.pages.timelines import read_timelines
from monomoe_gen.render import render
from monomoe_gen.role_rows import COLOURS
from monomoe_gen.schedule import KernelSpec, Schedule
from monomoe_gen.shapes import load_shape
from monomoe_gen.space import feasible, removal_counts
from monomoe_gen.timeline import timeline_svg
from monomoe_gen.trace import Event
from monomoe_gen.tuning_db import Binary, Errors, Record, Time
from monomoe_gen.variant import USUAL

DEVICE = KNOWN[DEFAULT]
TOY = load_shape("toy")
TOY_KERNEL = KernelSpec(TOY, Schedule(128, 2, 128, 2, 128, 3, 4))
CHROMIUM = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)

PLOTS = (
    "times",
    "bandwidth",
    "space",
    "pairs",
    "convergence",
    "regret",
    "predictions",
    "elsewhere",
    "rules",
    "routing",
    "resources",
)


def record(schedule: Schedule, tokens: int, time_us: float, **changes: Any) -> Record:
    values: dict[str, Any] = {
        "tokens": tokens,
        "token_tile": 8,
        "schedule": schedule.to_dict(),
        "sources_hash": "0" * 64,
        "compiler": "nvrtc 0.0",
        "status": "ok",
        "stage": "screen",
        "routing": "uniform",
        "time_us": Time(time_us, time_us * 0.99, time_us * 1.01, 20),
        "floor_us": 5.0,
        "empty_us": 0.6,
        "distinct_experts": 8.0,
        "errors": {"gaussian": Errors(0.9991, 0.04, 1e-5), "student_t3": Errors(0.999, 0.05, 1e-4)},
        "binary": Binary(90, 0, 100_000, "1" * 64),
        "env": {"gpu": "NVIDIA H200", "driver": "1.2", "reuse_bytes": 3e8},
        **changes,
    }
    return Record(**values)


@pytest.fixture(scope="module")
def data() -> ModelData:
    schedules = feasible(TOY, DEVICE)[::40][:14]
    records = [
        record(schedule, tokens, 6.0 + (7 * i % 5) + tokens)
        for i, schedule in enumerate(schedules)
        for tokens in (1, 2, 4)
    ]
    records += [record(schedules[0], 1, 8.5, routing="zipf")]
    published = {1: {"published_monomoe_us": 21.0, "triton_grouped_gemm_us": 14.0}}
    return ModelData(TOY, records, [], published, removal_counts(TOY, DEVICE))


def test_expected_best_is_the_mean_over_all_subsets() -> None:
    values = [5.0, 1.0, 4.0, 2.5, 2.5]
    for n, mean in enumerate(analysis.expected_best(values, range(1, 6)), start=1):
        subsets = list(itertools.combinations(values, n))
        assert mean == pytest.approx(sum(map(min, subsets)) / len(subsets))


def test_cross_regret_and_pairs() -> None:
    a, b = (Schedule(132, 64, k, 128, 512, 4, 8) for k in (512, 1024))
    points = {
        1: [Point(a, 10.0, 2.0), Point(b, 11.0, 2.2)],
        8: [Point(a, 60.0, 1.5), Point(b, 50.0, 1.25)],
    }
    assert analysis.cross_regret(points) == {(1, 1): 1, (1, 8): 1.2, (8, 8): 1, (8, 1): 1.1}
    assert analysis.pair_minimum(points[1], "grid", "k_up") == {(132, 512): 2.0, (132, 1024): 2.2}
    assert analysis.pair_minimum(points[1], "grid", "d_up") == {(132, 4): 2.0}
    assert analysis.best_so_far([3, 4, 1, 2]) == [3, 3, 1, 1]


def test_bandwidth() -> None:
    assert analysis.terabytes_per_second(TOY, 8.0, 10.0) == pytest.approx(
        8 * TOY.expert_bytes / 10e-6 / 1e12
    )
    assert analysis.terabytes_per_second(TOY, None, 10.0) is None


def test_a_row_says_how_far_the_limit_and_the_better_competitor_are(data: ModelData) -> None:
    row = data.rows[0]
    assert (row["tokens"], row["time_us"], row["source"]) == (1, 7.0, "screen")
    assert row["ratio"] == pytest.approx(7 / 5)
    assert row["speedup"] == pytest.approx(14 / 7)
    assert data.rows[1]["speedup"] is None


def test_every_model_is_in_the_overview_in_a_style_of_its_own(data: ModelData) -> None:
    pytest.importorskip("plotly")
    from monomoe_gen.pages.result_plots import ratios, speedups

    models = [replace(data, shape=replace(TOY, name=f"toy-{i}")) for i in range(40)]
    for drawn in (ratios(models), speedups(models)):
        assert drawn
        assert [trace["name"] for trace in drawn["data"]] == [m.shape.name for m in models]
        styles = {json.dumps([t.get("line"), t["marker"]], sort_keys=True) for t in drawn["data"]}
        assert len(styles) == len(models)


def test_a_model_far_from_the_limit_does_not_squeeze_the_others(data: ModelData) -> None:
    pytest.importorskip("plotly")
    from monomoe_gen.pages.result_plots import far, ratios

    slow = [record(feasible(TOY, DEVICE)[0], 1, 20.0)]
    distant = replace(data, shape=replace(TOY, name="distant"), records=slow)
    assert far([data, distant]) == {"distant": 4.0}
    assert [trace["name"] for trace in ratios([distant, data])["data"]] == ["toy"]
    assert far([distant]) == {}
    assert [trace["name"] for trace in ratios([distant])["data"]] == ["distant"]


def test_only_models_with_a_published_time_stand_against_published_kernels(data: ModelData) -> None:
    pytest.importorskip("plotly")
    from monomoe_gen.pages.result_plots import speedups

    alone = replace(data, shape=replace(TOY, name="alone"), published={})
    drawn = speedups([alone, data])
    assert drawn and [trace["name"] for trace in drawn["data"]] == ["toy"]
    assert speedups([alone]) is None


def test_dispatched_kernels_of_other_kinds_are_listed(data: ModelData) -> None:
    origin = Origin("2025-01-01T00:00:00+00:00", "nvrtc 0.0", "1" * 64, "screen")
    usual = Entry("toy", 1, 8, "k", 9.0, 6.0, origin)
    raw = replace(usual, layout="raw", record=replace(origin, stage="final"))
    kernel = SimpleNamespace(id="k", schedule=TOY_KERNEL.schedule)
    bf16, strange = replace(usual, model="toy-bf16"), replace(usual, model="other", layout="raw")
    table = Table(DEVICE, (kernel,), (usual, raw, bf16, strange))  # type: ignore[arg-type]
    rows = tables.others(table, [data])
    assert [(r["model"], r["kernel"], r["time of"]) for r in rows] == [
        ("toy", "raw weights", "finals"),
        ("toy-bf16", "packed weights", "screening"),
    ]
    assert rows[0]["ratio"] == "1.500" and rows[0]["schedule"] == TOY_KERNEL.schedule.id
    assert {r["time of"] for r in tables.results([data])} == {"screening"}


def test_old_sources_are_named(data: ModelData) -> None:
    kernels = [r["value"] for r in tables.provenance(data) if r["what"].startswith("kernel")]
    assert len(kernels) == 3 and all("OLDER sources" in text for text in kernels)


def test_present_sources_come_before_faster_older_ones(data: ModelData) -> None:
    slow, other = (Schedule.from_dict(data.records[i].schedule) for i in (3, 0))
    now = render(KernelSpec(TOY, slow)).sources_hash
    exact = {"gaussian": Errors(0.99999, 0.01, 1e-6)}
    present = [record(slow, 1, 30.0, sources_hash=now, errors=exact)]
    mixed = replace(data, records=[*data.records, *present, record(other, 1, 5.0, stage="final")])
    assert mixed.best[1] == present[0]
    assert [(p.schedule, p.time_us) for p in mixed.points[1]] == [(slow, 30.0)]
    states = [r["value"] for r in tables.provenance(mixed) if r["what"].startswith("kernel")]
    assert ["present sources" in text for text in states] == [True, False, False]
    assert tables.resources(mixed)[0]["schedule"] == slow.id
    numerics = [r for r in tables.numerics(mixed) if r["tokens"] == 1]
    assert [(r["worst cosine of all"], r["measured"]) for r in numerics] == [("0.999990", 1)]
    assert analysis.routing_times(mixed)[1, "uniform"] == present[0]
    assert mixed.points[2] == data.points[2] and mixed.best[2] == data.best[2]


def test_winners_are_those_of_the_table(data: ModelData) -> None:
    """Under uniform routing alone another schedule is faster; under a routing apart, a third."""
    uniform, mixture, apart = (Schedule.from_dict(r.schedule) for r in data.records[:9:3])
    times = {
        uniform: {"uniform": 10.0, "zipf": 20.0, "same": 20.0, "disjoint": 12.0},
        mixture: {"uniform": 11.0, "zipf": 11.0, "same": 11.0, "disjoint": 12.0},
        apart: {"uniform": 30.0, "zipf": 30.0, "same": 30.0, "disjoint": 9.0},
    }
    finals = [
        record(schedule, 1, us, routing=routing, stage="final")
        for schedule, found in times.items()
        for routing, us in found.items()
    ]
    found = replace(data, records=finals)
    assert Schedule.from_dict(found.best[1].schedule) == mixture
    assert found.rows[0]["schedule"] == mixture.id
    shown = {
        routing: (Schedule.from_dict(r.schedule), r.time_us and r.time_us.median)
        for (_, routing), r in analysis.routing_times(found).items()
    }
    assert shown == {
        "uniform": (mixture, 11.0),
        "zipf": (mixture, 11.0),
        "same": (mixture, 11.0),
        "disjoint": (apart, 9.0),
    }
    real, _ = load_models([load_shape("qwen3.5-35b")], DEVICE)
    table = dispatch.load(dispatch.table_folder(DEFAULT))
    dispatched = {
        e.tuned_at: table.kernel(e).schedule
        for e in table.entries
        if e.model == "qwen3.5-35b" and e.variant == USUAL
    }
    chosen = {n: Schedule.from_dict(r.schedule) for n, r in real[0].best.items()}
    assert {n: chosen[n] for n in dispatched} == dispatched


def test_numerics_and_outcomes_count_every_record(data: ModelData) -> None:
    rows = tables.numerics(data)
    assert [(r["tokens"], r["data"]) for r in rows[:2]] == [(1, "gaussian"), (1, "student_t3")]
    assert rows[0]["measured"] == 15
    assert sum(r["records"] for r in tables.outcomes(data)) == len(data.records)


def write(path: Path, records: list[Record]) -> None:
    for item in records:
        tuning_db.append(path, item)


def test_only_models_with_times_are_loaded(tmp_path: Path, data: ModelData) -> None:
    write(tuning_db.database_path(DEFAULT, "toy", tmp_path), list(data.records[:3]))
    models, rate = load_models([], DEVICE, database=tmp_path)
    assert [m.shape.name for m in models] == ["toy"]
    assert rate == 4555
    with pytest.raises(MonomoeError, match=r"glm-5.2-tp8.*tune"):
        load_models([load_shape("glm-5.2-tp8")], DEVICE, database=tmp_path)


def test_records_of_variants_alone_are_named(tmp_path: Path, data: ModelData) -> None:
    timed = next(r for r in data.records if r.time_us and r.routing == "uniform")
    inside = replace(timed, router="weight")
    write(tuning_db.database_path(DEFAULT, "toy", tmp_path), [inside, replace(timed, layout="raw")])
    words = r"the usual kernels \(the records are of: packed weights, router inside; raw weights\)"
    for shapes in ([TOY], []):
        with pytest.raises(MonomoeError, match=words):
            load_models(shapes, DEVICE, database=tmp_path)


def picture(title: str) -> str:
    """A timeline of a launch that never was."""
    made = Buffer()
    for cta in range(2):
        made.mark(cta, MMA, Event.STAGE_FULL, 0, 2 + cta)
        made.mark(cta, MMA, Event.STAGE_DONE, 0, 3.5 + cta)
        made.mark(cta, PRODUCER, Event.ISSUED, 0, 1.5 + cta)
    return timeline_svg(trace_file.keep(made.parse(), TOY_KERNEL, 1, "uniform", title, ()))


def test_timelines_of_files_and_folders_are_titled(tmp_path: Path) -> None:
    folder = tmp_path / "traces"
    folder.mkdir()
    (folder / "a.svg").write_text(picture("toy, 1 tokens"))
    (folder / "b.svg").write_text(picture("toy, 4 < 5 tokens"))
    (folder / "a.json.gz").write_bytes(b"")
    (tmp_path / "again.svg").write_text(picture("toy, 1 tokens"))
    (tmp_path / "bare.svg").write_text('<svg xmlns="http://www.w3.org/2000/svg"/>')
    found = read_timelines([folder], [])
    assert list(found) == ["toy, 1 tokens", "toy, 4 < 5 tokens"]
    assert found["toy, 1 tokens"] == picture("toy, 1 tokens")
    again = [folder, tmp_path / "again.svg", folder / "b.svg", tmp_path / "bare.svg"]
    assert list(read_timelines(again, [])) == [
        f"toy, 1 tokens: {folder / 'a.svg'}",
        "toy, 4 < 5 tokens",
        f"toy, 1 tokens: {tmp_path / 'again.svg'}",
        "bare",
    ]


def test_timelines_that_ship_are_shown_with_their_models(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(timelines, "data_dir", lambda name: tmp_path / name)
    assert read_timelines([], ["toy"]) == {}
    folder = tmp_path / "templates" / "traces"
    folder.mkdir(parents=True)
    for name in ("toy-b1-g4", "toy-more-b1-g4"):
        (folder / f"{name}.svg").write_text(picture(name))
    assert list(read_timelines([], ["toy"])) == ["toy-b1-g4"]
    assert len(read_timelines([], ["toy", "toy-more"])) == 2


def test_a_kept_launch_is_shown_beside_the_model(tmp_path: Path) -> None:
    launch = as_rehearsed(TOY_KERNEL, 4).parse()
    kept = trace_file.keep(launch, TOY_KERNEL, 4, "uniform", "toy, 4 tokens", ())
    (tmp_path / "toy-b4.svg").write_text(timeline_svg(kept))
    (tmp_path / "toy-b1.svg").write_text(picture("toy, 1 tokens"))
    trace_file.write(tmp_path / "toy-b4.trace.json", kept)
    found = read_timelines([tmp_path], [])
    assert list(found) == ["toy, 1 tokens", "toy, 4 tokens: the model and the trace"]


def test_the_legend_names_every_role_in_its_colour(text: str) -> None:
    section = text.partition('id="timelines"')[2].partition("<article")[0]
    for role, colour in COLOURS.items():
        assert re.search(rf'fill="{colour}"/></svg> {role.value} \(\d+\): ', section)


@pytest.fixture(scope="module")
def text(data: ModelData) -> str:
    pytest.importorskip("plotly")
    from monomoe_gen.pages.page import page

    return page([data], Table(DEVICE, (), ()), 4555, {"toy, 4 tokens": picture("toy, 4 tokens")})


def test_the_page_needs_no_network(text: str) -> None:
    head, _, script = text.partition("plotly.js")
    for part in (head, script.rpartition("<script>")[2]):
        assert "http" not in part
        assert part.count("src=") == part.count('src="data:')


@pytest.mark.parametrize("part", [*PLOTS, "numerics", "outcomes", "provenance"])
def test_every_section_is_there(part: str, text: str) -> None:
    assert f'<article id="toy-{part}"' in text


HARNESS = """
<script>
addEventListener("load", async () => {
  const result = { errors: window.problems, clipped: [] };
  Object.assign(result, { width: root.scrollWidth, room: innerWidth });
  try {
    for (const plot of plots) await draw(plot);
    result.drawn = plots.filter((p) => p.querySelector(".main-svg")).length;
    result.pictures = [...document.images].filter((i) => i.complete && i.naturalWidth).length;
    result.marks = plots.filter((p) => p.querySelector("path, canvas, image")).length;
    for (const plot of plots) {
      const frame = plot.getBoundingClientRect();
      for (const label of plot.querySelectorAll("text")) {
        const box = label.getBoundingClientRect();
        if (box.width && (box.left < frame.left - 1 || box.right > frame.right + 1 ||
            box.top < frame.top - 1 || box.bottom > frame.bottom + 1)) {
          result.clipped.push(plot.getAttribute("aria-label") + ": " + label.textContent);
        }
      }
    }
    const color = () => plots[0].querySelector("text").style.fill;
    const before = color();
    button.focus(); button.click();
    await new Promise((done) => setTimeout(done, 300));
    result.repainted = color() !== before && button.getAttribute("aria-pressed") === "true";
    const select = document.querySelector("select");
    const chart = select.closest("article").querySelector(".plot");
    const shown = () => JSON.stringify(chart.data[0].line.color);
    await draw(chart);
    const old = shown();
    select.selectedIndex = 2; select.dispatchEvent(new Event("change"));
    await new Promise((done) => setTimeout(done, 300));
    result.chosen = shown() !== old;
    result.reachable = [...document.querySelectorAll("a, button, select, [tabindex='0']")]
      .every((e) => { e.focus(); return document.activeElement === e; });
  } catch (error) { result.errors.push(String(error)); }
  parent.postMessage(result, "*");
});
</script>
"""
CATCH = """
<script>
window.problems = [];
addEventListener("error", (e) => problems.push(e.message));
for (const kind of ["error", "warn"]) console[kind] = (...words) => problems.push(words.join(" "));
</script>
"""


@pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium")
@pytest.mark.parametrize("width", [400, 1280])
def test_the_page_in_a_browser(width: int, text: str, tmp_path: Path) -> None:
    page = text.replace("<head>", "<head>" + CATCH, 1)
    before, _, after = page.rpartition("</body>")
    (tmp_path / "page.html").write_text(before + HARNESS + "</body>" + after, encoding="utf-8")
    (tmp_path / "frame.html").write_text(
        f'<iframe src="page.html" style="width: {width}px; height: 900px; border: 0"></iframe>'
        '<pre id="result"></pre><script>addEventListener("message", (e) => '
        '{ document.getElementById("result").textContent = JSON.stringify(e.data); });</script>',
        encoding="utf-8",
    )
    assert CHROMIUM
    done = subprocess.run(
        [
            CHROMIUM, "--headless", "--no-sandbox", "--no-first-run", "--disable-quic",
            "--disable-background-networking", "--disable-component-update", "--disable-sync",
            "--use-angle=swiftshader", "--enable-unsafe-swiftshader",
            f"--user-data-dir={tmp_path / 'profile'}", f"--window-size={width + 200},1000",
            "--virtual-time-budget=60000", "--dump-dom", (tmp_path / "frame.html").as_uri(),
        ],
        capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    answer = done.stdout.partition('<pre id="result">')[2].partition("</pre>")[0]
    assert answer, done.stderr
    found = json.loads(html.unescape(answer))
    assert found["errors"] == []
    assert found["drawn"] == found["marks"] == len(PLOTS) + 2
    assert found["pictures"] == 1
    assert found["clipped"] == []
    assert found["width"] <= found["room"] == width, "the page itself scrolls sideways"
    assert found["repainted"] and found["chosen"] and found["reachable"]
