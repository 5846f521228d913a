// Questions to the API: an expression at a time, or over a range in steps.

import { ask } from "../common/api.js";
import { series } from "../common/format.js";

// steps is how many points a graph has across, about.
const steps = 250;

// askInstant asks for an expression at a time, in seconds.
export function askInstant(query, time, signal) {
  return ask("query", { ...query, time }, { signal, post: true });
}

// askRange asks for an expression from start to end, in seconds: in steps, and for a point at the end if it is behind the last one.
export async function askRange(query, start, end, signal) {
  const askAt = (times) => ask("query_range", { ...query, ...times }, { signal, post: true });
  const steps = stepsOf(start, end);
  if (steps.end === end) {
    return askAt(steps);
  }
  const [answer, newest] = await Promise.all([askAt(steps), askAt({ start: end, end, step: steps.step })]);
  append(answer.data.result, newest.data.result, Number(query.limit));
  answer.series = Math.max(answer.series, newest.series);
  for (const kind of ["warnings", "infos"]) {
    answer[kind] = [...new Set([...(answer[kind] ?? []), ...(newest[kind] ?? [])])];
  }
  return answer;
}

// append adds points to the series that they are of, or as series of their own up to a limit.
function append(found, newest, limit) {
  const known = new Map(found.map((s) => [series(s.metric), s]));
  for (const s of newest) {
    const before = known.get(series(s.metric));
    if (!before) {
      found.push(...(found.length < limit ? [s] : []));
      continue;
    }
    for (const kind of ["values", "histograms"].filter((kind) => s[kind])) {
      before[kind] = [...(before[kind] ?? []), ...s[kind]];
    }
  }
}

// stepsOf returns the times of a graph of a range, in seconds. Long steps, and their times, are of whole hours or of whole 5 minutes, as
// rollups are, so that these can answer. Steps are counted from the last one back, which is the end, or less than a bucket before it.
export function stepsOf(start, end) {
  const about = Math.max(1, Math.ceil((end - start) / steps));
  const bucket = [3600, 300].find((size) => about >= size);
  const step = bucket ? Math.round(about / bucket) * bucket : about;
  const last = bucket ? Math.floor(end / bucket) * bucket : end;
  return { start: last - Math.floor((last - start) / step) * step, end: last, step };
}
