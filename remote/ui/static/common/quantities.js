// Sizes and durations as text.

import { count } from "./format.js";

// The units of sizes, each 1024 of the one before, and of durations, in seconds.
const binary = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
const parts = { y: 31536000, w: 604800, d: 86400, h: 3600, m: 60, s: 1 };
const calendar = Object.entries(parts).filter(([unit]) => unit !== "w" && unit !== "y");
const fractions = [["s", 1], ["ms", 1e-3], ["µs", 1e-6], ["ns", 1e-9]];

// sizeUnit returns the largest unit that fits into a size, and how many bytes it is.
export function sizeUnit(size) {
  const power = Math.abs(size) < 1 ? 0 : Math.min(binary.length - 1, Math.floor(Math.log2(Math.abs(size)) / 10 + 1e-9));
  return [binary[power], 1024 ** power];
}

// bytes writes a size with four digits: 1.177 MiB.
export function bytes(size) {
  const [name, length] = sizeUnit(size);
  return `${Number((size / length).toPrecision(4))} ${name}`;
}

// timeUnit returns the unit of a duration that is drawn: a long one where there are two of it.
export function timeUnit(seconds) {
  return calendar.find(([, length]) => length > 1 && seconds >= 2 * length) ?? fraction(seconds);
}

function fraction(seconds) {
  return fractions.find(([, length]) => seconds >= length) ?? fractions[seconds === 0 ? 0 : fractions.length - 1];
}

// humanizeDuration writes seconds with four digits, or in its two largest units: 12.5 ms, 2h 5m.
export function humanizeDuration(seconds) {
  const size = Math.abs(seconds);
  if (size < 60) {
    const [name, length] = fraction(size);
    return `${Number((seconds / length).toPrecision(4))} ${name}`;
  }
  const i = calendar.findIndex(([, length]) => size >= length);
  const first = Math.floor(size / calendar[i][1]);
  const rest = calendar[i + 1] ? Math.floor((size - first * calendar[i][1]) / calendar[i + 1][1]) : 0;
  return `${seconds < 0 ? "-" : ""}${count(first)}${calendar[i][0]}${rest ? ` ${rest}${calendar[i + 1][0]}` : ""}`;
}

// roughDuration writes seconds in whole ones of a unit of which there are at least two: 3d, or with digits where there is none: 1.5s.
export function roughDuration(seconds) {
  const size = Math.abs(seconds);
  const [unit, length] = calendar.find(([unit, length]) => unit === "s" || size >= 2 * length);
  return `${seconds < 0 ? "-" : ""}${unit === "s" ? count(size) : Math.floor(size / length)}${unit}`;
}

// formatDuration writes whole seconds as PromQL does: 1h30m.
export function formatDuration(seconds) {
  let text = "", rest = Math.round(seconds);
  for (const [unit, length] of calendar) {
    text += rest >= length ? `${Math.floor(rest / length)}${unit}` : "";
    rest %= length;
  }
  return text || "0s";
}

// finerFirst orders names of resolutions: raw, 5m, 1h.
export function finerFirst(a, b) {
  return (parseDuration(a) || 0) - (parseDuration(b) || 0);
}

// parseDuration reads a duration such as 1h30m, or a number of seconds; what is none is NaN.
export function parseDuration(text) {
  if (/^\d+(\.\d+)?$/.test(text)) {
    return Number(text);
  }
  return /^(\d+(\.\d+)?[ywdhms])+$/.test(text) ? [...text.matchAll(/([\d.]+)(.)/g)].reduce((sum, [, n, unit]) => sum + n * parts[unit], 0) : NaN;
}
