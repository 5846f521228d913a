// What the page says to those who hear it instead of seeing it.

// say lets screen readers say a sentence when they have said what they say now.
export function say(text) {
  const said = document.getElementById("said");
  said.textContent = "";
  setTimeout(() => { // a text that is there again is said again
    said.textContent = text;
  }, 50);
}
