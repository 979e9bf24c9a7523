// One head of one run on one sentence: its name, its numbers, the picture and what is pointed at.

const VIEW_CLASSES = { heat: HeatMap, lines: LineMap };

class Panel {
  /** @param point Told the row and column pointed at, to be marked in every panel. */
  constructor(point) {
    this.point = point;
    this.name = el("h3");
    this.facts = el("dl", { class: "facts" });
    this.roles = el("ul", { class: "roles" });
    this.readout = el("p", { class: "readout", "aria-live": "polite" });
    this.axes = el("p", { class: "axes" });
    this.plot = el("div", { class: "plot" });
    this.root = el(
      "article",
      { class: "panel" },
      el("header", {}, this.name, this.facts),
      this.roles,
      this.readout,
      this.axes,
      this.plot,
    );
  }

  show(explorer, run) {
    const { kind, layer, head, view } = explorer.state;
    const group = groupOf(run, kind);
    const sentence = explorer.sentenceOf(run);
    this.name.replaceChildren(
      `${capitalized(kind ?? "")} layer ${layer + 1}, head ${head + 1}`,
      el("span", { class: "run-name" }, el("bdi", {}, run.name)),
    );
    this.showFacts(explorer, group, layer, head);
    const weights = group ? weightsOf(sentence, kind, layer, head) : null;
    if (!weights) {
      this.showNothing(explorer, run, group, sentence);
      return;
    }
    Object.assign(this, { weights, ...tokensOf(sentence, group), group, sentence, kind });
    this.axes.replaceChildren(...axisWords(group, view));
    this.picture(view).show({ ...this, label: this.describe(layer, head, run) });
    this.mark(null, null);
  }

  /** The picture of a view, kept while the view stays. */
  picture(view) {
    if (this.view !== view || !this.drawing) {
      this.view = view;
      this.drawing = new VIEW_CLASSES[view](this.plot, this.point);
    }
    return this.drawing;
  }

  showFacts(explorer, group, layer, head) {
    const chosen = explorer.payload.measures.filter(
      ({ key }) => ["alpha", "density", "entropy"].includes(key) || key === explorer.state.measure,
    );
    this.facts.replaceChildren(
      ...chosen.map(({ key, label, help, format }) =>
        el(
          "div",
          { title: help },
          el("dt", {}, label),
          el("dd", { "data-key": key }, formatValue(valueOf(group, key, layer, head), format)),
        ),
      ),
    );
    const diversity = group?.layer_values?.diversity?.[layer];
    if (typeof diversity === "number")
      this.facts.append(
        el(
          "div",
          { title: "Jensen-Shannon divergence of the heads of this layer, from 0 to 1" },
          el("dt", {}, "Layer diversity"),
          el("dd", {}, formatValue(diversity, "number")),
        ),
      );
    this.roles.replaceChildren(
      ...rolesOf(group, layer, head).map(({ role, evidence }) =>
        el("li", {}, el("b", {}, role), ` ${evidence}`),
      ),
    );
  }

  showNothing(explorer, run, group, sentence) {
    this.drawing = null;
    this.weights = null;
    this.axes.replaceChildren();
    this.readout.replaceChildren();
    const { kind, layer, head } = explorer.state;
    let why = "There is no sentence to show yet.";
    if (!group) why = `${run.name} has no ${KIND_NAMES[kind] ?? kind}.`;
    else if (layer >= group.layers || head >= group.heads)
      why = `${run.name} has ${group.layers} layers of ${group.heads} heads, not this one.`;
    else if (sentence) why = "The attention of this sentence was not kept.";
    this.plot.replaceChildren(el("p", { class: "empty" }, why));
  }

  describe(layer, head, run) {
    const shape = `${this.queries.length} queries by ${this.keys.length} keys`;
    return (
      `Attention of ${this.kind} layer ${layer + 1}, head ${head + 1} of ${run.name}: ${shape}, ` +
      `${this.weights.value.length} weights above zero. Arrow keys move through it.`
    );
  }

  mark(row, column) {
    if (!this.weights) return;
    this.drawing.mark(row, column);
    this.readout.replaceChildren(...this.say(row, column));
  }

  /** What is pointed at, in words. */
  say(row, column) {
    const token = (name, text) => el("span", { class: "pair" }, `${name} `, tokenText(text, 40));
    if (row === null && column === null) return [this.sayAll()];
    if (row === null || column === null) return this.sayToken(row, column, token);
    const weight = this.weights.at(row, column);
    const isLater = this.kind === "decoder" && column > row && this.queries === this.keys;
    return [
      token("query", this.queries[row]),
      ...this.sayWritten(row),
      " → ",
      token("key", this.keys[column]),
      " ",
      el("output", {}, formatWeight(weight)),
      isLater && weight === 0 ? " (a later token, masked)" : "",
    ];
  }

  /** How many weights there are, of those that a query may give. */
  sayAll() {
    const { weights, queries, keys, kind, sentence } = this;
    const isCausal = kind === "decoder" && queries === keys;
    const all = isCausal ? (queries.length * (queries.length + 1)) / 2 : queries.length * keys.length;
    const count = weights.value.length;
    const number = (x) => x.toLocaleString("en-US");
    const percent = all ? ((100 * count) / all).toFixed(1) : "0";
    const cut = sentence.first ? ` Only the first ${number(sentence.first)} tokens are shown.` : "";
    if (sentence.top)
      return `${number(count)} weights, the largest ${sentence.top} of each row.${cut}`;
    return `${number(count)} of ${number(all)} weights (${percent}%) are above zero.`;
  }

  /** What a decoder writes where it reads a token. */
  sayWritten(row) {
    const next = this.group.queries === "target" ? this.sentence.target_next?.[row] : undefined;
    if (next === undefined) return [];
    return [el("span", { class: "pair" }, " that writes ", tokenText(next, 40))];
  }

  /** How many tokens one token has a line to. */
  sayToken(row, column, token) {
    let count = 0;
    if (row !== null) count = this.weights.span(row)[1] - this.weights.span(row)[0];
    else for (const key of this.weights.col) count += key === column;
    const all = row !== null ? this.keys.length : this.queries.length;
    const words = row !== null ? "gives weight to" : "gets weight from";
    const whole = row !== null ? token("query", this.queries[row]) : token("key", this.keys[column]);
    return [whole, ` ${words} `, el("output", {}, `${count} of ${all}`), " tokens"];
  }
}

function capitalized(text) {
  return text.charAt(0).toUpperCase() + text.slice(1);
}

/** Which tokens are where. */
function axisWords(group, view) {
  const [rows, columns] = view === "heat" ? ["Rows", "Columns"] : ["Left", "Right"];
  return [`${rows}: ${group.queries} tokens as queries. ${columns}: ${group.keys} tokens as keys.`];
}
