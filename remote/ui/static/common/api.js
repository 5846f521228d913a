// Requests to the server that the page came from.

import { instant } from "./format.js";
import { chosen, TenantNeeded } from "./tenant.js";

// An Unreachable says that no server answers.
export class Unreachable extends Error {
  constructor(text) {
    super(text ? `${text} The page waits for it.` : `The adapter at ${location.host} does not answer. It is stopped, restarting or unreachable. ` +
      "Check that it runs, and its log. The page keeps trying.");
  }
}

// reach is fetch, but for its error.
async function reach(url, options) {
  try {
    return await fetch(url, { ...options, headers: { ...chosen(), ...options.headers } });
  } catch (err) {
    throw options.signal?.aborted ? err : new Unreachable();
  }
}

// answers waits until a server answers, or signal is aborted.
export async function answers(signal) {
  const pause = 2000; // in milliseconds
  while (!signal.aborted) {
    await new Promise((resolve) => setTimeout(resolve, pause));
    try {
      const { status } = await reach("ui/icon.svg", { signal, cache: "no-store" });
      if (status !== 503) { // or else it is starting
        return;
      }
    } catch { } // not yet
  }
}

// ask returns the answer of an endpoint, with its data and warnings, how many series there
// or exemplars are if it has a limit, and at which resolutions it was read, or throws an Error that says what the server
// said.
export async function ask(path, parameters = {}, { signal, post, method, body, headers } = {}) {
  const form = new URLSearchParams();
  for (const [name, values] of Object.entries(parameters)) {
    for (const value of [values].flat()) {
      form.append(name, value);
    }
  }
  const url = `api/v1/${path}`;
  const response = await (post ? reach(url, { method: "POST", body: form, signal }) : reach(form.size > 0 ? `${url}?${form}` : url, { method, body, headers, signal }));
  if (response.headers.has("X-Promtable-Needs-Tenant")) {
    dispatchEvent(new Event("tenantneeded"));
    throw new TenantNeeded();
  }
  const text = await response.text().catch((err) => {
    throw signal?.aborted ? err : new Error("The response is incomplete: the adapter stopped or failed. Try again, and check its log.");
  });
  if (response.status === 503 && text.startsWith("The adapter is starting")) {
    throw new Unreachable(text.trim());
  }
  let answer;
  try {
    answer = JSON.parse(text);
  } catch {
    throw new Error(isHTML(response, text) ? `${response.status} ${response.statusText}, from a proxy or gateway in front of the adapter.${saidBy(text)}`
      : `${response.status} ${response.statusText}: ${text.slice(0, 1000)}`);
  }
  if (answer.status !== "success") {
    throw new Error(answer.error || `${response.status} ${response.statusText}`);
  }
  return { ...answer, tag: response.headers.get("ETag") ?? "", series: Number(response.headers.get("X-Promtable-Series")), exemplars: Number(response.headers.get("X-Promtable-Exemplars")), resolution: response.headers.get("X-Promtable-Resolution") ?? "" };
}

// isHTML says whether an answer is a page, which the adapter does not send.
function isHTML({ headers }, text) {
  return /html/.test(headers.get("Content-Type") ?? "") || text.trimStart().startsWith("<");
}

// saidBy returns a sentence with the title of a page, or else the beginning of its text.
function saidBy(html) {
  const bare = html.replace(/<(script|style)\b.*?(<\/\1>|$)/gis, "").replace(/<(\/?[a-z][a-z0-9]*)\b[^>]*>/gi, "<$1>"); // the policy of the page would refuse more aloud
  const page = new DOMParser().parseFromString(bare, "text/html"); // nothing of it runs or is loaded
  const text = (page.title.trim() || page.body.textContent).replace(/\s+/g, " ").trim().slice(0, 200);
  return text ? ` It says: "${text}".` : "";
}

const truncated = "results truncated due to limit";

// isTruncated says whether there is more than the limit of an answer.
export function isTruncated({ warnings = [] }) {
  return warnings.some((text) => text.includes(truncated));
}

// notes returns what an answer warns of and says, but for that.
export function notes({ warnings = [], infos = [] }) {
  return [...warnings, ...infos].filter((text) => text !== truncated);
}

// range returns the start and the end in seconds of what a form asks for.
export function range(state) {
  const end = state.end ? instant(state.end) : Date.now() / 1000;
  if (Number.isNaN(end)) {
    throw new Error(`Invalid end time in the URL: ${state.end}`);
  }
  if (!(Number(state.range) > 0)) {
    throw new Error(`Invalid range in the URL, not a number of seconds above 0: ${state.range}`);
  }
  return { start: end - Number(state.range), end };
}
