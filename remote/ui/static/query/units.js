// Units: how values and the ticks of an axis are written in them. A unit is a name such as bytes or
// volts, and may be per second: bytes/s. The empty name and none are numbers without a unit.

import { decimals, fixed, values } from "./axis.js";
import { count, time, written } from "../common/format.js";
import { bytes, humanizeDuration, sizeUnit, timeUnit } from "../common/quantities.js";

// symbols are those of units that are written with the prefixes of SI.
const symbols = {
  volts: "V", amperes: "A", watts: "W", joules: "J", hertz: "Hz", meters: "m", grams: "g", bits: "b",
};

// plain are units that are written without a prefix.
const plain = { percent: "%", ratio: "%", celsius: "°C" };

// known says whether there is a unit of this name.
export function known(name) {
  return ["bytes", "seconds", "timestamp"].includes(name) || Object.hasOwn(symbols, name) || Object.hasOwn(plain, name);
}

// unit returns how values are written in a unit: text(v) for one, labels(ticks, increment) for those of an
// axis, and the increments that the axis may have, if not those of decimal numbers.
export function unit(wanted) {
  const perSecond = wanted.endsWith("/s");
  const name = perSecond ? wanted.slice(0, -2) : wanted;
  const per = perSecond ? "/s" : "";
  const of = (text, labels, increments) => ({
    text: (v) => (Number.isFinite(v) ? text(v) + per : written(v)),
    labels: (ticks, increment) => labels(ticks, increment).map((label) => label + per),
    increments,
  });
  switch (name) {
    case "bytes":
      return of(bytes, unitLabels(sizeUnit), sizes);
    case "seconds":
      return of(humanizeDuration, unitLabels(timeUnit), spans);
    case "timestamp":
      return of(time, (ticks, increment) => ticks.map((t) => (increment >= 86400 ? time(t).slice(0, 10) : increment >= 60 ? time(t).slice(0, 16) : time(t))), spans);
    case "ratio":
      return of((v) => `${short6(v * 100)}%`, (ticks, increment) => ticks.map((v) => `${fixed(v * 100, decimals(increment * 100))}%`));
  }
  if (Object.hasOwn(plain, name)) {
    const space = name === "percent" ? "" : " ";
    return of((v) => short6(v) + space + plain[name], (ticks, increment) => ticks.map((v) => fixed(v, decimals(increment)) + space + plain[name]));
  }
  if (Object.hasOwn(symbols, name)) {
    return of((v) => prefixed(v, symbols[name]), (ticks, increment) => values(ticks, increment).map((label) => withSymbol(label, symbols[name])));
  }
  return of(numberText, values);
}

// numberText writes a value without a unit, as Prometheus does if it is no number for people.
function numberText(v) {
  const size = Math.abs(v);
  return !(size < 1e15) ? written(v) : size >= 1e6 || Number.isInteger(v) ? count(v) : short6(v);
}

function short6(v) {
  return String(Number(v.toPrecision(6)));
}

const decimal = [-9, -8, -7, -6, -5, -4, -3, -2, -1].flatMap((e) => [1, 2, 5].map((n) => Number(`${n}e${e}`)));

// sizes are the increments of an axis of bytes: powers of two.
const sizes = [...decimal, ...Array.from({ length: 70 }, (_, i) => 2 ** i)];

// spans are those of an axis of seconds.
const spans = [...decimal, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 21600, 43200,
  ...[1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000, 1e5, 1e6, 1e7, 1e8].map((days) => days * 86400)];

// unitLabels returns what labels an axis in the unit of its largest tick, as unitOf(size) returns it: the name and the length.
function unitLabels(unitOf) {
  return (ticks, increment) => {
    const [name, length] = unitOf(Math.max(...ticks.map(Math.abs)));
    const places = decimals(increment / length);
    return ticks.map((v) => (v === 0 ? "0" : `${fixed(v / length, places)} ${name}`));
  };
}

function prefixed(v, symbol) {
  const size = Math.abs(v);
  if (size >= 0.01 && size < 10_000 || size === 0) {
    return `${short6(v)} ${symbol}`;
  }
  return withSymbol(values([v], 10 ** (Math.floor(Math.log10(size)) - 3))[0], symbol);
}

// withSymbol puts a symbol behind a number that may end with a prefix: 40 kV.
function withSymbol(label, symbol) {
  const [, digits, prefix] = label.match(/^(.*?)([a-zA-Zµ]?)$/);
  return `${digits} ${prefix}${symbol}`;
}
