// Numbers, times and label sets as text.

// count writes a number for people, with as many digits as matter.
export function count(n) {
  return Number(n).toLocaleString("en", { maximumFractionDigits: Math.abs(n) < 100 ? 2 : 0 });
}

// inUTC says whether times are shown in UTC, which the reader chooses, or in the
// zone of the browser.
export function inUTC() {
  return localStorage.getItem("zone") === "UTC";
}

// zone names the zone in which times are shown.
export function zone() {
  return inUTC() ? "UTC" : Intl.DateTimeFormat().resolvedOptions().timeZone;
}

// time writes seconds since 1970, in the zone in which times are shown.
export function time(seconds) {
  const date = new Date(seconds * 1000);
  if (Number.isNaN(date.getTime())) {
    return String(seconds);
  }
  if (inUTC()) {
    return date.toISOString().slice(0, 19).replace("T", " ");
  }
  const two = (n) => String(n).padStart(2, "0");
  return `${date.getFullYear()}-${two(date.getMonth() + 1)}-${two(date.getDate())} ` +
    `${two(date.getHours())}:${two(date.getMinutes())}:${two(date.getSeconds())}`;
}

// instant reads a time as URLs have it, in seconds since 1970: RFC 3339, or seconds.
// One without a zone is that of the browser's zone, as in links of before.
// What is no time is NaN.
export function instant(text) {
  return /^\d+(\.\d+)?$/.test(text) ? Number(text) : new Date(text).getTime() / 1000;
}

// utc writes seconds since 1970 as RFC 3339, which is the same time everywhere.
export function utc(seconds) {
  return new Date(seconds * 1000).toISOString().replace(".000Z", "Z");
}

// turning are the control characters that change the direction of text, and so could make a line say what it does not.
const turning = /[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]/g;

// straight writes a text with such characters as what they are in a string of PromQL.
export function straight(text) {
  return text.replace(turning, (c) => `\\u${c.charCodeAt(0).toString(16).padStart(4, "0")}`);
}

// quoted writes a text as a string of PromQL.
export function quoted(text) {
  return straight(JSON.stringify(text));
}

const plainName = /^[a-zA-Z_:][a-zA-Z0-9_:]*$/;

// series writes a label set as a selector that matches it.
export function series(labels) {
  const { __name__: name, ...rest } = labels;
  const isOdd = name !== undefined && !plainName.test(name);
  const pairs = Object.keys(rest).sort().map((label) =>
    `${plainName.test(label) && !label.includes(":") ? label : quoted(label)}=${quoted(rest[label])}`);
  if (isOdd) {
    pairs.unshift(quoted(name));
  }
  const front = isOdd || name === undefined ? "" : name;
  return pairs.length > 0 || front === "" ? `${front}{${pairs.join(", ")}}` : front;
}

// capital writes a text with a capital in front.
export function capital(text) {
  return text[0].toUpperCase() + text.slice(1);
}

// sample returns the time in seconds and the text of a sample: of its value, or
// of its histogram.
export function sample({ value, histogram }) {
  if (histogram) {
    const [t, h] = histogram;
    return { t, text: `count ${h.count}, sum ${h.sum}`, number: Number(h.count), histogram: h };
  }
  return { t: value[0], text: value[1], number: number(value[1]) };
}

// written writes a value as the API does.
export function written(v) {
  return Math.abs(v) === Infinity ? `${v > 0 ? "+" : "-"}Inf` : String(v);
}

// number reads a value as the API writes it.
export function number(text) {
  return text === "+Inf" ? Infinity : text === "-Inf" ? -Infinity : Number(text);
}
