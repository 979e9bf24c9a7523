// All heads of a kind at a glance: a grid of layers and heads, and the same heads in order.

class Overview {
  constructor(explorer) {
    this.explorer = explorer;
    this.grid = byId("grid");
    this.legend = byId("grid-legend");
    this.ranked = byId("ranked");
    /** Marks of heads that were changed, by "kind/layer/head"; the live page fills it. */
    this.marks = new Map();
  }

  show() {
    const { explorer } = this;
    const { run, group, measure } = explorer;
    if (!group || !measure) {
      this.grid.replaceChildren();
      this.ranked.replaceChildren();
      return;
    }
    this.range = measureRange(explorer.payload, explorer.state.kind, measure.key);
    const hadFocus = [this.grid, this.ranked].find((x) => x.contains(document.activeElement));
    this.showGrid(run, group, measure);
    this.showLegend(measure);
    this.showRanked(run, group, measure);
    for (const box of [this.grid, this.ranked]) keepInSight(box, "[aria-current]");
    hadFocus?.querySelector("[aria-current]")?.focus({ preventScroll: true });
  }

  showGrid(run, group, measure) {
    const numbers = Array.from({ length: group.heads }, (_, head) =>
      el("th", { scope: "col" }, String(head + 1)),
    );
    const rows = Array.from({ length: group.layers }, (_, layer) =>
      el(
        "tr",
        {},
        el("th", { scope: "row", title: group.modules?.[layer] }, String(layer + 1)),
        ...Array.from({ length: group.heads }, (_, head) =>
          el("td", {}, this.cell(run, group, measure, layer, head)),
        ),
      ),
    );
    this.grid.replaceChildren(
      el(
        "table",
        { "aria-label": `${measure.label} of each head of ${run.name}` },
        el("thead", {}, el("tr", {}, el("th", { class: "axis" }, "layer / head"), ...numbers)),
        el("tbody", {}, ...rows),
      ),
    );
  }

  cell(run, group, measure, layer, head) {
    const { state } = this.explorer;
    const value = valueOf(group, measure.key, layer, head);
    const roles = rolesOf(group, layer, head).map(({ role }) => role);
    const isChosen = state.layer === layer && state.head === head;
    const mark = this.marks.get(`${group.kind}/${layer}/${head}`);
    const words = [
      `${group.kind} layer ${layer + 1}, head ${head + 1}`,
      `${measure.label} ${formatValue(value, measure.format)}`,
      ...(roles.length ? [roles.join(", ")] : []),
      ...(mark ? [mark] : []),
    ].join(": ");
    const button = el(
      "button",
      {
        type: "button",
        class: "cell",
        tabindex: isChosen ? "0" : "-1",
        "aria-current": isChosen ? "true" : null,
        "aria-label": words,
        title: words,
        "data-mark": mark,
        onclick: () => this.explorer.set({ layer, head }),
      },
      shortValue(value, measure.format),
      roles.length ? el("i", { class: "has-role" }) : null,
    );
    if (value !== null) {
      const color = scaleColor(this.share(value));
      button.style.backgroundColor = css(color);
      button.style.color = inkOn(color);
    }
    return button;
  }

  /** Where a value lies between the smallest and the largest. */
  share(value) {
    const [low, high] = this.range;
    return high > low ? (value - low) / (high - low) : 0.5;
  }

  showLegend(measure) {
    const bar = el("span", { class: "bar" });
    bar.style.backgroundImage = scaleGradient();
    const [low, high] = this.range;
    this.legend.replaceChildren(
      el("span", {}, formatValue(low, measure.format)),
      bar,
      el("span", {}, formatValue(high, measure.format)),
      el("span", { class: "key" }, el("i", { class: "has-role" }), " has a role"),
    );
    byId("measure-help").textContent = measure.help;
  }

  showRanked(run, group, measure) {
    const { state } = this.explorer;
    const sign = state.order === "ascending" ? 1 : -1;
    const heads = headsOf(run, [group.kind]).map((entry) => ({
      ...entry,
      value: valueOf(group, measure.key, entry.layer, entry.head),
    }));
    heads.sort((a, b) => compareValues(a.value, b.value, sign));
    this.ranked.replaceChildren(...heads.map((entry) => this.rankedHead(entry, measure)));
  }

  rankedHead({ group, layer, head, value }, measure) {
    const { state } = this.explorer;
    const bar = el("span", { class: "bar" });
    bar.style.width = `${value === null ? 0 : Math.max(1, 100 * this.share(value))}%`;
    const roles = rolesOf(group, layer, head).map(({ role }) => role);
    return el(
      "li",
      {},
      el(
        "button",
        {
          type: "button",
          "aria-current": state.layer === layer && state.head === head ? "true" : null,
          "data-head": `${layer + 1}.${head + 1}`,
          onclick: () => this.explorer.set({ layer, head }),
        },
        el("span", { class: "name" }, `${layer + 1}.${head + 1}`),
        el("span", { class: "number" }, formatValue(value, measure.format)),
        el("span", { class: "track" }, bar),
        el("span", { class: "role" }, roles.join(", ")),
      ),
    );
  }
}

/** The smallest and largest value of a measure over the runs, so that runs share their colors. */
function measureRange(payload, kind, key) {
  let [low, high] = [Infinity, -Infinity];
  for (const run of payload.runs)
    for (const value of groupOf(run, kind)?.values[key]?.flat() ?? [])
      if (value !== null) [low, high] = [Math.min(low, value), Math.max(high, value)];
  return low <= high ? [low, high] : [0, 1];
}

/** A number short enough for a cell of the grid. */
function shortValue(value, format) {
  if (value === null) return "–";
  if (format === "percent") return (100 * value).toFixed(value < 0.0995 ? 1 : 0);
  return Math.abs(value) >= 100 ? value.toFixed(0) : value.toFixed(Math.abs(value) >= 10 ? 1 : 2);
}

/** Order of two values; what has none comes last either way. */
function compareValues(a, b, sign) {
  if (a === null || b === null) return (a === null) - (b === null);
  return typeof a === "string" ? sign * a.localeCompare(b) : sign * (a - b);
}
