// What screen readers say of a query.

import { count, time } from "../common/format.js";

// sentence says what is shown of answers, or nothing if there is none: its error says enough.
export function sentence(answers, isGraph, { start, end }) {
  if (answers.length === 0) {
    return undefined;
  }
  const found = answers.map(({ answer: { data: { result }, series: all } }) => ({ shown: result.length, all: Math.max(all, result.length) }));
  const shown = found.reduce((sum, f) => sum + f.shown, 0);
  const all = found.reduce((sum, f) => sum + f.all, 0);
  const series = `${all > shown ? `${count(shown)} of ` : ""}${count(all)} series`;
  return isGraph ? `Graph of ${series} from ${time(start)} to ${time(end)}.` : `${series} at ${time(end)}.`;
}
