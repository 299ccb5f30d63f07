// What pages do beyond links and forms. Every page can be read without it.
//
//   data-instant            a GET form: fetches while typing, replaces the element named in data-target
//   data-live="/address"    an element that server-sent events change (see below)
//   data-ask="question"     a form that asks before it is sent
//   data-copy="text"        a button that copies
//   data-list               a list whose links j and k walk through (links: a.row)
//   data-focus-key="/"      a field that a key focuses
//   data-key="e"            a link or button that a key presses
//   data-more="/address"    an element that is replaced by more content when it comes into view
//   data-refresh="5"        an element with an id that is fetched again every 5 seconds while visible
//
// Server-sent events hold JSON: {"id": element, "how": "replace" | "append" | "text" | "remove", "html": …}
"use strict";
(() => {
  const formToken = document.querySelector("meta[name=form-token]")?.content ?? "";
  const notice = document.getElementById("notice");
  let noticeTimer = 0;

  function say(text) {
    notice.textContent = text;
    clearTimeout(noticeTimer);
    noticeTimer = setTimeout(() => { notice.textContent = ""; }, 4000);
  }

  function parse(html) {
    const holder = document.createElement("template");
    holder.innerHTML = html;  // from our own server, which escapes; the policy lets no script in it run
    return holder.content;
  }

  async function fetchFragment(address, block, signal) {
    const answer = await fetch(address, { headers: { "X-Fragment": block }, signal, credentials: "same-origin" });
    const html = await answer.text();
    if (!answer.ok) throw new Error(answer.status === 401 ? html : "The server did not answer as expected.");
    return html;
  }

  // -- search while typing
  function makeInstant(form) {
    const target = document.getElementById(form.dataset.target);
    let running = null;
    async function update() {
      running?.abort();
      const mine = running = new AbortController();
      const fields = [...new FormData(form)].filter(([, value]) => value !== "");
      const address = form.getAttribute("action") + (fields.length ? "?" + new URLSearchParams(fields) : "");
      try {
        const html = await fetchFragment(address, form.dataset.target, mine.signal);
        target.replaceChildren(parse(html));
        prepare(target);
        history.replaceState(null, "", address);
        target.dispatchEvent(new CustomEvent("rekindle:updated", { bubbles: true }));
      } catch (error) {
        if (error.name !== "AbortError") say(error.message);
      }
    }
    form.addEventListener("input", update);
    form.addEventListener("submit", (event) => { event.preventDefault(); update(); });
  }

  // -- live elements
  function applyChange(change) {
    const element = document.getElementById(change.id);
    if (!element) return;
    const atEnd = element.scrollHeight - element.scrollTop - element.clientHeight < 60;
    if (change.how === "text") element.textContent = change.html;
    else if (change.how === "remove") element.remove();
    else {
      const content = parse(change.html);
      prepare(content);
      if (change.how === "append") element.append(content); else element.replaceChildren(content);
    }
    if (atEnd && element.hasAttribute("data-follow")) element.scrollTop = element.scrollHeight;
    element.dispatchEvent(new CustomEvent("rekindle:updated", { bubbles: true }));
  }

  function makeLive(element) {
    const source = new EventSource(element.dataset.live);
    source.addEventListener("message", (event) => applyChange(JSON.parse(event.data)));
    source.addEventListener("end", () => source.close());
    source.addEventListener("open", () => element.setAttribute("data-connected", ""));
    source.addEventListener("error", () => element.removeAttribute("data-connected"));
    addEventListener("pagehide", () => source.close());
  }

  const watcher = new IntersectionObserver((entries) => {
    for (const entry of entries) {
      if (!entry.isIntersecting) continue;
      watcher.unobserve(entry.target);
      const element = entry.target;
      fetchFragment(element.dataset.more, element.dataset.block ?? "more").then((html) => {
        const content = parse(html);
        prepare(content);
        element.replaceWith(content);
      }, (error) => say(error.message));
    }
  }, { rootMargin: "1200px" });

  function makeRefresh(element) {
    const timer = setInterval(async () => {
      if (!element.isConnected) return clearInterval(timer);
      if (document.hidden || element.contains(document.activeElement)) return;
      try {
        const html = await fetchFragment(location.pathname + location.search, element.id);
        element.replaceChildren(parse(html));
        prepare(element);
      } catch { /* the next time */ }
    }, Number(element.dataset.refresh) * 1000);
  }

  // -- forms that change something: sent by script, then the page comes again where it was
  document.addEventListener("submit", (event) => {
    const form = event.target;
    if (form.dataset.ask && !confirm(form.dataset.ask)) event.preventDefault();
  });

  document.addEventListener("click", (event) => {
    const button = event.target.closest("[data-copy]");
    if (button) navigator.clipboard.writeText(button.dataset.copy).then(() => say("Copied"), () => say("Select the text to copy it"));
    if (event.target.closest("[data-open-help]")) document.getElementById("help").showModal();
  });

  // -- keys
  function listRows() { return [...document.querySelectorAll("[data-list] a.row")].filter((row) => row.offsetParent !== null); }

  function moveSelection(step) {
    const rows = listRows();
    if (!rows.length) return;
    const old = rows.findIndex((row) => row.closest("tr, li, [data-item]")?.classList.contains("selected"));
    const next = Math.min(rows.length - 1, Math.max(0, old + step));
    document.querySelectorAll("[data-list] .selected").forEach((item) => item.classList.remove("selected"));
    rows[next].closest("tr, li, [data-item]")?.classList.add("selected");
    rows[next].focus({ preventScroll: true });
    rows[next].scrollIntoView({ block: "nearest" });
  }

  let pending = "";
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const field = event.target.closest("input, textarea, select, [data-terminal]");
    if (field) {
      if (event.key === "Escape" && !field.matches("[data-terminal]")) field.blur();
      if (event.key === "ArrowDown" && field.matches("input[type=search]")) { moveSelection(1); event.preventDefault(); }
      return;
    }
    if (document.querySelector("dialog[open]")) return;
    if (pending === "g") {
      pending = "";
      const link = document.querySelector(`[data-go="${CSS.escape(event.key)}"]`);
      if (link) { link.click(); event.preventDefault(); }
      return;
    }
    if (event.key === "g") { pending = "g"; setTimeout(() => { pending = ""; }, 1200); return; }
    if (event.key === "?") document.getElementById("help").showModal();
    else if (event.key === "j") moveSelection(1);
    else if (event.key === "k") moveSelection(-1);
    else {
      const fields = document.querySelectorAll(`[data-focus-key="${CSS.escape(event.key)}"]`);
      const own = [...fields].find((one) => one.closest("main")) ?? fields[0];
      const pressed = own ? null : document.querySelector(`[data-key="${CSS.escape(event.key)}"]`);
      if (own) { own.focus(); own.select(); } else if (pressed) pressed.click(); else return;
    }
    event.preventDefault();
  });

  function prepare(root) {
    root.querySelectorAll("[data-copy], [data-open-help]").forEach((one) => { one.hidden = false; });
    root.querySelectorAll("form[data-instant]").forEach(makeInstant);
    root.querySelectorAll("[data-live]").forEach(makeLive);
    root.querySelectorAll("[data-more]").forEach((one) => watcher.observe(one));
    root.querySelectorAll("[data-refresh]").forEach(makeRefresh);
  }
  prepare(document);

  // For the scripts of single pages.
  window.rekindle = {
    say, fetchFragment, parse, prepare, applyChange,
    send: (address, fields) => fetch(address, {
      method: "POST", credentials: "same-origin", body: new URLSearchParams(fields),
      headers: { "X-Form-Token": formToken },
    }),
  };
})();
