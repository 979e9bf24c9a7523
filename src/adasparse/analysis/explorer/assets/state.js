// What is being looked at, kept in the fragment of the address.

const DEFAULT_STATE = {
  run: 0,
  compare: null,
  sentence: 0,
  kind: null,
  layer: 0,
  head: 0,
  view: "heat",
  measure: null,
  order: "descending",
};
const VIEWS = [
  { value: "heat", label: "Heat map", title: "One row per query, one column per key" },
  { value: "lines", label: "Lines", title: "Queries on the left, keys on the right" },
];

class Explorer {
  constructor(payload) {
    this.listeners = [];
    this.load(payload);
  }

  /** Take a payload, keeping the choices that still make sense. */
  load(payload) {
    this.payload = payload;
    this.state = this.fit({ ...DEFAULT_STATE, ...this.state });
  }

  get run() {
    return this.payload.runs[this.state.run];
  }

  get other() {
    return this.state.compare === null ? null : this.payload.runs[this.state.compare];
  }

  get group() {
    return groupOf(this.run, this.state.kind);
  }

  get measure() {
    return this.payload.measures.find((measure) => measure.key === this.state.measure) ?? null;
  }

  /** The chosen sentence of a run: the one with the same name, else the one in the same place. */
  sentenceOf(run) {
    const id = this.run?.sentences[this.state.sentence]?.id;
    return run?.sentences.find((s) => s.id === id) ?? run?.sentences[this.state.sentence] ?? null;
  }

  /** A state with every choice inside what the payload has. */
  fit(state) {
    const { runs, measures } = this.payload;
    const inside = (value, count) => Math.min(Math.max(0, Math.trunc(value) || 0), Math.max(0, count - 1));
    const run = inside(state.run, runs.length);
    const groups = runs[run]?.groups ?? [];
    const group = groups.find((g) => g.kind === state.kind) ?? groups[0];
    const hasOther = state.compare !== null && state.compare < runs.length && state.compare !== run;
    const known = measures.find((measure) => measure.key === state.measure);
    const preferred = measures.find((measure) => measure.key === "alpha") ?? measures[0];
    return {
      run,
      compare: hasOther ? state.compare : null,
      sentence: inside(state.sentence, runs[run]?.sentences.length ?? 0),
      kind: group?.kind ?? null,
      layer: inside(state.layer, group?.layers ?? 0),
      head: inside(state.head, group?.heads ?? 0),
      view: VIEWS.some((view) => view.value === state.view) ? state.view : "heat",
      measure: (known ?? preferred)?.key ?? null,
      order: state.order === "ascending" ? "ascending" : "descending",
    };
  }

  /** Change some choices and show the result. */
  set(changes) {
    this.state = this.fit({ ...this.state, ...changes });
    this.writeAddress();
    this.notify();
  }

  notify() {
    for (const listener of this.listeners) listener();
  }

  /** The fragment of a state, with names and numbers as they are shown: layers and heads from 1. */
  fragment(changes = {}) {
    const state = this.fit({ ...this.state, ...changes });
    const run = this.payload.runs[state.run];
    const parts = new URLSearchParams();
    const put = (name, value) => value !== null && value !== undefined && parts.set(name, value);
    put("run", run?.name);
    if (state.compare !== null) put("compare", this.payload.runs[state.compare].name);
    put("sentence", run?.sentences[state.sentence]?.id);
    put("kind", state.kind);
    put("layer", state.layer + 1);
    put("head", state.head + 1);
    put("view", state.view);
    put("measure", state.measure);
    if (state.order !== DEFAULT_STATE.order) put("order", state.order);
    return `#${parts}`;
  }

  /** Take the state from the fragment; false if there is none in it. */
  readAddress() {
    const text = location.hash.slice(1);
    if (!text.includes("=")) return false;
    const parts = new URLSearchParams(text);
    const runs = this.payload.runs;
    const runNamed = (name) => runs.findIndex((run) => run.name === name);
    const run = Math.max(0, runNamed(parts.get("run")));
    const compare = parts.has("compare") ? runNamed(parts.get("compare")) : -1;
    const ids = runs[run]?.sentences.map((sentence) => String(sentence.id)) ?? [];
    this.state = this.fit({
      ...DEFAULT_STATE,
      run,
      compare: compare < 0 ? null : compare,
      sentence: Math.max(0, ids.indexOf(parts.get("sentence"))),
      kind: parts.get("kind"),
      layer: Number(parts.get("layer")) - 1,
      head: Number(parts.get("head")) - 1,
      view: parts.get("view"),
      measure: parts.get("measure"),
      order: parts.get("order"),
    });
    return true;
  }

  writeAddress() {
    try {
      history.replaceState(null, "", this.fragment());
    } catch {
      // A page inside a notebook has no address of its own.
    }
  }
}
