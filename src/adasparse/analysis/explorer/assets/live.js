// The live page: text goes to the server, heads can be changed, the answer is shown.

/** One request at a time; of those asked for meanwhile, the last one follows. */
class Server {
  constructor() {
    this.waiting = null;
    this.isBusy = false;
  }

  async ask(task) {
    this.waiting = task;
    if (this.isBusy) return;
    this.isBusy = true;
    while (this.waiting) {
      const next = this.waiting;
      this.waiting = null;
      await next();
    }
    this.isBusy = false;
  }
}

async function postRun(body) {
  let response;
  try {
    response = await fetch("api/run", {
      method: "POST",
      headers: { "Content-Type": "application/json" },
      body: JSON.stringify(body),
    });
  } catch {
    throw new Error("The server does not answer. Is adasparse explore still running?");
  }
  const answer = await response.json().catch(() => ({}));
  if (!response.ok) throw new Error(answer.error ?? `The server answered ${response.status}.`);
  return answer;
}

class LivePage {
  constructor(explorer, overview) {
    Object.assign(this, { explorer, overview });
    this.server = new Server();
    /** Changes of heads by "kind/layer/head": alpha, or isOff. */
    this.changes = new Map();
    this.trained = explorer.payload.runs[0];
    this.baseline = null;
    this.listen();
    explorer.listeners.push(() => this.showControls());
    this.showControls();
  }

  listen() {
    const form = byId("live-form");
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      this.run();
    });
    form.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
      if (event.target.tagName !== "TEXTAREA") return;
      event.preventDefault();
      form.requestSubmit();
    });
    byId("live-target-field").hidden = this.trained.kind !== "translation";
    const setAlpha = (event) => {
      const alpha = Number(event.target.value);
      if (event.target.value !== "" && event.target.validity.valid) this.change({ alpha });
    };
    byId("alpha-slider").addEventListener("input", setAlpha);
    byId("alpha-number").addEventListener("input", setAlpha);
    byId("head-off").addEventListener("change", (event) =>
      this.change({ isOff: event.target.checked }),
    );
    byId("reset-head").addEventListener("click", () => this.reset([this.key()]));
    byId("reset-all").addEventListener("click", () => this.reset([...this.changes.keys()]));
  }

  key({ kind, layer, head } = this.explorer.state) {
    return `${kind}/${layer}/${head}`;
  }

  trainedAlpha({ kind, layer, head } = this.explorer.state) {
    return valueOf(groupOf(this.trained, kind), "alpha", layer, head);
  }

  /** Change the chosen head and run again. */
  change(part) {
    const { kind, layer, head } = this.explorer.state;
    const before = this.changes.get(this.key()) ?? { kind, layer, head };
    const after = { ...before, ...part };
    if (after.alpha === undefined && !after.isOff) this.changes.delete(this.key());
    else this.changes.set(this.key(), after);
    this.changed();
  }

  reset(keys) {
    for (const key of keys) this.changes.delete(key);
    this.changed();
  }

  changed() {
    this.overview.marks.clear();
    for (const [key, { isOff }] of this.changes)
      this.overview.marks.set(key, isOff ? "off" : "changed");
    this.overview.show();
    this.showControls();
    if (this.baseline) this.run(this.baseline.asked);
  }

  /** The body of a request: text, and changes by the names of modules. */
  body({ text, target }, changes) {
    const body = { text, alpha: {}, off: {} };
    if (target) body.target = target;
    for (const { kind, layer, head, alpha, isOff } of changes) {
      const module = groupOf(this.trained, kind).modules[layer];
      if (alpha !== undefined) (body.alpha[module] ??= {})[head] = alpha;
      if (isOff) (body.off[module] ??= []).push(head);
    }
    return body;
  }

  /** What the form asks for. */
  asked() {
    return { text: byId("live-text").value, target: byId("live-target").value.trim() };
  }

  run(asked = this.asked()) {
    return this.server.ask(async () => {
      const started = performance.now();
      byId("live-status").textContent = "running …";
      try {
        const isKnown = JSON.stringify(this.baseline?.asked) === JSON.stringify(asked);
        if (!isKnown) this.baseline = { asked, ...(await postRun(this.body(asked, []))) };
        const changes = [...this.changes.values()];
        const now = changes.length ? await postRun(this.body(asked, changes)) : this.baseline;
        this.show(now);
        byId("live-error").textContent = "";
        const seconds = (performance.now() - started) / 1000;
        byId("live-status").textContent = `${seconds.toFixed(2)} s`;
      } catch (error) {
        byId("live-status").textContent = "";
        byId("live-error").textContent = error.message;
      }
    });
  }

  show(now) {
    const { payload } = this.baseline;
    const isChanged = now !== this.baseline;
    const runs = [...payload.runs];
    if (isChanged) runs.unshift({ ...now.payload.runs[0], name: `${runs[0].name}, changed` });
    this.explorer.load({ ...payload, runs });
    this.explorer.set({ run: 0 });
    byId("live-output").replaceChildren(
      ...showOutput(now.output, isChanged ? this.baseline.output : null),
    );
  }

  showControls() {
    const { kind, layer, head } = this.explorer.state;
    const change = this.changes.get(this.key());
    const alpha = change?.alpha ?? this.trainedAlpha();
    byId("control-name").textContent =
      `${capitalized(kind)} layer ${layer + 1}, head ${head + 1}`;
    for (const id of ["alpha-slider", "alpha-number"]) {
      const input = byId(id);
      if (document.activeElement !== input) input.value = (alpha ?? 1).toFixed(2);
      input.disabled = alpha === null;
    }
    byId("head-off").checked = Boolean(change?.isOff);
    byId("reset-head").disabled = !change;
    byId("reset-all").disabled = this.changes.size === 0;
    byId("changes").replaceChildren(...[...this.changes].map(([key, x]) => this.chip(key, x)));
  }

  chip(key, change) {
    const { kind, layer, head, alpha, isOff } = change;
    const name = `${kind} ${layer + 1}.${head + 1}`;
    const before = formatValue(this.trainedAlpha(change), "alpha");
    const what = [
      ...(alpha === undefined ? [] : [`α ${before} → ${alpha.toFixed(2)}`]),
      ...(isOff ? ["off"] : []),
    ].join(", ");
    const undo = { type: "button", "aria-label": `Reset ${name}`, onclick: () => this.reset([key]) };
    return el("li", {}, `${name}: ${what}`, el("button", undo, "×"));
  }
}

/** What the model wrote or predicts, beside what it did as trained. */
function showOutput(output, before) {
  if (!output) return [];
  if (output.kind === "translation") {
    const text = (words, name) => el("p", { class: name }, el("bdi", { dir: "auto" }, words || "∅"));
    const isOther = before && before.text !== output.text;
    return [
      el("p", { class: "name" }, "Translation"),
      text(output.text, "text"),
      ...(isOther ? [el("p", { class: "name" }, "as trained"), text(before.text, "before")] : []),
    ];
  }
  const known = new Map(before?.tokens.map(({ token, probability }) => [token, probability]));
  return [
    el("p", { class: "name" }, "Next token"),
    el("ol", { class: "predictions" }, ...output.tokens.map((x) => prediction(x, known))),
  ];
}

function prediction({ token, probability }, known) {
  const bar = el("span", { class: "bar" });
  bar.style.width = `${Math.max(0.5, 100 * probability)}%`;
  const was = known.has(token) ? ` was ${formatValue(known.get(token), "percent")}` : "";
  return el(
    "li",
    { title: was || null },
    tokenText(token, 20),
    el("span", { class: "number" }, formatValue(probability, "percent")),
    bar,
  );
}

function startLive(explorer, overview) {
  const page = new LivePage(explorer, overview);
  const first = explorer.payload.first_text;
  if (first) {
    byId("live-text").value = first;
    page.run();
  } else byId("live-text").focus();
}
