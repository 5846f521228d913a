// A graph as a picture, with what it shows and its legend, to be pasted where there is no page.

import { resolved } from "./colours.js";

const font = "system-ui, sans-serif";
const margin = 16, titleHeight = 22, lineHeight = 20; // in pixels of the page

// mostLines is how many lines the legend of a picture names.
const mostLines = 30;

// picture draws a chart of uPlot with a title of some lines above it and a legend below, and returns a PNG. Each line has a colour, dashes, a label and
// a text that says its value.
export function picture(chart, titles, lines) {
  const ratio = devicePixelRatio;
  const { width: chartWidth, height: chartHeight } = chart.ctx.canvas;
  const named = lines.slice(0, mostLines), left = lines.length - named.length;
  const canvas = document.createElement("canvas");
  const top = margin + titles.length * titleHeight, bottom = top + chartHeight / ratio;
  const width = chartWidth / ratio + 2 * margin, height = bottom + (named.length + (left > 0 ? 1 : 0)) * lineHeight + margin;
  Object.assign(canvas, { width: Math.ceil(width * ratio), height: Math.ceil(height * ratio) });
  const context = canvas.getContext("2d");
  context.scale(ratio, ratio);
  context.fillStyle = resolved("--back");
  context.fillRect(0, 0, width, height);
  const write = (text, x, y, { size = 13, colour = "--text", align = "left", most = align === "right" ? x - margin : width - x - margin } = {}) => {
    Object.assign(context, { fillStyle: resolved(colour), font: `${size}px ${font}`, textAlign: align, textBaseline: "middle" });
    context.fillText(fitting(context, text, most), x, y);
  };
  titles.forEach((text, i) => write(text, margin, margin + (i + 0.5) * titleHeight, i === 0 ? { size: 15 } : { colour: "--faint" }));
  context.drawImage(chart.ctx.canvas, margin, top, chartWidth / ratio, chartHeight / ratio);
  named.forEach(({ colour, dash = [], label, text }, i) => {
    const y = bottom + (i + 0.5) * lineHeight;
    Object.assign(context, { strokeStyle: colour, lineWidth: 3 });
    context.setLineDash(dash);
    context.beginPath();
    context.moveTo(margin, y);
    context.lineTo(margin + 24, y);
    context.stroke();
    write(text, width - margin, y, { align: "right" });
    write(label, margin + 32, y, { most: width - 2 * margin - 48 - context.measureText(text).width });
  });
  if (left > 0) {
    write(`and ${left} more`, margin + 32, bottom + (named.length + 0.5) * lineHeight, { colour: "--faint" });
  }
  return new Promise((resolve) => canvas.toBlob(resolve, "image/png"));
}

// fitting shortens a text to a width in pixels.
function fitting(context, text, most) {
  let shown = text;
  while (shown.length > 1 && context.measureText(shown).width > most) {
    shown = `${shown.slice(0, Math.min(shown.length - 2, Math.floor(shown.length * most / context.measureText(shown).width)))}…`;
  }
  return shown;
}
