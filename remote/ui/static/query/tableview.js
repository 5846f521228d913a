// The tables of the tab Query: the results of its expressions at a time.

import { range } from "../common/api.js";
import { element, selecting } from "../common/dom.js";
import { newest } from "./newestsample.js";
import { refresh, retell } from "./refresh.js";
import { columns, newerResults } from "./resulttable.js";

// showTables shows them. askAll(times, isRefresh) asks for the expressions of a state, and tell(one, asked) returns the nodes that stand above
// the result of one.
export async function showTables(state, result, signal, navigate, askAll, tell) {
  const problems = element("div", {}), hint = element("div", {});
  let parts;
  const paint = async (isRefresh) => {
    const times = range(state);
    const asked = await askAll(times, isRefresh);
    const answers = asked.filter(({ error }) => !error);
    const isEmpty = answers.length > 0 && answers.every(({ answer: { data } }) => Array.isArray(data.result) && data.result.length === 0);
    const found = isEmpty && !hint.hasChildNodes() ? await newest(answers[0].expr, signal, navigate, state.expr) : undefined;
    const isFirst = !parts;
    parts ??= asked.map(() => ({ told: element("div", { class: "told" }), table: element("div", {}) })); // last is the last table that had rows
    asked.forEach((one, i) => {
      const part = parts[i], options = { ...columns(state, times.end, navigate), then: one.then };
      retell(part.told, tell(one, asked));
      const made = one.error ? element("div", {}) : newerResults(part.last, one.answer.data, options);
      if (made.matches(".table")) {
        part.last = made;
      }
      if (made !== part.table) {
        part.table.replaceWith(made);
        part.table = made;
      }
    });
    if (!isEmpty || found) {
      hint.replaceChildren(...(found ? [found] : []));
    }
    if (isFirst) {
      result.replaceChildren(problems, ...parts.flatMap(({ told, table }) => [told, table]), hint);
    }
  };
  await paint();
  if (state.refresh && !state.end) {
    refresh(state.refresh, () => paint(true), () => selecting(result), problems, signal);
  }
}
