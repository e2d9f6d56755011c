"use strict";
// The keyboard scrolls a table or code that is wider than the screen, a screen reader tells the buttons of code blocks apart, and
// the button that copies a session at a terminal copies its commands alone, without `$ `. The theme adds all to the page when it opens.
(() => {
  const mend = () => {
    document.querySelectorAll(".md-code__nav").forEach((bar, place) => { bar.ariaLabel = `Code ${place + 1}`; });
    document.querySelectorAll("pre > code").forEach((code) => { code.tabIndex = 0; });
    document.querySelectorAll("[data-clipboard-target]:not([data-clipboard-text])").forEach((button) => {
      const lines = document.querySelector(button.dataset.clipboardTarget).textContent.split("\n");
      const commands = lines.filter((line) => line.startsWith("$ ")).map((line) => line.slice(2));
      if (commands.length) button.dataset.clipboardText = commands.join("\n");
    });
    document.querySelectorAll(".md-typeset__scrollwrap").forEach((wide, place) => {
      const label = `Table ${place + 1}`;
      if (wide.scrollWidth > wide.clientWidth) Object.assign(wide, {tabIndex: 0, role: "region", ariaLabel: label});
    });
  };
  new MutationObserver(mend).observe(document.body, {childList: true, subtree: true});
  addEventListener("resize", mend);
})();
