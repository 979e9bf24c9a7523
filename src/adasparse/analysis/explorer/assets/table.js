// Every measure of every head, in a table that sorts by any column.

class MeasureTable {
  constructor(explorer) {
    this.explorer = explorer;
    this.sort = { key: "place", sign: 1 };
    this.withIntervals = false;
    this.runFilter = byId("table-run");
    this.kindFilter = byId("table-kind");
    const render = () => this.show();
    this.runFilter.addEventListener("change", render);
    this.kindFilter.addEventListener("change", render);
    byId("table-intervals").addEventListener("change", (event) => {
      this.withIntervals = event.target.checked;
      this.show();
    });
    this.fillFilters();
    this.show();
  }

  fillFilters() {
    const { runs } = this.explorer.payload;
    const all = { value: "", label: "all" };
    const kinds = new Set(runs.flatMap((run) => run.groups.map((group) => group.kind)));
    const named = runs.map((run, i) => ({ value: String(i), label: run.name }));
    fillSelect(this.runFilter, [all, ...named], "");
    fillSelect(this.kindFilter, [all, ...[...kinds].map((x) => ({ value: x, label: x }))], "");
  }

  columns() {
    const { measures } = this.explorer.payload;
    return [
      { key: "place", label: "Head", help: "Kind, layer and head, both from 1", isText: true },
      ...measures.map((measure) => ({ ...measure, isNumber: true })),
      { key: "role", label: "Role", help: "What the head does, by its measures", isText: true },
    ];
  }

  /** One entry for each head that the filters let pass, with what to sort by. */
  entries() {
    const { runs } = this.explorer.payload;
    const kind = this.kindFilter.value;
    return runs.flatMap((run, index) => {
      if (this.runFilter.value !== "" && Number(this.runFilter.value) !== index) return [];
      return headsOf(run, kind ? [kind] : null).map((entry, place) => ({
        ...entry,
        run,
        index,
        sortable: (key) => {
          if (key === "place") return 1e6 * index + place;
          if (key !== "role") return valueOf(entry.group, key, entry.layer, entry.head);
          return rolesOf(entry.group, entry.layer, entry.head)[0]?.role ?? null;
        },
      }));
    });
  }

  show() {
    const columns = this.columns();
    const { key, sign } = this.sort;
    const entries = this.entries();
    entries.sort((a, b) => compareValues(a.sortable(key), b.sortable(key), sign));
    byId("table").replaceChildren(
      el("thead", {}, el("tr", {}, ...columns.map((column) => this.header(column)))),
      el("tbody", {}, ...entries.map((entry) => this.row(entry, columns))),
    );
  }

  header({ key, label, help, isNumber }) {
    const isSorted = this.sort.key === key;
    const direction = this.sort.sign > 0 ? "ascending" : "descending";
    const choose = () => {
      this.sort = { key, sign: isSorted ? -this.sort.sign : isNumber ? -1 : 1 };
      this.show();
      byId("table").querySelector(`th[aria-sort] button`)?.focus();
    };
    return el(
      "th",
      { scope: "col", "aria-sort": isSorted ? direction : null, class: isNumber ? "number" : null },
      el("button", { type: "button", title: help, "data-key": key, onclick: choose }, label),
    );
  }

  row({ run, index, group, layer, head }, columns) {
    const cells = columns.slice(1, -1).map(({ key, format }) => {
      const interval = group.intervals?.[key]?.[layer]?.[head];
      const range =
        this.withIntervals && interval
          ? el("small", {}, interval.map((x) => formatValue(x, format)).join(" to "))
          : null;
      const value = valueOf(group, key, layer, head);
      return el("td", { class: "number" }, formatValue(value, format), range);
    });
    const place = { run: index, kind: group.kind, layer, head };
    const name = `${group.kind} ${layer + 1}.${head + 1}`;
    const hasRuns = this.explorer.payload.runs.length > 1;
    const roles = rolesOf(group, layer, head);
    return el(
      "tr",
      {},
      el(
        "th",
        { scope: "row" },
        el("a", { href: this.explorer.fragment(place), title: "Show in the explorer" }, name),
        hasRuns ? el("small", {}, el("bdi", {}, run.name)) : null,
      ),
      ...cells,
      el(
        "td",
        { title: roles.map(({ evidence }) => evidence).join("\n") },
        roles.map(({ role }) => role).join(", "),
      ),
    );
  }
}
