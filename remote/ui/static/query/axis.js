// The labels of the axes of a graph.

import { time } from "../common/format.js";

// gap is the room between two labels, in pixels.
const gap = 8;

// prefixes are those of SI, from 10^-24 on, each of three more.
const prefixes = ["y", "z", "a", "f", "p", "n", "µ", "m", "", "k", "M", "G", "T", "P", "E", "Z", "Y"];
const noPrefix = prefixes.indexOf("");

// values labels ticks that are increment apart, all with one prefix of SI and
// with the digits that tell them from each other.
export function values(ticks, increment) {
  const largest = Math.max(...ticks.map(Math.abs));
  const power = largest >= 0.01 && largest < 10_000 ? 0 : Math.floor(Math.log10(largest || 1) / 3 + 1e-9);
  const prefix = prefixes[power + noPrefix];
  if (prefix === undefined) {
    return ticks.map((v) => v.toExponential(Math.max(0, digits(increment) + Math.floor(Math.log10(largest)))));
  }
  const decimals = digits(increment) + 3 * power;
  if (power > 0 && decimals > 3 && largest < 1e15) {
    return ticks.map((v) => fixed(v, digits(increment))); // more than a prefix can shorten: 1,000,030
  }
  const unit = 10 ** (3 * power);
  return ticks.map((v) => fixed(v / unit, decimals) + (v === 0 ? "" : prefix));
}

// digits returns how many digits behind the point it takes to write v, which has
// up to two that are not 0, as increments do: 2 for 0.05, 3 for 0.025, -2 for 100.
function digits(v) {
  const first = -Math.floor(Math.log10(v) + 1e-9);
  return Math.abs(v * 10 ** first - Math.round(v * 10 ** first)) < 1e-6 ? first : first + 1;
}

// decimals returns how many digits behind the point tell apart what is increment apart, and not less than it takes to write an increment of up
// to three.
export function decimals(increment) {
  const exact = [0, 1, 2, 3].find((places) => Math.abs(increment * 10 ** places - Math.round(increment * 10 ** places)) < 1e-6 && increment * 10 ** places > 0.5);
  return exact ?? digits(increment);
}

// fixed writes a number with so many digits behind the point.
export function fixed(v, decimals) {
  const places = Math.min(20, Math.max(0, decimals));
  return v.toLocaleString("en", { minimumFractionDigits: places, maximumFractionDigits: places });
}

// widestDay is as wide as the label of any day.
const widestDay = "0000-00-00";

// ofTimes are the options of uPlot for the axis of time. The gap is also that by which a month can be shorter than uPlot thinks.
export const ofTimes = {
  space: (plot) => width(plot, widestDay) + gap,
  values: (_, ticks, at, space, increment) => times(ticks, increment),
};

// times labels ticks that are increment seconds apart: the day stands under the
// first of each day.
function times(ticks, increment) {
  let last;
  return ticks.map((t) => {
    const [day, hour] = time(t).split(" ");
    if (increment >= 86400) {
      return day;
    }
    const under = day === last ? "" : `\n${day}`;
    last = day;
    return (increment < 60 ? hour : hour.slice(0, 5)) + under;
  });
}

// valueSize is the width of an axis, in pixels, with labels such as these. There is room for half the label of a day, too.
export function valueSize(plot, labels, index) {
  const { ticks, gap: room } = plot.axes[index];
  const widest = Math.max(0, ...(labels ?? []).map((label) => width(plot, label)));
  return Math.ceil(Math.max(ticks.size + room + widest, width(plot, widestDay) / 2)) + 2;
}

// width returns how wide a label is, in pixels. All axes have the same font.
function width({ axes, ctx }, text) {
  [ctx.font] = axes[0].font;
  return ctx.measureText(text).width / devicePixelRatio;
}
