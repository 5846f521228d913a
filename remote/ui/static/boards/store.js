// The boards that the adapter keeps.

import { ask } from "../common/api.js";

const pathOf = (name) => `boards/${encodeURIComponent(name)}`;

// list returns all boards, and whether they can be changed.
export async function list(signal) {
  return (await ask("boards", {}, { signal })).data;
}

// load returns a board and the tag of its version.
export async function load(name, signal) {
  const { data: board, tag } = await ask(pathOf(name), {}, { signal });
  return { board, tag };
}

// save stores a board: a new one, or in place of the version that a tag names.
export function save(name, board, tag) {
  return ask(pathOf(name), {}, { method: "PUT", body: JSON.stringify(board), headers: tag ? { "If-Match": tag } : { "If-None-Match": "*" } });
}

// remove deletes the version of a board that a tag names.
export function remove(name, tag) {
  return ask(pathOf(name), {}, { method: "DELETE", headers: { "If-Match": tag } });
}
