// The heat map: a row for each query, a column for each key, exact zeros blank.
//
// Only what is in sight is drawn, so that a text of thousands of tokens scrolls as a short one.

const CELL = { least: 3, most: 40, readable: 11 };

class HeatMap {
  /** @param point Told the row and column under the pointer, or null and null. */
  constructor(host, point) {
    this.point = point;
    this.marked = [null, null];
    this.zoom = 1;
    this.canvas = el("canvas");
    this.space = el("div", { class: "space" }, this.canvas);
    this.scroll = el("div", { class: "scroll", tabindex: "0", role: "img" }, this.space);
    this.rowLabels = el("div", { class: "strip rows" });
    this.columnLabels = el("div", { class: "strip columns" });
    this.corner = el("div", { class: "corner" });
    this.root = el(
      "div",
      { class: "heat" },
      this.corner,
      this.columnLabels,
      this.rowLabels,
      this.scroll,
    );
    host.replaceChildren(this.root);
    this.draw = oncePerFrame(() => this.drawNow());
    this.scroll.addEventListener("scroll", this.draw);
    this.scroll.addEventListener("pointermove", (event) => this.follow(event));
    this.scroll.addEventListener("pointerdown", (event) => this.follow(event));
    this.scroll.addEventListener("pointerleave", () => this.point(null, null));
    this.scroll.addEventListener("keydown", (event) => this.step(event));
    new ResizeObserver(() => this.layOut()).observe(this.root);
  }

  show({ weights, queries, keys, label }) {
    Object.assign(this, { weights, queries, keys });
    this.scroll.setAttribute("aria-label", label);
    this.layOut();
  }

  /** Change how large cells are. */
  setZoom(zoom) {
    this.zoom = zoom;
    this.layOut();
  }

  /** Sizes that follow from the tokens and the room there is. */
  layOut() {
    if (!this.weights || !this.root.clientWidth) return;
    const labelWidth = (tokens, most) => {
      let longest = 2;
      for (const token of tokens) longest = Math.max(longest, showToken(token, 14).length);
      return Math.min(most, 14 + 7.4 * longest);
    };
    const isNarrow = this.root.clientWidth < 500;
    this.left = labelWidth(this.queries, isNarrow ? 84 : 120);
    this.top = 0.87 * labelWidth(this.keys, isNarrow ? 84 : 110) + 8;
    this.slant = this.top * 0.62;
    const room = this.root.clientWidth - this.left - this.slant - 2;
    const fitting = Math.floor(room / Math.max(1, this.keys.length));
    const usual = Math.min(CELL.most, Math.max(isNarrow ? 15 : 17, fitting));
    this.cell = Math.max(CELL.least, Math.round(usual * this.zoom));
    this.root.style.gridTemplateColumns = `${this.left}px minmax(0, 1fr)`;
    this.root.style.gridTemplateRows = `${this.top}px auto`;
    this.space.style.width = `${this.keys.length * this.cell + this.slant}px`;
    this.space.style.height = `${this.queries.length * this.cell}px`;
    this.draw();
  }

  /** First and one past the last index in sight. */
  inSight(offset, extent, count) {
    const first = Math.max(0, Math.floor(offset / this.cell));
    return [first, Math.min(count, Math.ceil((offset + extent) / this.cell) + 1)];
  }

  drawNow() {
    if (!this.weights) return;
    const { scrollLeft, scrollTop, clientWidth, clientHeight } = this.scroll;
    const context = prepareCanvas(this.canvas, clientWidth, clientHeight);
    const rows = this.inSight(scrollTop, clientHeight, this.queries.length);
    const columns = this.inSight(scrollLeft, clientWidth, this.keys.length);
    context.clearRect(0, 0, clientWidth, clientHeight);
    context.translate(-scrollLeft, -scrollTop);
    this.drawRules(context, rows, columns);
    this.drawCells(context, rows, columns);
    this.drawMark(context);
    this.labelStrip(this.rowLabels, this.queries, rows, scrollTop, "row");
    this.labelStrip(this.columnLabels, this.keys, columns, scrollLeft, "column");
  }

  drawRules(context, rows, columns) {
    const cell = this.cell;
    const [right, bottom] = [this.keys.length * cell, this.queries.length * cell];
    context.fillStyle = canvasColors().blank;
    context.fillRect(0, 0, right, bottom);
    context.fillStyle = canvasColors().rule;
    const step = cell >= 8 ? 1 : 10;
    const aligned = (first) => Math.floor(first / step) * step;
    for (let row = aligned(rows[0]); row <= rows[1]; row += step)
      if (row * cell <= bottom) context.fillRect(0, row * cell, right, 1);
    for (let column = aligned(columns[0]); column <= columns[1]; column += step)
      if (column * cell <= right) context.fillRect(column * cell, 0, 1, bottom);
  }

  drawCells(context, rows, columns) {
    const { weights, cell } = this;
    const size = cell >= 6 ? cell - 1 : cell;
    const inset = cell >= 6 ? 1 : 0;
    for (let row = rows[0]; row < rows[1]; row++) {
      const [begin, end] = weights.span(row);
      for (let i = begin; i < end; i++) {
        const column = weights.col[i];
        if (column < columns[0] || column >= columns[1]) continue;
        context.fillStyle = weightColor(weights.weight(i));
        context.fillRect(column * cell + inset, row * cell + inset, size, size);
      }
    }
  }

  drawMark(context) {
    const [row, column] = this.marked;
    if (row === null) return;
    const cell = this.cell;
    context.strokeStyle = canvasColors().mark;
    context.lineWidth = 2;
    context.strokeRect(column * cell, row * cell, cell + 1, cell + 1);
  }

  /** Put the tokens in sight beside the matrix; where they would overlap, every few of them. */
  labelStrip(strip, tokens, [first, last], offset, kind) {
    const cell = this.cell;
    const every = Math.ceil(CELL.readable / cell);
    const marked = this.marked[kind === "row" ? 0 : 1];
    const labels = [];
    for (let i = Math.ceil(first / every) * every; i < last; i += every) {
      const label = el(
        "span",
        {
          class: i === marked ? "label marked" : "label",
          title: showToken(tokens[i], 200),
          onclick: () => showFullText(tokens[i]),
        },
        tokenText(tokens[i], 14),
      );
      const middle = i * cell + cell / 2 - offset;
      if (kind === "row") label.style.transform = `translateY(${middle}px) translateY(-50%)`;
      else label.style.transform = `translateX(${middle}px) rotate(-58deg)`;
      labels.push(label);
    }
    strip.replaceChildren(...labels);
  }

  follow(event) {
    const box = this.scroll.getBoundingClientRect();
    const column = Math.floor((event.clientX - box.left + this.scroll.scrollLeft) / this.cell);
    const row = Math.floor((event.clientY - box.top + this.scroll.scrollTop) / this.cell);
    const isInside = row < this.queries.length && column < this.keys.length;
    this.point(...(isInside ? [row, column] : [null, null]));
  }

  /** Move the mark by arrow keys. */
  step(event) {
    const move = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };
    if (!(event.key in move) || event.ctrlKey || event.altKey || event.metaKey) return;
    event.preventDefault();
    event.stopPropagation();
    const [row, column] = this.marked;
    const [down, right] = row === null ? [0, 0] : move[event.key];
    const limit = (x, count) => Math.min(Math.max(0, x), count - 1);
    const next = [
      limit((row ?? 0) + down, this.queries.length),
      limit((column ?? 0) + right, this.keys.length),
    ];
    this.point(...next);
    this.bringIntoSight(...next);
  }

  bringIntoSight(row, column) {
    const { scroll, cell } = this;
    const into = (offset, extent, place) =>
      place * cell < offset
        ? place * cell
        : Math.max(offset, (place + 1) * cell - extent);
    scroll.scrollTop = into(scroll.scrollTop, scroll.clientHeight, row);
    scroll.scrollLeft = into(scroll.scrollLeft, scroll.clientWidth, column);
  }

  mark(row, column) {
    if (this.marked[0] === row && this.marked[1] === column) return;
    this.marked = [row, column];
    this.draw();
  }
}
