// The page: its controls, its panels, and what happens when something is chosen.

function showToolbar(explorer) {
  const { state, payload, run } = explorer;
  const runs = payload.runs.map((r, i) => ({ value: String(i), label: r.name }));
  fillSelect(byId("run"), runs, String(state.run));
  const others = runs.filter(({ value }) => Number(value) !== state.run);
  const compared = state.compare === null ? "" : String(state.compare);
  fillSelect(byId("compare"), [{ value: "", label: "nothing" }, ...others], compared);
  byId("compare-field").hidden = runs.length < 2;
  const sentences = (run?.sentences ?? []).map((sentence, i) => ({
    value: String(i),
    label: `${sentence.id}  ${showToken(sentence.source_text, 60)}`,
  }));
  fillSelect(byId("sentence"), sentences, String(state.sentence));
  byId("sentence-field").hidden = document.documentElement.dataset.mode === "live";
  byId("previous").disabled = state.sentence <= 0;
  byId("next").disabled = state.sentence >= sentences.length - 1;
  const kinds = (run?.groups ?? []).map(({ kind }) => ({
    value: kind,
    label: capitalized(kind),
    title: KIND_NAMES[kind],
  }));
  fillChoices(byId("kind"), kinds, state.kind, (kind) => explorer.set({ kind }));
  fillChoices(byId("view"), VIEWS, state.view, (view) => explorer.set({ view }));
  const measures = payload.measures.map(({ key, label, help }) => ({
    value: key,
    label,
    title: help,
  }));
  fillSelect(byId("measure"), measures, state.measure);
  byId("order").textContent = state.order === "ascending" ? "smallest first" : "largest first";
  byId("permalink").setAttribute("href", explorer.fragment());
}

function listenToToolbar(explorer) {
  const chosen = (id, change) =>
    byId(id).addEventListener("change", (event) => explorer.set(change(event.target.value)));
  chosen("run", (value) => ({ run: Number(value) }));
  chosen("compare", (value) => ({ compare: value === "" ? null : Number(value) }));
  chosen("sentence", (value) => ({ sentence: Number(value) }));
  chosen("measure", (value) => ({ measure: value }));
  const clicked = (id, change) =>
    byId(id).addEventListener("click", () => explorer.set(change(explorer.state)));
  clicked("previous", ({ sentence }) => ({ sentence: sentence - 1 }));
  clicked("next", ({ sentence }) => ({ sentence: sentence + 1 }));
  clicked("order", ({ order }) => ({ order: order === "ascending" ? "descending" : "ascending" }));
}

function showSentence(explorer) {
  const sentence = explorer.sentenceOf(explorer.run);
  const lines = [];
  const line = (name, text) =>
    el(
      "p",
      {},
      el("span", { class: "name" }, name),
      el("bdi", { dir: "auto", title: "Show all of it", onclick: () => showFullText(text) }, showToken(text, 400)),
    );
  if (sentence) lines.push(line("source", sentence.source_text));
  if (sentence?.target_text) lines.push(line("target", sentence.target_text));
  byId("sentence-text").replaceChildren(...lines);
}

function showWeightLegend() {
  const bar = el("span", { class: "bar" });
  bar.style.backgroundImage = scaleGradient();
  byId("weight-legend").replaceChildren(
    el("span", { class: "blank" }),
    el("span", {}, "exactly 0"),
    bar,
    el("span", { class: "ticks" }, ...["0", "0.1", "0.25", "0.5", "1"].map(legendTick)),
  );
}

function legendTick(text) {
  const tick = el("span", {}, text);
  tick.style.left = `${100 * Math.sqrt(Number(text))}%`;
  return tick;
}

function listenToTheme(redraw) {
  const root = document.documentElement;
  const remembered = (() => {
    try {
      return localStorage.getItem("adasparse-theme");
    } catch {
      return null; // a page inside a notebook may not keep anything
    }
  })();
  if (remembered === "dark" || remembered === "light") root.dataset.theme = remembered;
  const button = byId("theme");
  const show = () => button.setAttribute("aria-pressed", String(isDark()));
  show();
  button.addEventListener("click", () => {
    root.dataset.theme = isDark() ? "light" : "dark";
    try {
      localStorage.setItem("adasparse-theme", root.dataset.theme);
    } catch {
      // See above.
    }
    show();
    redraw();
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
    show();
    redraw();
  });
}

function listenToZoom(panels) {
  let zoom = 1;
  const change = (factor) => () => {
    zoom = Math.min(4, Math.max(0.1, zoom * factor));
    for (const panel of panels) panel.drawing?.setZoom(zoom);
  };
  byId("zoom-in").addEventListener("click", change(1.25));
  byId("zoom-out").addEventListener("click", change(0.8));
  return () => zoom;
}

function start() {
  const payload = JSON.parse(byId("payload").textContent);
  const explorer = new Explorer(payload);
  const overview = new Overview(explorer);
  const panels = [];
  const point = (row, column) => panels.forEach((panel) => panel.mark(row, column));
  panels.push(new Panel(point), new Panel(point));
  byId("panels").replaceChildren(...panels.map((panel) => panel.root));
  const zoom = listenToZoom(panels);

  const render = () => {
    if (!explorer.run) return;
    showToolbar(explorer);
    showSentence(explorer);
    overview.show();
    panels[0].show(explorer, explorer.run);
    panels[1].root.hidden = explorer.other === null;
    if (explorer.other) panels[1].show(explorer, explorer.other);
    for (const panel of panels) if (panel.drawing) panel.drawing.setZoom(zoom());
    byId("zoom").hidden = byId("weight-legend").hidden = explorer.state.view !== "heat";
    byId("line-legend").hidden = explorer.state.view !== "lines";
    byId("panels").classList.toggle("two", explorer.other !== null);
  };
  explorer.listeners.push(render);
  listenToToolbar(explorer);
  listenToKeys(explorer);
  listenToTheme(() => {
    showWeightLegend();
    render();
  });
  byId("help-button").addEventListener("click", () => byId("help").showModal());
  for (const dialog of document.querySelectorAll("dialog"))
    dialog.addEventListener("click", (event) => event.target === dialog && dialog.close());
  showWeightLegend();
  const toExplorer = () => byId("explorer").scrollIntoView();
  const isLinked = explorer.readAddress();
  render();
  if (byId("table")) new MeasureTable(explorer);
  if (isLinked) toExplorer();
  addEventListener("hashchange", () => {
    if (!explorer.readAddress()) return;
    render();
    toExplorer();
  });
  if (document.documentElement.dataset.mode === "live") startLive(explorer, overview);
}

document.addEventListener("DOMContentLoaded", start);
