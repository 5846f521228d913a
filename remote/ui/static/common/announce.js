// Sentences for screen readers.

// announce lets screen readers read a sentence after the one that they read now.
export function announce(text) {
  const node = document.getElementById("announcement");
  node.textContent = "";
  setTimeout(() => { // a text that is set again is read again
    node.textContent = text;
  }, 50);
}
