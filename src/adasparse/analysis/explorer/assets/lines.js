// The bipartite view: queries on the left, keys on the right, a line for each weight above zero.

const LINE = { row: 24, most: 20000 };

class LineMap {
  /** @param point Told the row and column of the token under the pointer; one of them is null. */
  constructor(host, point) {
    this.point = point;
    this.marked = [null, null];
    this.canvas = el("canvas");
    this.left = el("div", { class: "side queries" });
    this.right = el("div", { class: "side keys" });
    this.middle = el("div", { class: "middle" }, this.canvas);
    this.space = el("div", { class: "space" }, this.left, this.middle, this.right);
    this.scroll = el("div", { class: "scroll", tabindex: "0", role: "img" }, this.space);
    this.note = el("p", { class: "note" });
    this.root = el("div", { class: "lines" }, this.scroll, this.note);
    host.replaceChildren(this.root);
    this.draw = oncePerFrame(() => this.drawNow());
    this.scroll.addEventListener("scroll", this.draw);
    this.scroll.addEventListener("pointermove", (event) => this.follow(event));
    this.scroll.addEventListener("pointerdown", (event) => this.follow(event));
    this.scroll.addEventListener("pointerleave", () => this.point(null, null));
    this.scroll.addEventListener("keydown", (event) => this.step(event));
    new ResizeObserver(() => this.draw()).observe(this.root);
  }

  show({ weights, queries, keys, label }) {
    Object.assign(this, { weights, queries, keys });
    this.scroll.setAttribute("aria-label", label);
    this.count = Math.max(queries.length, keys.length);
    this.space.style.height = `${this.count * LINE.row}px`;
    this.draw();
  }

  setZoom() {}

  drawNow() {
    if (!this.weights || !this.scroll.clientHeight) return;
    const { scrollTop, clientHeight } = this.scroll;
    const first = Math.max(0, Math.floor(scrollTop / LINE.row) - 1);
    const last = Math.min(this.count, Math.ceil((scrollTop + clientHeight) / LINE.row) + 1);
    const context = prepareCanvas(this.canvas, this.middle.clientWidth, clientHeight);
    context.clearRect(0, 0, this.middle.clientWidth, clientHeight);
    context.translate(0, -scrollTop);
    this.drawLines(context, this.linesInSight(first, last));
    this.labelSide(this.left, this.queries, first, last, 0);
    this.labelSide(this.right, this.keys, first, last, 1);
  }

  /** Lines of which an end is in sight, as [row, column, weight], the strongest last. */
  linesInSight(first, last) {
    const { weights } = this;
    const lines = [];
    for (let row = 0; row < weights.rows; row++) {
      const isSeen = row >= first && row < last;
      const [begin, end] = weights.span(row);
      for (let i = begin; i < end; i++) {
        const column = weights.col[i];
        if (isSeen || (column >= first && column < last))
          lines.push([row, column, weights.weight(i)]);
      }
    }
    lines.sort((a, b) => a[2] - b[2]);
    const left = Math.max(0, lines.length - LINE.most);
    this.note.textContent = left
      ? `The strongest ${LINE.most.toLocaleString("en-US")} of ` +
        `${lines.length.toLocaleString("en-US")} lines in sight are drawn.`
      : "";
    return left ? lines.slice(left) : lines;
  }

  drawLines(context, lines) {
    const colors = canvasColors();
    const width = this.middle.clientWidth;
    const [row, column] = this.marked;
    const hasMark = row !== null || column !== null;
    const middle = (i) => i * LINE.row + LINE.row / 2;
    for (const isFront of hasMark ? [false, true] : [true]) {
      for (const [from, to, weight] of lines) {
        const isChosen = !hasMark || ((row ?? from) === from && (column ?? to) === to);
        if (isChosen !== isFront) continue;
        context.strokeStyle = isFront ? (hasMark ? colors.mark : colors.line) : colors.faded;
        context.globalAlpha = (isFront ? 1 : 0.4) * (0.15 + 0.85 * Math.sqrt(weight));
        context.lineWidth = 0.6 + 4.4 * weight;
        context.beginPath();
        context.moveTo(0, middle(from));
        context.bezierCurveTo(width * 0.4, middle(from), width * 0.6, middle(to), width, middle(to));
        context.stroke();
      }
    }
    context.globalAlpha = 1;
  }

  /** Tokens in sight of one side, with the weight of the line to the marked token. */
  labelSide(side, tokens, first, last, which) {
    const marked = this.marked[which];
    const across = this.marked[1 - which];
    const labels = [];
    for (let i = first; i < Math.min(last, tokens.length); i++) {
      const weight =
        across === null ? null : which ? this.weights.at(across, i) : this.weights.at(i, across);
      const number = weight ? el("span", { class: "number" }, formatWeight(weight)) : null;
      const label = el(
        "span",
        {
          class: i === marked ? "label marked" : weight ? "label linked" : "label",
          title: showToken(tokens[i], 200),
          onclick: () => showFullText(tokens[i]),
        },
        ...(which ? [tokenText(tokens[i], 16), number] : [number, tokenText(tokens[i], 16)]),
      );
      label.style.top = `${i * LINE.row}px`;
      labels.push(label);
    }
    side.replaceChildren(...labels);
  }

  follow(event) {
    const box = this.scroll.getBoundingClientRect();
    const i = Math.floor((event.clientY - box.top + this.scroll.scrollTop) / LINE.row);
    const isLeft = event.clientX - box.left < box.width / 2;
    const count = (isLeft ? this.queries : this.keys).length;
    if (i >= count) this.point(null, null);
    else this.point(...(isLeft ? [i, null] : [null, i]));
  }

  /** Move through the queries, or the keys after the right arrow. */
  step(event) {
    if (!event.key.startsWith("Arrow") || event.ctrlKey || event.altKey || event.metaKey) return;
    event.preventDefault();
    event.stopPropagation();
    let [row, column] = this.marked;
    if (event.key === "ArrowLeft") [row, column] = [row ?? column ?? 0, null];
    if (event.key === "ArrowRight") [row, column] = [null, column ?? row ?? 0];
    const move = { ArrowUp: -1, ArrowDown: 1 }[event.key] ?? 0;
    const count = (column === null ? this.queries : this.keys).length;
    const next = Math.min(Math.max(0, (row ?? column ?? -move) + move), count - 1);
    this.point(...(column === null ? [next, null] : [null, next]));
    const { scrollTop, clientHeight } = this.scroll;
    if (next * LINE.row < scrollTop) this.scroll.scrollTop = next * LINE.row;
    else if ((next + 1) * LINE.row > scrollTop + clientHeight)
      this.scroll.scrollTop = (next + 1) * LINE.row - clientHeight;
  }

  mark(row, column) {
    if (this.marked[0] === row && this.marked[1] === column) return;
    this.marked = [row, column];
    this.draw();
  }
}
