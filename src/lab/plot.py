# SPDX-License-Identifier: Apache-2.0
"""plot.py DIR: draws the CSV files of a run (doc/conv.md, "Plots") as DIR/NAME.svg and DIR/NAME.png.

The library contains this script and runs it for `quern plot`. The last line of its output is the number of plots or the
error; the exit status says which: 0, 3 (nothing to draw), 4 (no matplotlib), 5 (a wrong file). The same files yield the
same bytes. Series differ in hatching and markers, too, not only in colour. Times of the layers of a network differ by
orders of magnitude, those of one layer by little: each violin has an axis of its own."""
import csv
import math
import pathlib
import re
import statistics
import sys

try:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    import matplotlib.ticker
except ImportError:
    print("plots are drawn by matplotlib, which is not installed (Debian: python3-matplotlib)")
    sys.exit(4)

COLORS = ["#3b6ea5", "#b0500f", "#2f7d4f", "#909090", "#7a3b8f", "#8a6d00", "#1b7f8c", "#ffffff"]
HATCHES = ["", "///", "...", "\\\\\\", "xxx", "---", "ooo", ""]
MARKERS = ["o", "^"]
MOST_LAYERS, MOST_NAME = 128, 44
plt.rcParams.update({"svg.hashsalt": "quern", "svg.fonttype": "none", "font.size": 9, "axes.axisbelow": True,
                     "figure.constrained_layout.use": True, "hatch.linewidth": 0.6})


class WrongFile(Exception):
    pass


# --- the files ---


def number(path, line, column, text, positive=True):
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not (0 < value <= 1e18 if positive else 0 <= value <= 1e18):
        least = "above 0" if positive else "from 0"
        raise WrongFile(f"'{path}': line {line}: column '{column}': expected a number {least}, found '{text}'")
    return value


def rows(folder, name, texts, numbers, positive=True):
    """Rows of a file as dictionaries; none if it is missing. Other columns are ignored."""
    path = folder / name
    if not path.exists():
        return []
    found = []
    with open(path, newline="", encoding="utf-8", errors="replace") as file:
        reader = csv.DictReader(file, strict=True)
        try:
            for column in texts + numbers:
                if column not in (reader.fieldnames or []):
                    raise WrongFile(f"'{path}': line 1: column '{column}' is missing")
            for row in reader:
                if None in row or None in row.values():
                    raise WrongFile(f"'{path}': line {reader.line_num}: expected {len(reader.fieldnames)} columns")
                found.append({k: row[k] for k in texts} | {k: number(path, reader.line_num, k, row[k], positive) for k in numbers})
        except csv.Error as e:
            raise WrongFile(f"'{path}': line {reader.line_num}: {e}") from None
    return found


class Layer:
    def __init__(self, number, name):
        self.number, self.name, self.base = number, name, ""
        self.ms = {}  # samples by implementation
        self.place = {}  # (FLOP/byte, GFLOP/s) by implementation

    def label(self):
        return f"L{self.number}"


class Run:
    """Layers in the order of the files. The first implementation of all is the subject, others are its baselines: layers may
    have different ones, because a library may lack some."""

    def __init__(self, folder):
        self.layers, self.names = [], []
        for row in rows(folder, "samples.csv", ["layer", "layer_name", "implementation"], ["ms"]):
            self.layer(row).ms.setdefault(self.side(row), []).append(row["ms"])
        for row in rows(folder, "roofline.csv", ["layer", "layer_name", "implementation"], ["flops", "bytes", "seconds"]):
            self.layer(row).place[self.side(row)] = (row["flops"] / row["bytes"], row["flops"] / row["seconds"] * 1e-9)
        self.ceilings = rows(folder, "ceilings.csv", ["name", "unit"], ["value"])
        self.steps = rows(folder, "breakdown.csv", ["network", "layer", "operator"], ["ms"], positive=False)
        self.about = about(folder / "params.txt")

    def layer(self, row):
        for layer in reversed(self.layers):
            if layer.number == row["layer"] and layer.name == row["layer_name"]:
                return layer
        self.layers.append(Layer(row["layer"], row["layer_name"]))
        if len(self.layers) > MOST_LAYERS:
            raise WrongFile(f"more than {MOST_LAYERS} layers cannot be drawn")
        return self.layers[-1]

    def side(self, row):
        name = row["implementation"]
        if name not in self.names:
            self.names.append(name)
        if name != self.names[0]:
            self.layer(row).base = name
        return min(self.names.index(name), 1)

    def name(self, side):
        return " or ".join(self.names[1:]) if side else self.names[0]

    def full_name(self, layer, most):
        """With the baseline, if that is not the same for all layers."""
        return short(layer.name, most) + (f", {layer.base}" if len(self.names) > 2 and layer.base else "")


def about(path):
    """'csv = cosmoflow' etc. as one line."""
    items = {"csv": "", "batch": "batch ", "dtype": "", "device": "", "threads": "threads ", "total iterations": "rounds "}
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines() if path.exists() else []
    pairs = dict(tuple(s.strip() for s in line.split("=", 1)) for line in lines if "=" in line)
    return ", ".join(items[k] + pairs[k] for k in items if k in pairs)


# --- statistics ---


def interval(samples):
    """Median and 95 % interval by order statistics, as in summary.csv."""
    v, n = sorted(samples), len(samples)
    low = max(math.floor(n / 2 - 0.98 * math.sqrt(n)), 0)
    return statistics.median(v), v[low], v[n - 1 - low]


def quartiles(samples):
    v = sorted(samples)
    return [v[0]] * 3 if len(v) == 1 else statistics.quantiles(v, n=4, method="inclusive")


def bandwidth(samples):
    """Silverman's rule of thumb (1986, equation 3.31)."""
    q1, _, q3 = quartiles(samples)
    spreads = [s for s in (statistics.stdev(samples), (q3 - q1) / 1.34) if s > 0]
    return 0.9 * min(spreads) * len(samples) ** -0.2 if spreads else 0


def density(samples, steps=96):
    """Positions and densities, the highest 1, between the samples' extremes within Tukey's outer fences; the number of
    outliers. No density if all samples are equal."""
    q1, _, q3 = quartiles(samples)
    inner = [x for x in samples if q1 - 3 * (q3 - q1) <= x <= q3 + 3 * (q3 - q1)]
    width = bandwidth(inner) if len(inner) > 1 else 0
    if not width:
        return [statistics.median(samples)] * 2, [1, 1], len(samples) - len(inner)
    low, high = min(inner), max(inner)
    at = [low + (high - low) * k / steps for k in range(steps + 1)]
    d = [sum(math.exp(-0.5 * ((x - s) / width) ** 2) for s in inner) for x in at]
    return at, [x / max(d) for x in d], len(samples) - len(inner)


# --- the plots: each returns a figure, or None if there is nothing to draw ---


def figure(run, title, width, height, series=()):
    """series: names for the legend, in a strip at the bottom."""
    lines = -(-len(series) // 4)
    height += 0.3 * lines
    fig = plt.figure(figsize=(width, height))
    fig.suptitle(title + ("\n" + run.about if run.about else ""), fontsize=11)
    if series:
        strip = 0.3 * lines / height
        fig.get_layout_engine().set(rect=(0, strip, 1, 1 - strip))
        fig.legend(handles=[patch(k, name) for k, name in enumerate(series)], loc="lower center", ncol=4, fontsize=8, frameon=False)
    return fig


def patch(k, name):
    return matplotlib.patches.Patch(facecolor=COLORS[k], hatch=HATCHES[k], edgecolor="black", label=name)


def violins(run, both):
    layers = [x for x in run.layers if x.ms.get(0) and (not both or x.ms.get(1))]
    if not layers:
        return None
    columns = len(layers) if len(layers) <= 3 else math.ceil(math.sqrt(1.5 * len(layers)))
    lines = -(-len(layers) // columns)
    names = [run.name(side) for side in range(1 + both)]
    fig = figure(run, "Run times of " + " and ".join(names) + ", by layer", max(2.3 * columns, 6.5), 2.3 * lines + 1.1, names if both else ())
    axes = fig.subplots(lines, columns, squeeze=False).flat
    for ax, layer in zip(axes, layers):
        violin(ax, run, layer, both)
    for ax in list(axes)[len(layers):]:
        ax.set_visible(False)
    fig.supylabel("run time (ms)")
    return fig


def violin(ax, run, layer, both):
    medians, outliers = [], 0
    for side in range(1 + both):
        at, d, n = density(layer.ms[side])
        outliers += n
        left = [-x for x in d] if side == 0 else [0] * len(d)
        right = d if side or not both else [0] * len(d)
        ax.fill_betweenx(at, left, right, facecolor=COLORS[side], hatch=HATCHES[side], edgecolor="black", linewidth=0.7)
        q1, median, q3 = quartiles(layer.ms[side])
        x = 0.12 * (2 * side - 1) if both else 0
        ax.plot([x, x], [q1, q3], color="black", linewidth=3)
        ax.plot([x], [median], "o", color="white", markeredgecolor="black", markersize=4)
        medians.append(f"{median:.4g}")
    ax.set_title(f"{layer.label()}  {' | '.join(medians)} ms", fontsize=9)
    ax.set_xlabel(run.full_name(layer, 30) + (f"\n{outliers} outlier" + "s" * (outliers > 1) if outliers else ""), fontsize=6)
    ax.set_xticks([])
    ax.set_xlim(-1.15, 1.15)


def bars(ax, run, layers, sides):
    for side in range(sides):
        at = [i + (0.2 * (2 * side - 1) if sides > 1 else 0) for i, x in enumerate(layers) if x.ms.get(side)]
        stats = [interval(x.ms[side]) for x in layers if x.ms.get(side)]
        ax.bar(at, [m for m, _, _ in stats], 0.38 if sides > 1 else 0.6, color=COLORS[side], hatch=HATCHES[side], edgecolor="black", label=run.name(side))
        whiskers(ax, at, stats)
    highest = [max(interval(x.ms[s])[0] for s in x.ms) for x in layers]
    lowest = [min(interval(x.ms[s])[0] for s in x.ms) for x in layers]
    if max(highest) > 20 * min(lowest):
        ax.set_yscale("log")
    ax.set_ylabel("median run time (ms)")


def whiskers(ax, at, stats):
    errors = [[m - low for m, low, _ in stats], [high - m for m, _, high in stats]]
    ax.errorbar(at, [m for m, _, _ in stats], yerr=errors, fmt="none", ecolor="black", elinewidth=1, capsize=2)
    for x, (m, _, high) in zip(at, stats):
        ax.annotate(f"{m:.3g}", (x, high), (0, 3), textcoords="offset points", ha="center", va="bottom", rotation=90, fontsize=7)
    ax.margins(y=0.3)


def medians(run):
    layers = [x for x in run.layers if x.ms]
    if not layers:
        return None
    pairs = [x for x in layers if x.ms.get(0) and x.ms.get(1)]
    sides = 2 if pairs else 1
    fig = figure(run, "Medians with 95 % intervals", max(0.56 * len(layers) + 1.5, 6.5), 6.5 if pairs else 4.5)
    axes = fig.subplots(sides, 1, squeeze=False, sharex=True, gridspec_kw={"height_ratios": [2, 1][:sides]})[:, 0]
    bars(axes[0], run, layers, sides)
    if pairs:
        axes[0].legend()
        at = [i for i, x in enumerate(layers) if x in pairs]
        stats = [interval([b / a for a, b in zip(x.ms[0], x.ms[1])]) for x in pairs]
        axes[1].bar(at, [m for m, _, _ in stats], 0.6, color="#c0c0c0", edgecolor="black")
        axes[1].axhline(1, color="black", linewidth=0.8)
        whiskers(axes[1], at, stats)
        axes[1].set_ylabel("speed-up, round by round")
    axes[-1].set_xticks(range(len(layers)), [f"{x.label()} {run.full_name(x, 28)}" for x in layers], rotation=60, ha="right", fontsize=7)
    for ax in axes:
        ax.grid(axis="y", color="#dddddd")
    return fig


def roofline(run):
    layers = [x for x in run.layers if x.place]
    if not layers:
        return None
    sides = 1 + any(1 in x.place for x in layers)
    fig = figure(run, "Layers under the roofline", 9, 6.5)
    ax = fig.subplots()
    for side in reversed(range(sides)):
        points = [x.place[side] for x in layers if side in x.place]
        ax.plot([i for i, _ in points], [r for _, r in points], MARKERS[side], color=COLORS[side], label=run.name(side), fillstyle="none" if side else "full")
    for x in layers:
        if len(x.place) > 1:
            ax.plot([x.place[0][0]] * 2, [x.place[0][1], x.place[1][1]], ":", color="black", linewidth=0.7)
    ax.set_xscale("log")
    ax.set_yscale("log")
    ax.margins(0.1)
    for axis in (ax.xaxis, ax.yaxis):
        axis.set_major_formatter("{x:g}")
        axis.set_minor_locator(matplotlib.ticker.LogLocator(subs=(2, 5)))
        axis.set_minor_formatter("{x:g}")
    draw_ceilings(ax, run.ceilings)
    label_points(fig, ax, layers)
    ax.set_xlabel("operations per byte if everything is touched once (FLOP/byte, logarithmic)")
    ax.set_ylabel("GFLOP/s (logarithmic)")
    ax.grid(which="both", color="#eeeeee")
    ax.legend(loc="lower right")
    fig.supxlabel(name_table(run, layers), x=0.06, ha="left", fontsize=6, family="monospace")
    return fig


def name_table(run, layers, columns=3):
    """Numbers and names of layers, column by column."""
    names = [f"{x.label()} {run.full_name(x, 60)}" for x in layers]
    lines = -(-len(names) // columns)
    width = max(len(x) for x in names) + 2
    return "\n".join("".join(x.ljust(width) for x in names[k::lines]) for k in range(lines))


def draw_ceilings(ax, ceilings):
    """Levels for arithmetic, slopes for memory up to the highest level."""
    (left, right), (low, high) = ax.get_xlim(), ax.get_ylim()
    levels = [c["value"] for c in ceilings if c["unit"] != "GB/s"]
    top = max(levels, default=high)
    ax.set_ylim(low, max(high, 1.5 * top))
    ax.set_xlim(left, right)
    ax.figure.canvas.draw()  # places the axes, which the slopes of texts follow
    for c, style in zip(ceilings, ["-", "--", "-.", ":"] * 8):
        text = f"{c['name']} {c['value']:.4g} {c['unit']}"
        if c["unit"] == "GB/s":
            ends = [max(left, low / c["value"]), min(right, top / c["value"])]
            ax.plot(ends, [x * c["value"] for x in ends], style, color="black")
            if ends[0] < ends[1]:
                (x0, y0), (x1, y1) = (ax.transData.transform((x, x * c["value"])) for x in ends)
                slope = math.atan2(y1 - y0, x1 - x0)
                offset = (14 * math.cos(slope) - 4 * math.sin(slope), 14 * math.sin(slope) + 4 * math.cos(slope))
                ax.annotate(text, (ends[0], ends[0] * c["value"]), offset, textcoords="offset points", rotation=math.degrees(slope),
                            rotation_mode="anchor", fontsize=8)
        else:
            ax.plot([left, right], [c["value"]] * 2, style, color="black")
            ax.annotate(text, (right, c["value"]), (-4, 3), textcoords="offset points", ha="right", fontsize=8)


def label_points(fig, ax, layers):
    """Each label at the first free position around its point, near ones first."""
    taken = [ax.transData.transform(p) for x in layers for p in x.place.values()]
    for x in layers:
        point = x.place[min(x.place)]
        px, py = ax.transData.transform(point)
        spots = [(r * math.cos(a), r * math.sin(a)) for r in range(12, 90, 6) for a in (0, 3.14, 0.8, 2.3, -0.8, -2.3, 1.57, -1.57)]
        free = [(dx, dy) for dx, dy in spots if all(abs(px + dx - tx) > 16 or abs(py + dy - ty) > 9 for tx, ty in taken)]
        dx, dy = free[0] if free else spots[0]
        taken.append((px + dx, py + dy))
        line = {"arrowstyle": "-", "color": "#666666", "linewidth": 0.5} if math.hypot(dx, dy) > 20 else None
        ax.annotate(x.label(), point, (dx * 72 / fig.dpi, dy * 72 / fig.dpi), textcoords="offset points", ha="center", va="center", fontsize=7, arrowprops=line)


def short(name, most=MOST_NAME):
    """Long names lose their middle."""
    return name if len(name) <= most else name[:most // 2 - 1] + ".." + name[len(name) - most // 2 + 1:]


def breakdown(run):
    total = {}
    for step in run.steps:
        total[step["operator"]] = total.get(step["operator"], 0) + step["ms"]
    if not sum(total.values()):
        return None
    operators = sorted(total, key=lambda x: -total[x])  # stable: equal ones keep their order
    shown = operators if len(operators) <= len(COLORS) else operators[:len(COLORS) - 1] + ["others"]
    networks = list(dict.fromkeys(step["network"] for step in run.steps))
    panels = [("networks", group(run.steps, "network", shown))]
    panels += [(n, group([s for s in run.steps if s["network"] == n], "layer", shown)) for n in networks]
    sizes = [len(bars) + 1.5 for _, bars in panels]
    fig = figure(run, "Run time by operator and by layer", 10, 0.2 * sum(sizes) + 0.35 * len(panels) + 0.6, [short(x) for x in shown])
    axes = fig.subplots(len(panels), 1, squeeze=False, gridspec_kw={"height_ratios": sizes})[:, 0]
    for ax, (title, bars) in zip(axes, panels):
        stacked(ax, title, bars, shown, is_share=title != "networks")
    axes[-1].set_xlabel("run time (ms)")
    return fig


def group(steps, key, shown):
    """Milliseconds by shown operator of each network or layer."""
    found = {}
    for step in steps:
        parts = found.setdefault(step[key], [0] * len(shown))
        parts[shown.index(step["operator"]) if step["operator"] in shown else -1] += step["ms"]
    return found


def stacked(ax, title, bars, shown, is_share):
    whole = sum(sum(parts) for parts in bars.values())
    at, left = range(len(bars)), [0] * len(bars)
    for k in range(len(shown)):
        ms = [parts[k] for parts in bars.values()]
        ax.barh(at, ms, 0.76, left, color=COLORS[k], hatch=HATCHES[k], edgecolor="black", linewidth=0.6)
        left = [a + b for a, b in zip(left, ms)]
    for y, sum_ in zip(at, left):
        share = f", {100 * sum_ / whole:.1f} %" if is_share and whole else ""
        ax.annotate(f"{sum_:.4g} ms{share}", (sum_, y), (4, 0), textcoords="offset points", va="center", fontsize=7)
    ax.set_yticks(at, [short(x) for x in bars], fontsize=7)
    ax.invert_yaxis()
    ax.set_xlim(0, 1.15 * max(left) or 1)
    ax.set_title(title, loc="left", fontsize=9)
    ax.grid(axis="x", color="#dddddd")


PLOTS = {"violin": lambda run: violins(run, False), "split": lambda run: violins(run, True), "medians": medians,
         "roofline": roofline, "breakdown": breakdown}


def save(fig, path, kind):
    fig.savefig(path, dpi=110, metadata={"Date": None} if kind == "svg" else {"Software": None})
    if kind == "svg":  # names of markers and clip paths, some of which are made of addresses, become numbers
        numbers = {}
        text = re.sub(r'(?<=["#])[a-z][0-9a-f]{10}(?=[")])', lambda m: f"i{numbers.setdefault(m[0], len(numbers))}", path.read_text())
        path.write_text(text)


def main(folder):
    run, n = Run(folder), 0
    for name, draw in PLOTS.items():
        fig = draw(run)
        for kind in ("svg", "png"):
            path = folder / f"{name}.{kind}"
            if fig:
                save(fig, path, kind)
            else:
                path.unlink(missing_ok=True)  # of an earlier run
        n += fig is not None
        plt.close("all")
    if not n:
        print(f"'{folder}' has no samples.csv, roofline.csv or breakdown.csv with anything to draw")
        return 3
    print(n)
    return 0


if __name__ == "__main__":
    try:
        status = main(pathlib.Path(sys.argv[1]))
    except (WrongFile, OSError) as e:
        print(e)
        status = 5
    sys.exit(status)
