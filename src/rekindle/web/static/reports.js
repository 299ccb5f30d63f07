// Figures that are still being computed: the page fetches them again until they are there.
"use strict";
(() => {
  const report = document.getElementById("report");
  const { fetchFragment, parse, prepare } = window.rekindle;

  async function update() {
    const pending = report.querySelector("[data-pending]");
    if (pending && !document.hidden && !report.contains(document.activeElement)) {
      try {
        const html = await fetchFragment(location.pathname + location.search, "report");
        const content = parse(html);
        // Where nothing was there at all, the parts around the report are missing, too.
        const isWhole = pending.dataset.pending === "page" && !content.querySelector("[data-pending=page]");
        if (isWhole) { location.reload(); return; }
        report.replaceChildren(content);
        prepare(report);
      } catch { /* the next time */ }
    }
    setTimeout(update, 1000);
  }
  setTimeout(update, 1000);
})();
