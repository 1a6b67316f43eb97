"use strict";
// Enhancements only: without script the page shows the same. The theme is kept; a document is marked in all rankings.
(() => {
  const root = document.documentElement, button = document.getElementById("theme");
  const system = matchMedia("(prefers-color-scheme: dark)");
  const dark = () => (root.dataset.theme || (system.matches ? "dark" : "light")) === "dark";
  const label = () => { button.textContent = dark() ? "Light" : "Dark"; };
  const kept = localStorage.getItem("theme");
  if (kept === "dark" || kept === "light") root.dataset.theme = kept;
  button.hidden = false;
  label();
  system.addEventListener("change", label);
  button.addEventListener("click", () => {
    root.dataset.theme = dark() ? "light" : "dark";
    localStorage.setItem("theme", root.dataset.theme);
    label();
  });
  const all = [...document.querySelectorAll("[data-document]")];
  const mark = (key) => all.forEach((each) => each.classList.toggle("marked", each.dataset.document === key));
  for (const each of all) {
    if (each.tagName === "LI") each.tabIndex = 0;
    for (const event of ["mouseenter", "focus"]) each.addEventListener(event, () => mark(each.dataset.document));
    for (const event of ["mouseleave", "blur"]) each.addEventListener(event, () => mark(null));
  }
  for (const list of document.querySelectorAll("ol[data-ranking]")) {
    list.addEventListener("keydown", (event) => {
      const step = { ArrowDown: "nextElementSibling", ArrowUp: "previousElementSibling" }[event.key];
      const next = step && event.target[step];
      if (next) { event.preventDefault(); next.focus(); }
    });
  }
})();
