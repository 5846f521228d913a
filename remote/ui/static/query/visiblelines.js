// Which lines of a graph are shown. In the URL only names those that are shown alone, and off those that are hidden, by
// their keys. Keys of series that are no longer there do nothing.

// visible returns whether a line is shown, of all lines, as a state of the page says.
export function visible({ only, off }, lines) {
  const alone = lines.some(({ key }) => only.includes(key));
  return ({ key }) => (alone ? only.includes(key) : !off.includes(key));
}

// isolate returns the state in which a line is shown alone, or, where it is alone, all are.
export function isolate({ only, off }, lines, { key }) {
  const present = lines.filter(visible({ only, off }, lines));
  const isAlone = present.length === 1 && present[0].key === key;
  return { only: isAlone ? [] : [key], off: [] };
}

// toggle returns the state in which a line is hidden that is shown, or the other way round. Where none were left, all are shown.
export function toggle({ only, off }, lines, { key }) {
  const alone = lines.some((line) => only.includes(line.key));
  const changed = (list) => (list.includes(key) ? list.filter((other) => other !== key) : [...list, key]);
  const there = (list) => list.filter((other) => lines.some((line) => line.key === other));
  const next = alone ? { only: there(changed(only)), off: [] } : { only: [], off: there(changed(off)) };
  return next.only.length === lines.length || next.off.length === lines.length ? { only: [], off: [] } : next;
}

// What the form keeps of it, and the expressions that it is of: those of others are not hidden.
let kept = { only: [], off: [] };
let expressions = "";

// fill keeps what a state says.
export function fill({ expr, only, off }) {
  kept = { only, off };
  expressions = JSON.stringify(expr);
}

// read returns what is kept, for expressions.
export function read(expr) {
  return JSON.stringify(expr) === expressions ? kept : { only: [], off: [] };
}
