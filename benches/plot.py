#!/usr/bin/env python3
"""Draws what samewire costs beside nginx: docs/figures/cost.svg, from the figures in docs/figures/cost.json.

    benches/plot.py              draws the plot anew
    benches/plot.py RUN.json…    takes the figures from runs of benches/proxy.sh first; of two runs with the same
                                 scenario, the later one counts
    --data FILE, --svg FILE      other places; `--svg -` prints the plot

The same figures give the same bytes. tests/docs/documents/figures.rs compares them with the committed plot.
"""

from __future__ import annotations

import argparse
import json
import sys
from datetime import datetime, timezone
from html import escape
from pathlib import Path
from statistics import median
from typing import Any, Iterator

FIGURES = Path(__file__).resolve().parent.parent / "docs/figures"

# Scenarios of benches/proxy.sh, in the order of the plot.
SCENARIOS = {
    "flat64": "64 streams flat out",
    "batch64": "64 streams, 50 chunks a write",
    "flat4": "4 long streams flat out",
    "paced200": "200 streams at 50 chunks/s, spread",
    "step200": "200 streams at 50 chunks/s, in step",
    "delay200": "200 streams at 50 chunks/s, spread",
    "whole": "a small complete answer",
    "prompt1m": "a prompt of 1 MB, a small answer",
    "short": "one client, short streams",
    "open2000": "2,000 open streams",
}
# Panels of the plot: the kind of figure, its heading, and its scale. Figures of other kinds are kept and not drawn.
PANELS = {
    "processor time per chunk": ("processor time for each chunk of a stream", "small"),
    "processor time per request": ("processor time for each request", "small"),
    "processor time per long request": ("processor time for each long request (another scale)", "large"),
    "delay of a chunk, median": ("delay added to each chunk, median (another scale)", "delay"),
}
# Delays of a chunk, as runs call them.
DELAYS = {"delay of a chunk, median": "delay_us", "delay of a chunk, p99": "delay_p99_us"}
# Gateways of `--gateways`. Their figures are kept and not drawn: on their scale the other bars would be too short.
GATEWAYS = ("litellm", "vllm-router", "smg")

WIDTH, MARGIN, LINE = 760, 24, 18
# The bars: where they begin, how long the longest is, their height, and the gaps below a bar and a group.
LEFT, LONGEST, BAR, GAP, GROUP_GAP = 284, 390, 12, 3, 13
# Fills in light and dark: of proxies by name, of other builds in the order of the figures, and of the rest.
NAMED = {"nginx": ("#8c959f", "#848d97"), "samewire": ("#0969da", "#58a6ff"), "haproxy": ("#6e9f7a", "#57a06b")}
FILLS = [("#bf8700", "#d29922"), ("#8250df", "#a371f7")]
INKS = {"paper": ("#ffffff", "#0d1117"), "ink": ("#1f2328", "#e6edf3"), "faint": ("#59636e", "#9198a1")}


def figure(scenario: str, what: str, unit: str, rounds: int, values: dict[str, float]) -> dict[str, Any]:
    rounded = {proxy: round(value, 3) for proxy, value in values.items()}
    return {"scenario": scenario, "what": what, "unit": unit, "rounds": rounds, "values": rounded}


def added_delay(run: dict[str, Any], row: dict[str, Any], field: str) -> float:
    """Returns the median, over rounds, of what a proxy adds to the delay of the direct way in the same round."""
    direct = next(of for of in run["rows"] if of["scenario"] == row["scenario"] and of["contestant"] == "direct")
    return median(ours[field] - theirs[field] for ours, theirs in zip(row["figures"], direct["figures"]))


def figures_of(run: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yields the medians of a run. Raises ValueError if a stream arrived broken: its proxy did less than its work."""
    for scenario in SCENARIOS:
        rows = [row for row in run["rows"] if row["scenario"] == scenario and row["contestant"] != "direct"]
        if any(each["failures"] for row in rows for each in row["figures"]):
            raise ValueError(f"streams of {scenario} arrived broken")
        if scenario == "delay200":
            for what, field in DELAYS.items() if rows else ():
                added = {row["contestant"]: added_delay(run, row, field) for row in rows}
                yield figure(scenario, what, "µs", run["rounds"], added)
        elif rows:
            what, field = f"processor time per {rows[0]['unit']}", "cpu_us"
            if scenario == "short":
                what, field = "time to the first token", "first_us"
            elif scenario == "prompt1m":
                what = "processor time per long request"
            medians = {row["contestant"]: median(each[field] for each in row["figures"]) for row in rows}
            yield figure(scenario, what, "µs", run["rounds"], medians)
    memory = {row["contestant"]: row for row in run["memory"]}
    if any(row["failures"] for row in memory.values()):
        raise ValueError("open streams arrived broken")
    if memory:
        opened = {name: (row["open_bytes"] - row["rest_bytes"]) / row["streams"] for name, row in memory.items()}
        streams = {name: size / 1024 for name, size in opened.items()}
        yield figure("open2000", "memory per open stream", "KiB", 1, streams)
        rest = {name: row["rest_bytes"] / 1024**2 for name, row in memory.items()}
        yield figure("open2000", "memory at rest", "MiB", 1, rest)


def taken(paths: list[Path]) -> dict[str, Any]:
    """Returns the figures of several runs. Raises ValueError if they are of several machines."""
    runs = [json.loads(path.read_text(encoding="utf-8")) for path in paths]
    machines = {f"{run['machine']['processor'] or 'unnamed processor'}, {run['machine']['cpus']} CPUs" for run in runs}
    if len(machines) > 1:
        raise ValueError(f"runs of several machines: {'; '.join(sorted(machines))}")
    found = {(of["scenario"], of["what"]): of for run in runs for of in figures_of(run)}
    began = datetime.fromtimestamp(max(run["began"] for run in runs), timezone.utc)
    order = list(SCENARIOS)
    figures = sorted(found.values(), key=lambda of: order.index(of["scenario"]))
    return {"date": f"{began:%Y-%m-%d}", "machine": machines.pop(), "figures": figures}


def written(data: dict[str, Any]) -> str:
    """Returns the figures as JSON, one a line, so that a new run is easy to compare with the one before."""
    head = (f"  {json.dumps(key)}: {json.dumps(data[key], ensure_ascii=False)},\n" for key in ("date", "machine"))
    lines = ",\n".join(f"    {json.dumps(of, ensure_ascii=False)}" for of in data["figures"])
    return "{\n" + "".join(head) + f'  "figures": [\n{lines}\n  ]\n}}\n'


def spelled(value: float) -> str:
    if value >= 1000:
        return f"{value / 1000:.1f} ms"
    return f"{value:.{2 if value < 1 else 1 if value < 100 else 0}f} µs"


def style(proxies: list[str]) -> str:
    """Returns the style sheet, in which dark mode changes the fills alone."""
    spare = iter(FILLS)
    fills = INKS | {f"p{at}": NAMED.get(proxy) or next(spare) for at, proxy in enumerate(proxies)}
    light, dark = ("".join(f".{name}{{fill:{pair[mode]}}}" for name, pair in fills.items()) for mode in (0, 1))
    font = 'text{font:13px system-ui,-apple-system,"Segoe UI",sans-serif}.small{font-size:11px}'
    heads = ".title{font-size:16px;font-weight:600}.panel{font-weight:600}"
    return f"<style>{font}{heads}{light}@media(prefers-color-scheme:dark){{{dark}}}</style>"


def text(x: float, y: float, kind: str, words: str, anchor: str = "start") -> str:
    return f'<text x="{x:g}" y="{y:g}" class="{kind}" text-anchor="{anchor}">{escape(words)}</text>'


def bar(x: float, y: float, width: float, proxy: int) -> str:
    return f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{BAR}" rx="1.5" class="p{proxy}"/>'


def group(of: dict[str, Any], y: float, scale: float, proxies: list[str]) -> list[str]:
    """Returns the bars of one scenario, with its label at their middle."""
    height = (BAR + GAP) * len(of["values"]) - GAP
    parts = [text(LEFT - 12, y + height / 2 + 4.5, "ink", SCENARIOS[of["scenario"]], "end")]
    for proxy, value in of["values"].items():
        # What a proxy adds can be less than what the measuring itself moves by.
        width = round(scale * max(value, 0), 1)
        parts += [bar(LEFT, y, width, proxies.index(proxy))]
        parts += [text(LEFT + width + 8, y + BAR - 2, "ink small", spelled(value))]
        y += BAR + GAP
    return parts


def description(shown: list[dict[str, Any]]) -> str:
    def values(of: dict[str, Any]) -> str:
        return ", ".join(f"{proxy} {spelled(value)}" for proxy, value in of["values"].items())

    return "; ".join(f"{SCENARIOS[of['scenario']]}, {of['what']}: {values(of)}" for of in shown) + "."


def bars(of: dict[str, Any]) -> dict[str, Any]:
    return of | {"values": {proxy: value for proxy, value in of["values"].items() if proxy not in GATEWAYS}}


def drawn(data: dict[str, Any]) -> str:
    """Returns the plot. Bars of a panel are on one scale, and so are those of the panels for small things."""
    shown = [bars(of) for of in data["figures"] if of["what"] in PANELS]
    proxies = list(dict.fromkeys(proxy for of in shown for proxy in of["values"]))
    others = [proxy for proxy in proxies if proxy not in NAMED]
    if not shown or len(others) > len(FILLS):
        raise ValueError(f"{len(shown)} scenarios, {len(others)} other builds: 1 at least, {len(FILLS)} at most")
    parts, y = [text(MARGIN, 36, "ink title", "What the proxy costs (less is better)")], 60
    for at, proxy in enumerate(proxies):
        parts += [bar(MARGIN + 110 * at, y - 10, BAR, at), text(MARGIN + 110 * at + 18, y, "ink", proxy)]
    for what, (heading, scale) in PANELS.items():
        groups = [of for of in shown if of["what"] == what]
        same = [value for of in shown if PANELS[of["what"]][1] == scale for value in of["values"].values()]
        if groups:
            y += LINE + 10
            parts += [text(MARGIN, y, "ink panel", heading)]
            y += GROUP_GAP
        for of in groups:
            parts += group(of, y, LONGEST / max(*same, 0.001), proxies)
            y += (BAR + GAP) * len(of["values"]) - GAP + GROUP_GAP
    rounds = sorted({of["rounds"] for of in shown})
    of_rounds = f"Medians of {' to '.join(map(str, rounds[:1] + rounds[1:][-1:]))} rounds"
    for words in (
        f"{of_rounds} of benches/proxy.sh, in which nginx is a plain relay that changes nothing.",
        f"{data['date']}, {data['machine']}.",
    ):
        y += LINE
        parts += [text(MARGIN, y, "faint small", words)]
    height = y + MARGIN
    size = f'width="{WIDTH}" height="{height}" viewBox="0 0 {WIDTH} {height}"'
    return "\n".join([
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" aria-labelledby="title description">',
        f'<title id="title">{escape("Costs of " + ", ".join(proxies))}</title>',
        f'<desc id="description">{escape(description(shown))}</desc>',
        style(proxies),
        '<rect width="100%" height="100%" rx="6" class="paper"/>',
        *parts,
        "</svg>\n",
    ])


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("runs", nargs="*", type=Path, metavar="RUN.json", help="what benches/proxy.sh wrote")
    arguments.add_argument("--data", type=Path, default=FIGURES / "cost.json", metavar="FILE")
    arguments.add_argument("--svg", type=Path, default=FIGURES / "cost.svg", metavar="FILE")
    given = arguments.parse_args()
    try:
        if given.runs:
            given.data.write_text(written(taken(given.runs)), encoding="utf-8")
        plot = drawn(json.loads(given.data.read_text(encoding="utf-8")))
        if str(given.svg) == "-":
            sys.stdout.buffer.write(plot.encode())
        else:
            given.svg.write_text(plot, encoding="utf-8")
    except KeyError as missing:
        sys.exit(f"benches/plot.py: {missing} is missing in the figures")
    except (OSError, ValueError) as error:
        sys.exit(f"benches/plot.py: {error}")


if __name__ == "__main__":
    main()
