// Parts of forms that several tabs have: each slot of index.html becomes a copy of the template of its name.
// Modules that look for fields of forms run after this one, as app.js imports it first.

for (const slot of document.querySelectorAll("slot")) {
  slot.replaceWith(document.getElementById(slot.name).content.cloneNode(true));
}
