// Colours of graphs.

import { element, shape } from "../common/dom.js";

// The colours of lines, light and dark; more lines take them again, dashed.
const colours = {
  light: ["#2457c5", "#b3261e", "#1b7a3d", "#8a5a00", "#7b2fa8", "#00727f", "#b0206e", "#4f5b66"],
  dark: ["#86aefc", "#ff9a8f", "#7bd88f", "#f2c063", "#d3a4f5", "#6fd6e0", "#ff9bd0", "#b6c2cf"],
};

// The colours of a heatmap, from few to many: in luminance, so that all eyes tell them apart.
const scales = {
  light: ["#dbe7fb", "#a3c1f2", "#5e8fe0", "#2457c5", "#0c2358"],
  dark: ["#22365c", "#2f5fa8", "#5b93e6", "#a9cbff", "#fbfdff"],
};

const shades = 64;

function isDark() {
  const { theme } = document.documentElement.dataset;
  return theme ? theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
}

// look returns the colour and the dashes of the i-th line.
export function look(i) {
  const palette = isDark() ? colours.dark : colours.light;
  const dashes = [undefined, [8, 4], [2, 3], [10, 3, 2, 3]];
  return { colour: palette[i % palette.length], dash: dashes[Math.floor(i / palette.length) % dashes.length] };
}

// scale returns the colours of a heatmap, from few to many.
export function scale() {
  const stops = (isDark() ? scales.dark : scales.light).map((text) => [1, 3, 5].map((at) => parseInt(text.slice(at, at + 2), 16)));
  return Array.from({ length: shades }, (_, i) => {
    const at = i / (shades - 1) * (stops.length - 1);
    const [a, b] = [stops[Math.floor(at)], stops[Math.ceil(at)]];
    return `rgb(${a.map((from, j) => Math.round(from + (b[j] - from) * (at % 1))).join(", ")})`;
  });
}

// resolved returns a colour of the style sheet as the canvas understands it.
export function resolved(variable) {
  const probe = element("span", {});
  probe.style.color = `var(${variable})`;
  document.body.append(probe);
  const { color } = getComputedStyle(probe);
  probe.remove();
  return color;
}

// swatch is the piece of line that stands for a series.
export function swatch({ colour, dash }) {
  return shape("svg", { class: "swatch", width: 24, height: 8, "aria-hidden": "true" },
    shape("path", { d: "M0 4h24", stroke: colour, "stroke-width": 3, "stroke-dasharray": dash?.join(" ") }));
}
