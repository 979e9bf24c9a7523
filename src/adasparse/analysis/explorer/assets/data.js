// What the payload holds, decoded when it is looked at.

const KIND_NAMES = {
  encoder: "encoder self-attention",
  decoder: "decoder self-attention",
  context: "context attention",
};

/** Typed numbers from base64, little-endian as all browsers' machines are. */
function decodeNumbers(text, Type) {
  const binary = atob(text);
  const bytes = new Uint8Array(binary.length);
  for (let i = 0; i < binary.length; i++) bytes[i] = binary.charCodeAt(i);
  return new Type(bytes.buffer);
}

/** The weights of one head on one sentence: a compressed matrix, a row for each query. */
class Weights {
  constructor({ crow, col, value, col_type }, top) {
    this.crow = decodeNumbers(crow, Uint32Array);
    this.col = decodeNumbers(col, col_type === "uint32" ? Uint32Array : Uint16Array);
    this.value = decodeNumbers(value, Uint16Array);
    this.rows = this.crow.length - 1;
    this.top = top ?? Infinity;
  }

  /** Positions of the entries of a row, first and one past the last. */
  span(row) {
    return row >= 0 && row < this.rows ? [this.crow[row], this.crow[row + 1]] : [0, 0];
  }

  /** Weight of the entry at a position, at most 1. */
  weight(position) {
    return this.value[position] / 65535;
  }

  /** Weight of a query on a key: 0 is exactly zero, null one of the small ones left out. */
  at(row, column) {
    const [begin, end] = this.span(row);
    for (let i = begin; i < end; i++) if (this.col[i] === column) return this.weight(i);
    return end - begin >= this.top ? null : 0;
  }
}

const decoded = new WeakMap();

/** Weights of a head, or null where the sentence has none of that kind. */
function weightsOf(sentence, kind, layer, head) {
  const packed = sentence?.attention?.[kind]?.[layer]?.[head];
  if (!packed) return null;
  if (!decoded.has(packed)) decoded.set(packed, new Weights(packed, sentence.top));
  return decoded.get(packed);
}

/** Tokens of queries and keys of a group of heads. */
function tokensOf(sentence, group) {
  return { queries: sentence[group.queries] ?? [], keys: sentence[group.keys] ?? [] };
}

function groupOf(run, kind) {
  return run?.groups.find((group) => group.kind === kind) ?? null;
}

function valueOf(group, measure, layer, head) {
  return group?.values[measure]?.[layer]?.[head] ?? null;
}

function rolesOf(group, layer, head) {
  return group?.roles?.[layer]?.[head] ?? [];
}

/** Every head of a run: its kind, layer and head, from 0 on. */
function headsOf(run, kinds = null) {
  const heads = [];
  for (const group of run.groups) {
    if (kinds && !kinds.includes(group.kind)) continue;
    for (let layer = 0; layer < group.layers; layer++)
      for (let head = 0; head < group.heads; head++) heads.push({ group, layer, head });
  }
  return heads;
}

/** A number as the reader sees it; a dash where there is none. */
function formatValue(value, format) {
  if (value === null || value === undefined || !Number.isFinite(value)) return "–";
  if (format === "percent") return `${(100 * value).toFixed(1)}%`;
  if (format === "alpha") return value.toFixed(2);
  if (Math.abs(value) >= 100) return value.toFixed(0);
  return value.toFixed(Math.abs(value) >= 10 ? 1 : 3);
}

/** A weight in words: zero is said to be exact. */
function formatWeight(weight) {
  if (weight === null) return "small or 0, not kept";
  if (weight === 0) return "exactly 0";
  return weight < 0.0005 ? "< 0.001" : weight.toFixed(3);
}

const INVISIBLE = { "\n": "⏎", "\r": "␍", "\t": "⇥", " ": "␣" };

/** A token as shown in a picture: never empty, at most `limit` characters. */
function showToken(token, limit = 18) {
  const start = Array.from(token.slice(0, 4 * limit + 4));
  const isLong = start.length > limit || token.length > 4 * limit + 4;
  const shown = (isLong ? start.slice(0, limit - 1) : start).join("") + (isLong ? "…" : "");
  if (shown.trim() === "") return shown === "" ? "∅" : shown.replace(/\s/g, (x) => INVISIBLE[x] ?? "␣");
  return shown.replace(/[\n\r\t]/g, (x) => INVISIBLE[x]);
}
