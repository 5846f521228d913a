// Questions to the API: an expression at a time, or over a range in steps.

import { ask, isTruncated } from "../common/api.js";
import { count, series } from "../common/format.js";
import { formatDuration, parseDuration } from "../common/quantities.js";

// about is how many points a graph has across.
const about = 250;

// maxPoints is how many points the adapter answers of a series, as Prometheus does.
const maxPoints = 11_000;

// askInstant asks for an expression at a time, in seconds.
export function askInstant(query, time, signal) {
  return ask("query", { ...query, time }, { signal, post: true });
}

// askRange asks for an expression in steps, as stepsOf returns them, and for a point at the end if it is behind the last one. A limit keeps the first
// series in the order of labels. Those that are only at the end may be before others, so that there twice as many are asked for. How many there are in both is known
// for a cut answer only at least, which its isLeast says.
export async function askRange(query, steps, end, signal) {
  const askAt = (times) => ask("query_range", { ...query, ...times }, { signal, post: true });
  if (steps.end === end) {
    return askAt(steps);
  }
  const [answer, newest] = await Promise.all([askAt(steps), askAt({ start: end, end, step: steps.step, ...(query.limit && { limit: 2 * query.limit }) })]);
  answer.isLeast = answer.data.result.length > 0 && (isTruncated(answer) || isTruncated(newest));
  answer.series = Math.max(answer.series, newest.series, append(answer.data.result, newest.data.result, Number(query.limit)));
  for (const kind of ["warnings", "infos"]) {
    answer[kind] = [...new Set([...(answer[kind] ?? []), ...(newest[kind] ?? [])])];
  }
  return answer;
}

// append adds points to the series that they are of, or as series of their own up to a limit. It returns how many series there are without that.
function append(found, newest, limit) {
  const known = new Map(found.map((s) => [series(s.metric), s]));
  let all = found.length;
  for (const s of newest) {
    const before = known.get(series(s.metric));
    if (!before) {
      all++;
      found.push(...(!(found.length >= limit) ? [s] : []));
      continue;
    }
    for (const kind of ["values", "histograms"].filter((kind) => s[kind])) {
      before[kind] = [...(before[kind] ?? []), ...s[kind]];
    }
  }
  return all;
}

// shownOf writes how many series are shown, and of how many if these are more.
export function shownOf(shown, { series: all, isLeast }) {
  return `${count(shown)}${all > shown ? ` of ${isLeast ? "at least " : ""}${count(all)}` : ""}`;
}

// stepsOf returns the times of a graph of a range, in seconds: in steps of a length such as 15s, or of one that gives
// about as many as a graph has. These are of whole hours or of whole 5 minutes if they are long, as rollups are, so that these can answer. Then their times
// are multiples of the step, so that what was asked for before comes from the cache of results; else they are counted back from the end.
export function stepsOf(start, end, wanted) {
  const auto = Math.max(1, Math.ceil((end - start) / about));
  const own = wanted ? parseDuration(wanted) : auto;
  if (!(own > 0)) {
    throw new Error(`Invalid step in the URL: ${wanted}. Use a duration such as 15s, 5m or 1h.`);
  }
  const bucket = [3600, 300].find((size) => (wanted ? own % size === 0 : own >= size));
  const step = bucket && !wanted ? Math.round(own / bucket) * bucket : own;
  const points = Math.floor((end - start) / step) + 1;
  if (points > maxPoints) {
    throw new Error(`With a step of ${formatDuration(step)} this range has ${count(points)} points, and the limit is ${count(maxPoints)}. ` +
      `Choose a step of at least ${formatDuration(Math.ceil((end - start) / (maxPoints - 1)))} or a shorter range.`);
  }
  const multiple = Math.floor(end / step) * step;
  const last = bucket && multiple >= start ? multiple : end;
  return { start: last - Math.max(0, Math.floor((last - start) / step)) * step, end: last, step };
}
