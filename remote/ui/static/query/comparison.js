// What a query gave a day, a week or a year before, beside what it gives now.

import { count, series } from "../common/format.js";
import { parseDuration } from "../common/quantities.js";

// wordsOf are the spans that the form offers.
const wordsOf = { "1d": "a day ago", "1w": "a week ago", "4w": "4 weeks ago", "1y": "a year ago" };

// comparison returns what the parameter compare of a URL says, a duration such as 1w: its seconds and its words; nothing if it is empty.
export function comparison(text) {
  if (!text) {
    return undefined;
  }
  const seconds = parseDuration(text);
  if (!(seconds > 0)) {
    throw new Error(`Invalid time to compare with in the URL: ${text}. Use a duration such as 1d, 1w or 1y.`);
  }
  return { seconds, words: wordsOf[text] ?? `${text} ago` };
}

// later moves the samples of results by seconds, to the times that they are compared with. The API has milliseconds.
export function later(result, seconds) {
  const moved = ([t, ...rest]) => [Math.round((t + seconds) * 1000) / 1000, ...rest];
  return result.map((s) => ({ ...s, ...Object.fromEntries(["values", "histograms"].filter((kind) => s[kind]).map((kind) => [kind, s[kind].map(moved)])) }));
}

// gone says which series there were then that there are not now, of answers that are whole.
export function gone(result, then, words) {
  const now = new Set(result.map((s) => series(s.metric)));
  const names = then.map((s) => series(s.metric)).filter((name) => !now.has(name));
  const few = 3;
  return names.length === 0 ? [] : [`${count(names.length)} series of ${words} ${names.length === 1 ? "has" : "have"} no value now: ${names.slice(0, few).join(", ")}${names.length > few ? ", …" : ""}`];
}

// change returns by how much a value differs from that of then, in percent of it: NaN if that is nothing or 0.
export function change(now, then) {
  return now === then ? 0 : !then ? NaN : (now - then) / Math.abs(then) * 100;
}

// changeText writes it: +12.3 %.
export function changeText(now, then) {
  const percent = change(now, then);
  if (then === undefined || then === null) {
    return now === undefined || now === null ? "" : "new";
  }
  return Number.isNaN(percent) ? "–" : `${percent > 0 ? "+" : percent < 0 ? "−" : "±"}${count(Number(Math.abs(percent).toPrecision(3)))} %`;
}
