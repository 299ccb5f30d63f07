// The list of sessions: what a pause in typing still finds, the menu of a session, picking several.
"use strict";
(() => {
  const results = document.getElementById("results");
  const form = document.querySelector("form[data-target=results]");
  const PAUSE = 220, REFRESH = 4000;

  // -- beginnings of words take longer to find: they are looked up once nobody types
  let timer = 0, running = null;
  function address(extra) {
    const fields = [...new FormData(form), ...extra].filter(([, value]) => value !== "");
    return form.getAttribute("action") + (fields.length ? "?" + new URLSearchParams(fields) : "");
  }
  function stop() { clearTimeout(timer); running?.abort(); running = null; }
  async function replace(extra) {
    const mine = running = new AbortController();
    try {
      const html = await rekindle.fetchFragment(address(extra), "results", mine.signal);
      if (mine.signal.aborted) return;
      results.replaceChildren(rekindle.parse(html));
      rekindle.prepare(results);
      shown = html;
    } catch (error) {
      if (error.name !== "AbortError" && extra.length) rekindle.say(error.message);
    }
  }
  function lookFurther() {
    stop();
    if (results.querySelector("[data-thorough]")) timer = setTimeout(() => replace([["thorough", "yes"]]), PAUSE);
  }
  results.addEventListener("rekindle:updated", lookFurther);
  form.addEventListener("input", () => {
    stop();
    for (const select of form.querySelectorAll("select")) select.classList.toggle("chosen", select.value !== "");
    form.querySelector(".clear").hidden = ![...form.querySelectorAll("select")].some((select) => select.value !== "");
    document.querySelector(".done")?.remove();
  });

  // -- the newest sessions stay up to date while nobody is working with them
  let shown = "";
  setInterval(async () => {
    const isBusy = document.hidden || results.contains(document.activeElement) || results.querySelector("input:checked, tr.selected")
      || document.querySelector("dialog[open]") || scrollY > 200;
    if (isBusy || running || !results.querySelector("[data-newest]")) return;
    const before = running = new AbortController();
    try {
      const html = await rekindle.fetchFragment(location.pathname + location.search, "results", before.signal);
      if (html !== shown && !before.signal.aborted) {
        results.replaceChildren(rekindle.parse(html));
        rekindle.prepare(results);
        shown = html;
      }
    } catch { /* the next time */ } finally { if (running === before) running = null; }
  }, REFRESH);

  // -- the menu of a session
  const dialog = document.getElementById("session-menu");
  async function openMenu(link) {
    try {
      const content = rekindle.parse(await rekindle.fetchFragment(link.getAttribute("href"), "menu"));
      rekindle.prepare(content);
      dialog.firstElementChild.replaceChildren(content);
      dialog.showModal();
    } catch (error) { rekindle.say(error.message); }
  }
  results.addEventListener("click", (event) => {
    const link = event.target.closest("a[data-menu]");
    if (!link || event.ctrlKey || event.metaKey || event.button) return;
    event.preventDefault();
    openMenu(link);
  });

  // -- picking several
  const picked = document.getElementById("picked");
  function countPicked() {
    if (!picked) return;
    const count = results.querySelectorAll("td.pick input:checked").length;
    picked.hidden = count === 0;
    picked.querySelector("[data-picked-count]").textContent = `${count} selected`;
    picked.elements.back.value = location.pathname + location.search;
  }
  results.addEventListener("change", countPicked);
  results.addEventListener("rekindle:updated", countPicked);

  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input, textarea, select") || document.querySelector("dialog[open]")) return;
    const row = results.querySelector("tr.selected");
    if (event.key === "." && row?.querySelector("a[data-menu]")) openMenu(row.querySelector("a[data-menu]"));
    else if (event.key === "x" && row?.querySelector("td.pick input")) row.querySelector("td.pick input").click();
    else return;
    event.preventDefault();
  });
})();
