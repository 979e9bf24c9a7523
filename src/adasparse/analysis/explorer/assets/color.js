// One ordered scale of color, dark to light or light to dark: it survives printing in gray and
// color-blindness, and its weakest color is still told from blank paper.

const SCALES = {
  light: ["#c4e4d6", "#8fd0c0", "#4fb0ad", "#338ba4", "#37639a", "#393f78", "#221c3d"],
  dark: ["#2c3f6e", "#35639a", "#338ba4", "#4fb0ad", "#8fd3bf", "#dcf5e8"],
};
const CANVAS_COLORS = {
  light: { blank: "#ffffff", rule: "#e9e6df", mark: "#b4500f", line: "#23727d", faded: "#9aa5a8" },
  dark: { blank: "#1a2024", rule: "#283138", mark: "#ffad66", line: "#6fd0d2", faded: "#55616a" },
};

function isDark() {
  const chosen = document.documentElement.dataset.theme;
  return chosen ? chosen === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
}

function canvasColors() {
  return CANVAS_COLORS[isDark() ? "dark" : "light"];
}

function channels(hex) {
  return [1, 3, 5].map((i) => parseInt(hex.slice(i, i + 2), 16));
}

function buildScale(stops) {
  const anchors = stops.map(channels);
  return Array.from({ length: 256 }, (_, i) => {
    const place = (i / 255) * (anchors.length - 1);
    const left = Math.min(Math.floor(place), anchors.length - 2);
    return anchors[left].map((x, c) => Math.round(x + (place - left) * (anchors[left + 1][c] - x)));
  });
}

const BUILT = { light: buildScale(SCALES.light), dark: buildScale(SCALES.dark) };

/** Color channels for a share from 0 to 1. */
function scaleColor(share) {
  const index = Math.round(255 * Math.min(1, Math.max(0, share)));
  return BUILT[isDark() ? "dark" : "light"][index];
}

function css([red, green, blue]) {
  return `rgb(${red}, ${green}, ${blue})`;
}

/** The color of a weight above zero; the square root lets small ones be told apart. */
function weightColor(weight) {
  return css(scaleColor(Math.sqrt(weight)));
}

/** Black or white, whichever is read more easily on a color. */
function inkOn([red, green, blue]) {
  const linear = [red, green, blue].map((x) => ((x / 255 + 0.055) / 1.055) ** 2.4);
  const luminance = 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2];
  return luminance > 0.18 ? "#10161a" : "#ffffff";
}

/** The scale as a background, for legends. */
function scaleGradient() {
  const stops = Array.from({ length: 9 }, (_, i) => css(scaleColor(i / 8)));
  return `linear-gradient(to right, ${stops.join(", ")})`;
}
