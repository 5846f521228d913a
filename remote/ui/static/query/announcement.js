// What screen readers say of a query.

import { time } from "../common/format.js";
import { shownOf } from "./requests.js";

// sentence says what is shown of answers, or nothing if there is none: its error says enough.
export function sentence(answers, isGraph, { start, end }) {
  if (answers.length === 0) {
    return undefined;
  }
  const sum = (of) => answers.reduce((all, { answer }) => all + of(answer), 0);
  const shown = sum(({ data }) => data.result.length);
  const all = sum(({ data, series }) => Math.max(series, data.result.length));
  const series = `${shownOf(shown, { series: all, isLeast: answers.some(({ answer }) => answer.isLeast) })} series`;
  return isGraph ? `Graph of ${series} from ${time(start)} to ${time(end)}.` : `${series} at ${time(end)}.`;
}
