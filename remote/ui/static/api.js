// Requests to the server that the page came from.

import { instant } from "./format.js";

// ask returns the answer of an endpoint, with its data and warnings, or throws
// an Error that says what the server said.
export async function ask(path, parameters = {}, { signal, post } = {}) {
  const form = new URLSearchParams();
  for (const [name, values] of Object.entries(parameters)) {
    for (const value of [values].flat()) {
      form.append(name, value);
    }
  }
  const url = `api/v1/${path}`;
  const response = await (post ? fetch(url, { method: "POST", body: form, signal }) : fetch(`${url}?${form}`, { signal }));
  const text = await response.text();
  let answer;
  try {
    answer = JSON.parse(text);
  } catch {
    throw new Error(`${response.status} ${response.statusText}: ${text.slice(0, 1000)}`);
  }
  if (answer.status !== "success") {
    throw new Error(answer.error || `${response.status} ${response.statusText}`);
  }
  return answer;
}

// range returns the start and the end in seconds of what a form asks for.
export function range(state) {
  const end = state.end ? instant(state.end) : Date.now() / 1000;
  if (Number.isNaN(end)) {
    throw new Error(`The end in the URL is no time: ${state.end}`);
  }
  return { start: end - Number(state.range), end };
}
