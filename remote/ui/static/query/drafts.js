// What is typed and was not run: of each state of the URL in which it was typed, in this tab of the browser. When
// the tab is closed its last draft is left for the next new tab without an expression in the URL. A
// link, which has one, shows no draft of another tab.

const key = "drafts", tabKey = "tab"; // in the storage of the tab
const leftKey = "draft"; // in that of the browser: { tab, draft }
const most = 50;

// read returns what a storage has under a name, or undefined.
function read(storage, name) {
  try {
    return JSON.parse(storage.getItem(name)) ?? undefined;
  } catch {
    return undefined;
  }
}

function write(storage, name, value) {
  try {
    storage.setItem(name, JSON.stringify(value));
  } catch { } // it is full, or not allowed
}

let last; // the draft that is in the form now

const isNew = read(sessionStorage, tabKey) === undefined;
if (isNew) {
  write(sessionStorage, tabKey, Math.random());
}
const tab = read(sessionStorage, tabKey);

// takeLeft returns the draft that a tab has left, if isMine says so of that tab, and leaves it no longer.
function takeLeft(isMine) {
  const left = read(localStorage, leftKey);
  if (left === undefined || !isMine(left.tab)) {
    return undefined;
  }
  localStorage.removeItem(leftKey);
  return left.draft;
}

addEventListener("pagehide", () => last && write(localStorage, leftKey, { tab, draft: last }));
addEventListener("pageshow", () => takeLeft((of) => of === tab)); // it was only loaded again
if (isNew && !new URLSearchParams(location.search).has("expr")) {
  const draft = takeLeft(() => true);
  if (draft) {
    keep([], draft);
  }
}

// of returns the draft of a list of expressions in the URL, or undefined.
export function of(expr) {
  last = read(sessionStorage, key)?.[JSON.stringify(expr)];
  return last;
}

// keep keeps one, or forgets it if there is none.
export function keep(expr, draft) {
  const name = JSON.stringify(expr);
  const { [name]: before, ...others } = read(sessionStorage, key) ?? {};
  last = draft;
  if (before || draft) {
    const all = Object.entries({ ...others, ...(draft && { [name]: draft }) });
    write(sessionStorage, key, Object.fromEntries(all.slice(-most)));
  }
}
