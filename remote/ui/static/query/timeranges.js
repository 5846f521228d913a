// Ranges of time: in words, as they are typed, and moved.

import { inUTC, instant, time, utc, zone } from "../common/format.js";
import { formatDuration, parseDuration } from "../common/quantities.js";

// quick are ranges up to now, in seconds.
export const quick = [
  [300, "5 minutes"], [900, "15 minutes"], [1800, "30 minutes"], [3600, "1 hour"], [10800, "3 hours"], [21600, "6 hours"], [43200, "12 hours"],
  [86400, "1 day"], [172800, "2 days"], [604800, "1 week"], [1209600, "2 weeks"], [2592000, "30 days"], [7776000, "90 days"],
  [31536000, "1 year"], [94608000, "3 years"],
];

// words says which time a state shows: over a range, or, in a table, at its end.
export function words({ range, end, view }) {
  const to = instant(end);
  if (end && Number.isNaN(to)) {
    return "Invalid time";
  }
  if (view === "table") {
    return end ? `${time(to)} ${zone()}` : "Now";
  }
  if (end) {
    const [fromDay, fromHour] = split(to - range), [toDay, toHour] = split(to);
    return `${fromDay} ${fromHour} – ${fromDay === toDay ? "" : `${toDay} `}${toHour} ${zone()}`;
  }
  return `Last ${quick.find(([size]) => size === Number(range))?.[1] ?? formatDuration(Number(range))}`;
}

function split(at) {
  const [day, hour] = time(at).split(" ");
  return [day, hour.replace(/:00$/, "")];
}

// parse reads a time as it is typed, in seconds: absolute in the zone in which times are shown, or from now on.
export function parse(text, now) {
  const wanted = text.trim();
  const relative = wanted.match(/^now(?:\s*([+-])\s*(\S+))?$/i);
  if (relative) {
    return now + (relative[1] ? (relative[1] === "-" ? -1 : 1) * parseDuration(relative[2]) : 0);
  }
  const absolute = wanted.match(/^(\d{4}-\d{2}-\d{2})(?:[ T](\d{1,2}:\d{2}(?::\d{2})?))?$/);
  if (absolute) {
    const hour = (absolute[2] ?? "00:00").padStart(5, "0");
    return new Date(`${absolute[1]}T${/^\d:/.test(hour) ? `0${hour}` : hour}${inUTC() ? "Z" : ""}`).getTime() / 1000;
  }
  return /^\d{4}-|^\d{9,}/.test(wanted) ? instant(wanted) : NaN;
}

// days returns the states of named days, from the midnight that they begin with.
export function days(now) {
  const midnight = (back) => {
    const date = new Date(now * 1000);
    inUTC() ? date.setUTCHours(0, 0, 0, 0) : date.setHours(0, 0, 0, 0);
    inUTC() ? date.setUTCDate(date.getUTCDate() - back) : date.setDate(date.getDate() - back);
    return date.getTime() / 1000;
  };
  const sunday = inUTC() ? new Date(now * 1000).getUTCDay() : new Date(now * 1000).getDay();
  const upToNow = (from) => ({ range: String(Math.max(60, Math.ceil(now - from))), end: "" });
  return [
    ["Today", upToNow(midnight(0))],
    ["Yesterday", { range: String(midnight(0) - midnight(1)), end: utc(midnight(0)) }],
    ["This week", upToNow(midnight((sunday + 6) % 7))], // from Monday on
  ];
}

// between returns the state that shows the time between two in seconds, at least a second.
export function between(from, to) {
  return { end: utc(Math.ceil(to)), range: String(Math.max(1, Math.ceil(to) - Math.floor(from))) };
}

// moved returns the state of a range that is moved by a part of itself, or grown by a factor around its middle. It does not go
// beyond now, unless it was there. An end that is nearly now is now, which moves on.
export function moved({ range, end }, by, factor, now) {
  const size = Number(range);
  const before = (end ? instant(end) : now) || now;
  const wide = Math.max(1, Math.round(size * factor));
  const to = Math.round(before + by * size + (wide - size) / 2);
  if (to >= now - Math.abs(by) * size / 10 && before <= now) {
    return { range: String(wide), end: "" };
  }
  return { range: String(Math.min(wide, to)), end: utc(to) };
}
