// The chosen colour scheme, set before anything is drawn. Without a choice it is
// that of the system.
"use strict";
{
  const choice = localStorage.getItem("theme");
  if (choice === "light" || choice === "dark") {
    document.documentElement.dataset.theme = choice;
  }
}
