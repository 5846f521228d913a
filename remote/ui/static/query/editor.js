// An editor of a PromQL expression: a plain field at first, and CodeMirror as soon as it is there. What was
// typed before, and the keyboard, stay.

import { element } from "../common/dom.js";
import { completions } from "./completion.js";
import * as queryHistory from "./history.js";

let loading; // CodeMirror, once for all editors

// load asks for CodeMirror when the page has had time to ask for what it shows.
function load() {
  loading ??= new Promise((resolve) => (window.requestIdleCallback ?? setTimeout)(resolve, { timeout: 300 }))
    .then(() => import("../vendor/codemirror/codemirror.js"));
  return loading;
}

// makeEditor appends an editor to parent. Its label names it for assistive technology. onRun is called by Enter, onChange when
// the text has changed, and times returns the start and the end in seconds of what completion looks at.
//
// It returns the editor: text can be read and set, replace(text) sets it as if it was typed, so that undo brings
// the text before it, mark(error) underlines where an error of the server says, of the text as it is now, and
// destroy() removes it.
export function makeEditor(parent, { value = "", label, placeholder = "", onRun, onChange = () => {}, times }) {
  const root = element("div", { class: "editor" });
  parent.append(root);
  const plain = plainField(value, { label, placeholder, onRun, onChange });
  root.append(plain.node);
  let field = plain, error, destroyed = false;
  const editor = {
    get text() { return field.text; },
    set text(text) {
      if (text !== field.text) {
        field.replace(text);
        editor.step = undefined;
      }
    },
    set label(name) {
      label = name;
      field.name(name);
    },
    focus: () => field.focus(),
    replace(text) {
      field.replace(text);
      field.focus();
    },
    mark(found) {
      if (found || error) {
        field.mark(found);
      }
      error = found;
    },
    destroy() {
      destroyed = true;
      field.destroy();
      root.remove();
    },
  };
  steps(root, editor);
  load().then((cm) => plain.whenIdle(() => {
    if (destroyed) {
      return;
    }
    field = codeField(cm, root, plain, { label, placeholder, onRun, onChange, times });
    root.classList.add("ready");
    if (error) {
      field.mark(error);
    }
  })).catch((err) => console.info("The expression is edited in a plain field.", err));
  return editor;
}

// steps lets Alt+ArrowUp and Alt+ArrowDown go through the expressions that were run, from what is typed.
function steps(root, editor) {
  let typed;
  root.addEventListener("keydown", (event) => {
    if (!event.altKey || (event.key !== "ArrowUp" && event.key !== "ArrowDown") || event.isComposing) {
      return;
    }
    event.preventDefault();
    event.stopPropagation();
    if (editor.step === undefined || editor.text !== editor.shown) {
      editor.step = -1;
      typed = editor.text;
    }
    const all = queryHistory.list().filter((expr) => expr !== typed.trim());
    const to = editor.step + (event.key === "ArrowUp" ? 1 : -1);
    if (to >= -1 && to < all.length) {
      editor.replace(to === -1 ? typed : all[to]);
      Object.assign(editor, { step: to, shown: editor.text });
    }
  }, true);
}

// plainField is a field without help.
function plainField(value, { label, placeholder, onRun, onChange }) {
  const box = element("textarea", { rows: 1, spellcheck: "false", autocomplete: "off", autocapitalize: "off", "data-focus": true, placeholder,
    oninput: () => {
      box.defaultValue = box.value; // what a reset of the form leaves
      onChange();
    },
    onkeydown: (event) => {
      if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
        event.preventDefault();
        onRun();
      }
    } });
  box.defaultValue = value;
  const name = element("span", { class: "unseen" }, label);
  let composing = false, idle = () => {};
  box.addEventListener("compositionstart", () => { composing = true; });
  box.addEventListener("compositionend", () => {
    composing = false;
    setTimeout(() => idle());
  });
  return {
    node: element("label", {}, name, box),
    box,
    get text() { return box.value; },
    replace(text) {
      box.value = box.defaultValue = text;
      box.setSelectionRange(text.length, text.length);
      onChange();
    },
    focus: () => box.focus(),
    name: (text) => name.replaceChildren(text),
    mark: () => {},
    destroy: () => {},
    // whenIdle calls f when no character is being composed.
    whenIdle(f) {
      idle = () => {
        if (!composing) {
          idle = () => {};
          f();
        }
      };
      idle();
    },
  };
}

// codeField takes the place of a plain field.
function codeField(cm, root, { node, box }, { label, placeholder, onRun, onChange, times }) {
  const { EditorView } = cm;
  const has = document.activeElement === box;
  const attributes = (name) => EditorView.contentAttributes.of({ "aria-label": name, "data-focus": "" });
  const naming = new cm.Compartment();
  const wholes = [cm.isolateHistory.of("full")]; // undone by itself
  const completion = completions(cm, times);
  const errors = lint(cm);
  const run = (view) => {
    cm.closeCompletion(view);
    onRun();
    return true;
  };
  const view = new EditorView({
    doc: box.value,
    selection: { anchor: box.selectionStart, head: box.selectionEnd },
    parent: root,
    extensions: [
      cm.Prec.highest(cm.keymap.of([
        { key: "Enter", run: (v) => cm.acceptCompletion(v) || run(v), shift: cm.insertNewlineKeepIndent },
        { key: "Mod-Enter", run },
        { key: "Ctrl-Enter", run },
      ])),
      completion,
      cm.promQL,
      cm.syntaxHighlighting(highlighter(cm)),
      errors.extension,
      cm.bracketMatching(),
      cm.closeBrackets(),
      cm.history(),
      cm.keymap.of([...cm.closeBracketsKeymap, ...cm.historyKeymap, { key: "F8", run: cm.nextDiagnostic }, ...cm.standardKeymap]),
      EditorView.lineWrapping,
      cm.placeholder(placeholder),
      naming.of(attributes(label)),
      EditorView.domEventHandlers({ beforeinput: (event, v) => typeOver(cm, event, v) }),
      EditorView.updateListener.of(({ docChanged }) => docChanged && onChange()),
    ],
  });
  node.remove();
  if (has) {
    view.focus();
  }
  return {
    get text() { return view.state.doc.toString(); },
    replace: (text) => view.dispatch({
      changes: { from: 0, to: view.state.doc.length, insert: text }, selection: { anchor: text.length }, annotations: wholes, scrollIntoView: true,
    }),
    focus: () => view.focus(),
    name: (text) => view.dispatch({ effects: naming.reconfigure(attributes(text)) }),
    mark: (error) => errors.mark(view, error),
    destroy: () => view.destroy(),
  };
}

// typeOver puts what is typed in the place of what is selected. A browser would give it the colour of what was there, as an inline style.
function typeOver({ EditorView }, { inputType, data: text, isComposing }, view) {
  const { from, to, empty } = view.state.selection.main;
  if (inputType !== "insertText" || !text || isComposing || empty) {
    return false;
  }
  const insert = () => view.state.update(view.state.replaceSelection(text), { userEvent: "input.type", scrollIntoView: true });
  if (!view.state.facet(EditorView.inputHandler).some((handle) => handle(view, from, to, text, insert))) {
    view.dispatch(insert());
  }
  return true;
}

// highlighter gives the parts of an expression classes, whose colours are in the style sheet.
function highlighter({ tagHighlighter, tags }) {
  return tagHighlighter([
    { tag: tags.variableName, class: "pq-metric" },
    { tag: tags.function(tags.variableName), class: "pq-function" },
    { tag: [tags.operatorKeyword, tags.modifier, tags.logicOperator], class: "pq-keyword" },
    { tag: tags.labelName, class: "pq-label" },
    { tag: tags.string, class: "pq-string" },
    { tag: tags.number, class: "pq-number" },
    { tag: tags.comment, class: "pq-comment" },
    { tag: [tags.operator, tags.arithmeticOperator], class: "pq-operator" },
  ]);
}

// lint underlines what the parser of the page finds wrong, or what the server has found wrong in the same text.
function lint(cm) {
  const marked = cm.Annotation.define();
  const parse = new cm.HybridLint().promQL();
  let refused = {};
  const source = (view) => {
    const text = view.state.doc.toString();
    if (text.trim() === "") {
      return [];
    }
    return refused.text === text ? [refused.diagnostic] : parse(view);
  };
  return {
    extension: cm.linter(source, { needsRefresh: ({ transactions }) => transactions.some((t) => t.annotation(marked)) }),
    mark(view, error) {
      const text = view.state.doc.toString();
      refused = error ? { text, diagnostic: diagnosticOf(text, error.message) } : {};
      if (!refused.diagnostic) {
        refused = {};
      }
      view.dispatch({ annotations: marked.of(true) });
      cm.forceLinting(view);
    },
  };
}

// diagnosticOf returns where an error of the server is in a text, of which the server was sent the trimmed one. The server says a line and
// a column of bytes, both from 1.
function diagnosticOf(text, message) {
  const found = /(\d+):(\d+): (parse error: .*)$/s.exec(message);
  if (!found) {
    return undefined;
  }
  const [line, column] = [Number(found[1]), Number(found[2])];
  const bytes = new TextEncoder().encode(text.trim().split("\n")[line - 1] ?? "");
  const before = text.trim().split("\n").slice(0, line - 1).reduce((sum, l) => sum + l.length + 1, text.length - text.trimStart().length);
  const at = Math.min(before + new TextDecoder().decode(bytes.slice(0, column - 1)).length, text.trimEnd().length);
  const word = /^[\w:.]+/.exec(text.slice(at))?.[0].length ?? 1;
  const to = Math.min(at + word, text.length);
  return { from: at === to ? Math.max(0, at - 1) : at, to, severity: "error", message: found[3] };
}
