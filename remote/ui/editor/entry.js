// What the page uses of CodeMirror and of its mode for PromQL. build.js makes one file of it.

import { LRLanguage } from "@codemirror/language";
import { getFunction } from "@prometheus-io/codemirror-promql/dist/esm/types/function";
import { EqlRegex, EqlSingle, Neq, NeqRegex, parser } from "@prometheus-io/lezer-promql";
import { StyleModule } from "style-mod";

export {
  acceptCompletion, autocompletion, closeBrackets, closeBracketsKeymap, closeCompletion, completionStatus, currentCompletions,
  moveCompletionSelection, selectedCompletionIndex, setSelectedCompletion, startCompletion,
} from "@codemirror/autocomplete";
export { history, historyKeymap, insertNewlineKeepIndent, isolateHistory, standardKeymap } from "@codemirror/commands";
export { bracketMatching, syntaxHighlighting } from "@codemirror/language";
export { forceLinting, linter, nextDiagnostic } from "@codemirror/lint";
export { Annotation, Compartment, Prec } from "@codemirror/state";
export { EditorView, keymap, placeholder } from "@codemirror/view";
export { tagHighlighter, tags } from "@lezer/highlight";
// By their paths, as the package's entry has a client for HTTP with a cache that the page does not use.
export { HybridComplete } from "@prometheus-io/codemirror-promql/dist/esm/complete/hybrid";
export { HybridLint } from "@prometheus-io/codemirror-promql/dist/esm/lint/hybrid";

// promQL is the language.
export const promQL = LRLanguage.define({
  parser: parser.configure({ top: "PromQL" }),
  languageData: { closeBrackets: { brackets: ["(", "[", "{", "'", '"', "`"] }, commentTokens: { line: "#" } },
});

// functions are those of PromQL by name: argTypes, variadic and returnType, as Prometheus' parser has them.
export const functions = new Map(parser.nodeSet.types.map(({ id }) => getFunction(id)).filter(Boolean).map((f) => [f.name, f]));

// operators are those of matchers, by their node in the syntax tree.
export const operators = new Map([[EqlSingle, "="], [Neq, "!="], [EqlRegex, "=~"], [NeqRegex, "!~"]]);

// CodeMirror writes its style into an element, which the page's policy forbids. This writes it into a style
// sheet of the document. In a layer, so that the style sheets of the page come before it.
const mounted = new WeakMap();
StyleModule.mount = (root, modules) => {
  const { sheet, known } = mounted.get(root) ?? { sheet: new CSSStyleSheet(), known: new Set() };
  if (!mounted.has(root)) {
    mounted.set(root, { sheet, known });
    root.adoptedStyleSheets = [...root.adoptedStyleSheets, sheet];
  }
  const before = known.size;
  [modules].flat().forEach((module) => known.add(module));
  if (known.size > before) {
    sheet.replaceSync(`@layer codemirror {\n${[...known].map((module) => module.getRules()).join("\n")}\n}`);
  }
};
