// What the keyboard does.

const KEYS = {
  ArrowLeft: ({ state }) => ({ head: state.head - 1 }),
  ArrowRight: ({ state }) => ({ head: state.head + 1 }),
  ArrowUp: ({ state }) => ({ layer: state.layer - 1 }),
  ArrowDown: ({ state }) => ({ layer: state.layer + 1 }),
  j: ({ state }) => ({ sentence: state.sentence + 1 }),
  k: ({ state }) => ({ sentence: state.sentence - 1 }),
  v: ({ state }) => ({ view: state.view === "heat" ? "lines" : "heat" }),
  a: (explorer) => ({ kind: following(explorer.run.groups, explorer.state.kind) }),
  c: (explorer) => ({ compare: nextComparison(explorer) }),
};

function following(groups, kind) {
  const place = groups.findIndex((group) => group.kind === kind);
  return groups[(place + 1) % groups.length].kind;
}

/** The run after the one compared with, none after the last. */
function nextComparison({ payload, state }) {
  const others = payload.runs.map((_, i) => i).filter((i) => i !== state.run);
  const place = state.compare === null ? -1 : others.indexOf(state.compare);
  return others[place + 1] ?? null;
}

/** Whether a key pressed here belongs to a control that makes use of it. */
function isTyping(target) {
  return target.closest("input, select, textarea, dialog, [contenteditable]") !== null;
}

/** Arrows scroll the page, unless the explorer is what is being looked at. */
function takesArrows(target) {
  const section = byId("explorer");
  if (section.contains(target)) return true;
  if (target !== document.body && target !== document.documentElement) return false;
  const { top, bottom } = section.getBoundingClientRect();
  return top < innerHeight * 0.6 && bottom > innerHeight * 0.4;
}

function listenToKeys(explorer) {
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.altKey || event.metaKey || isTyping(event.target)) return;
    if (event.key === "?") {
      byId("help").showModal();
      return;
    }
    const change = Object.hasOwn(KEYS, event.key) ? KEYS[event.key] : null;
    if (!change || !explorer.run) return;
    if (event.key.startsWith("Arrow") && !takesArrows(event.target)) return;
    event.preventDefault();
    explorer.set(change(explorer));
  });
}
