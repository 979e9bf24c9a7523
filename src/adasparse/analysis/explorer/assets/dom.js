// Elements made in code. Text arrives as text: nothing here parses markup.

/** A new element with attributes, listeners (`onclick` and the like) and children. */
function el(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.filter((child) => child !== null));
  return element;
}

function byId(id) {
  return document.getElementById(id);
}

/** A token isolated from the direction of the text around it; marks of word boundaries are pale. */
function tokenText(token, limit) {
  const shown = showToken(token, limit);
  const mark = /^[▁Ġ]/.test(shown) && shown.length > 1 ? shown[0] : "";
  return el(
    "bdi",
    { class: "token", dir: "auto" },
    mark ? el("span", { class: "boundary" }, mark) : null,
    shown.slice(mark.length),
  );
}

/** Put options into a select and choose one; both are left alone where nothing changed. */
function fillSelect(select, options, chosen) {
  const key = JSON.stringify(options);
  if (select.dataset.options !== key) {
    select.dataset.options = key;
    select.replaceChildren(
      ...options.map(({ value, label, title }) => el("option", { value, title }, label)),
    );
  }
  select.value = chosen;
}

/** A row of buttons of which one is chosen; the buttons stay while the options do. */
function fillChoices(box, options, chosen, choose) {
  const key = JSON.stringify(options);
  if (box.dataset.options !== key) {
    box.dataset.options = key;
    box.replaceChildren(
      ...options.map(({ value, label, title }) =>
        el(
          "button",
          { type: "button", title, "data-value": value, onclick: () => choose(value) },
          label,
        ),
      ),
    );
  }
  for (const button of box.children)
    button.setAttribute("aria-pressed", String(button.dataset.value === chosen));
}

/** Show a long text on demand. */
function showFullText(text) {
  const dialog = byId("full-text");
  dialog.querySelector("bdi").textContent = text;
  dialog.querySelector(".count").textContent =
    `${Array.from(text).length.toLocaleString("en-US")} characters`;
  dialog.showModal();
}

/** Scroll a box, and nothing around it, so far that what a selector finds in it is seen. */
function keepInSight(box, selector) {
  const element = box.querySelector(selector);
  if (!element) return;
  const [inner, outer] = [element.getBoundingClientRect(), box.getBoundingClientRect()];
  if (inner.top < outer.top || inner.bottom > outer.bottom)
    box.scrollTop += (inner.top + inner.bottom - outer.top - outer.bottom) / 2;
  if (inner.left < outer.left || inner.right > outer.right)
    box.scrollLeft += (inner.left + inner.right - outer.left - outer.right) / 2;
}

/** Call a function once per frame at most. */
function oncePerFrame(draw) {
  let isWaiting = false;
  return () => {
    if (isWaiting) return;
    isWaiting = true;
    requestAnimationFrame(() => {
      isWaiting = false;
      draw();
    });
  };
}

/** Fit a canvas to a box in device pixels; returns its context, cleared, in CSS pixels. */
function prepareCanvas(canvas, width, height) {
  const ratio = window.devicePixelRatio || 1;
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.round(height * ratio);
  canvas.style.width = `${width}px`;
  canvas.style.height = `${height}px`;
  const context = canvas.getContext("2d");
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  return context;
}
