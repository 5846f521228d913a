// Selectors as text.

import { quoted } from "./format.js";

const plainLabel = /^[a-zA-Z_][a-zA-Z0-9_]*$/;

// matcher writes one, such as job="node".
export function matcher(name, value) {
  return `${labelName(name)}=${quoted(value)}`;
}

// labelName writes the name of a label as PromQL wants it.
export function labelName(name) {
  return plainLabel.test(name) ? name : quoted(name);
}

// withMatcher returns a selector, which may be empty, with one more matcher.
export function withMatcher(selector, added) {
  const text = selector.trim();
  if (!text.endsWith("}")) {
    return `${text}{${added}}`;
  }
  const front = text.slice(0, -1).trimEnd();
  const between = front.endsWith("{") ? "" : front.endsWith(",") ? " " : ", ";
  return `${front}${between}${added}}`;
}

// link returns the URL of a state of a tab. Lists are repeated parameters, and what is empty is left out.
export function link(tab, state) {
  const parameters = new URLSearchParams({ tab });
  for (const [name, values] of Object.entries(state)) {
    [values].flat().filter((value) => value !== "" && value !== undefined).forEach((value) => parameters.append(name, value));
  }
  return `?${parameters}`;
}
