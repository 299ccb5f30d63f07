// The page of one session: jumping, sub-agents that are filled when opened, and new messages as they come.
"use strict";
(() => {
  const root = document.getElementById("transcript");
  if (!root || !window.rekindle) return;
  const { say, fetchFragment, parse, prepare } = window.rekindle;
  const address = root.dataset.address;
  const messages = root.querySelector(".messages");
  const live = document.getElementById("live");
  const follow = document.getElementById("follow");
  const chip = document.getElementById("live-chip");
  const SELECTORS = { prompt: ".ask", error: "details.call.failed", edit: "details.call.edit:not(.rejected)" };

  // -- places
  function openAround(element) {
    for (let one = element.parentElement; one && one !== messages; one = one.parentElement) {
      if (one.matches("details")) one.open = true;
    }
    if (element.matches("details")) element.open = true;
  }

  function show(element) {
    openAround(element);
    root.querySelectorAll(".here").forEach((one) => one.classList.remove("here"));
    const marked = element.matches("details") ? element : element.closest(".entry") ?? element;
    marked.classList.add("here");
    marked.scrollIntoView({ block: "start" });
    keepInPlace(marked, marked.getBoundingClientRect().top);
    current = marked;
  }

  // Keep an element where it is on the screen while what is above it gets its real height: what was
  // never on the screen had a guessed one.
  let kept = null;
  function keepInPlace(element, top) {
    const mine = kept = {};
    let frames = 30;
    const settle = () => {
      const isOver = kept !== mine || !frames-- || !element.isConnected;
      document.documentElement.classList.toggle("settling", kept === mine ? !isOver : !!kept);
      if (isOver) { markPrompt(); return; }
      const moved = element.getBoundingClientRect().top - top;
      if (Math.abs(moved) >= 1) scrollBy(0, moved);
      requestAnimationFrame(settle);
    };
    settle();
  }

  let current = null;
  function letGo() { current = kept = null; }
  addEventListener("wheel", letGo, { passive: true });
  addEventListener("touchmove", letGo, { passive: true });

  function getPosition(element) {
    const entry = element?.closest(".entry");
    const first = entry?.id ? entry : entry?.parentElement.closest(".entry[id]");
    const link = entry?.querySelector(":scope > .raw") ?? first?.querySelector(":scope > .raw");
    return link ? Number(link.textContent) : -1;
  }

  function isOfThisSession(element) { return !element.closest("details.agent"); }

  function findPlace(kind, isBack) {
    const places = [...messages.querySelectorAll(SELECTORS[kind])].filter(isOfThisSession);
    const here = current?.isConnected ? current : null;
    const isAfter = (one) => here
      ? here !== one && !here.contains(one) && !!(here.compareDocumentPosition(one) & Node.DOCUMENT_POSITION_FOLLOWING)
      : one.getBoundingClientRect().top > 40 || one.getBoundingClientRect().height === 0;
    const isBefore = (one) => here
      ? !here.contains(one) && !!(here.compareDocumentPosition(one) & Node.DOCUMENT_POSITION_PRECEDING)
      : one.getBoundingClientRect().top < -4;
    return isBack ? places.reverse().find(isBefore) : places.find(isAfter);
  }

  function findLoaded() {
    const links = [...messages.querySelectorAll(".entry > .raw")].filter(isOfThisSession).map((one) => Number(one.textContent));
    return links.length ? [Math.min(...links), Math.max(...links)] : [-1, -1];
  }

  async function jump(kind, isBack) {
    const found = findPlace(kind, isBack);
    if (found) { show(found); return; }
    const [first, last] = findLoaded();
    const query = isBack ? `before=${first}` : `after=${last}`;
    const isMore = isBack ? messages.querySelector(":scope > .further [data-earlier]") : messages.querySelector(":scope > .further[data-more]");
    if (isMore) {
      const answer = await fetch(`${address}/next?kind=${kind}&${query}`, { headers: { Accept: "application/json" }, credentials: "same-origin" });
      const { position } = answer.ok ? await answer.json() : {};
      if (position !== undefined && position !== null) { location.assign(`${address}?at=${position}#m${position}`); return; }
    }
    const word = { prompt: "prompt", error: "error", edit: "edit" }[kind];
    say(isBack ? `No ${word} before this` : `No further ${word}`);
  }

  document.addEventListener("click", (event) => {
    const button = event.target.closest("[data-jump]");
    if (button) { event.preventDefault(); jump(button.dataset.jump, button.hasAttribute("data-back")); return; }
    const menu = event.target.closest("a[data-menu]");
    if (menu) { event.preventDefault(); openMenu(menu); return; }
    const earlier = event.target.closest("[data-earlier]");
    if (earlier) { event.preventDefault(); loadEarlier(earlier); return; }
    const link = event.target.closest("a[href*='#']");
    if (link && link.pathname === location.pathname && !event.ctrlKey && !event.metaKey && !event.shiftKey) {
      const target = document.getElementById(link.hash.slice(1));
      if (target && messages.contains(target)) { event.preventDefault(); history.pushState(null, "", link.hash); show(target); }
    }
  });

  async function openMenu(link) {
    const dialog = document.getElementById("session-menu");
    try {
      const content = parse(await fetchFragment(link.getAttribute("href"), "menu"));
      prepare(content);
      dialog.firstElementChild.replaceChildren(content);
      dialog.showModal();
    } catch { location.assign(link.href); }
  }

  function openHash() {
    const match = /^#m(\d+)$/.exec(location.hash);
    if (!match) return;
    const target = document.getElementById(`m${match[1]}`);
    if (target) show(target);
    else if (new URLSearchParams(location.search).get("at") !== match[1]) location.replace(`${address}?at=${match[1]}${location.hash}`);
    else showNearest(Number(match[1]));
  }

  // A result without an element of its own belongs to the entry before it.
  function showNearest(position) {
    const entries = [...messages.querySelectorAll(".entry[id]")].filter(isOfThisSession);
    const nearest = entries.filter((one) => Number(one.id.slice(1)) <= position).pop() ?? entries[0];
    if (nearest) show(nearest);
  }
  addEventListener("hashchange", openHash);
  addEventListener("popstate", openHash);

  async function loadEarlier(link) {
    const holder = link.closest(".further");
    try {
      const content = parse(await fetchFragment(link.dataset.earlier, "part"));
      prepare(content);
      const after = holder.nextElementSibling;
      const top = after?.getBoundingClientRect().top ?? 0;
      holder.replaceWith(content);
      if (after) keepInPlace(after, top);
    } catch (error) { say(error.message); }
  }

  // -- keys
  const JUMPS = { n: ["prompt", false], p: ["prompt", true], e: ["error", false], d: ["edit", false] };
  let allOpen = false;
  let isAfterG = false;  // `g e` leads to another page
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input, textarea, select") || document.querySelector("dialog[open]")) return;
    const isSequence = isAfterG;
    isAfterG = event.key === "g" && !isSequence;
    if (isAfterG) setTimeout(() => { isAfterG = false; }, 1200);
    if (isSequence) return;
    if (JUMPS[event.key]) jump(...JUMPS[event.key]);
    else if (event.key === "o") {
      allOpen = !allOpen;
      messages.querySelectorAll("details.call, details.run").forEach((one) => { one.open = allOpen; });
    } else if (event.key === "f" && !follow.closest("label").hidden) { follow.checked = !follow.checked; followEnd(); }
  });

  // -- sub-agents
  messages.addEventListener("toggle", async (event) => {
    const fold = event.target;
    if (!fold.open || !fold.dataset?.load) return;
    const source = fold.dataset.load;
    delete fold.dataset.load;
    const holder = document.createElement("div");
    holder.className = "inside";
    fold.append(holder);
    try {
      holder.append(parse(await fetchFragment(source, "part")));
      prepare(holder);
    } catch (error) { say(error.message); fold.dataset.load = source; holder.remove(); }
  }, true);

  // -- the prompt that is on the screen, in the list
  let marking = 0;
  function markPrompt() {
    marking = 0;
    const links = root.querySelectorAll("nav.prompts a[data-at]");
    if (!links.length) return;
    let at = -1;
    for (const ask of messages.querySelectorAll(".messages > .entry > .ask")) {
      if (ask.getBoundingClientRect().top > innerHeight / 3) break;
      at = getPosition(ask);
    }
    if (at < 0) { const [first] = findLoaded(); at = first; }
    let chosen = null;
    for (const link of links) { if (Number(link.dataset.at) <= at) chosen = link; else break; }
    const old = root.querySelector("nav.prompts a[aria-current]");
    if (old === chosen) return;
    old?.removeAttribute("aria-current");
    if (!chosen) return;
    chosen.setAttribute("aria-current", "location");
    const list = chosen.closest("nav"), box = chosen.getBoundingClientRect(), frame = list.getBoundingClientRect();
    if (box.top < frame.top + 60 || box.bottom > frame.bottom) list.scrollTop += box.top - frame.top - frame.height / 3;
  }
  addEventListener("scroll", () => { marking ||= requestAnimationFrame(markPrompt); }, { passive: true });

  // -- new messages
  let after = Number(root.dataset.after);
  let source = null;
  function followEnd() { if (follow.checked) document.getElementById("end").scrollIntoView({ block: "end" }); }
  // What comes onto the screen gets its real height only then, and moves the end again.
  new ResizeObserver(followEnd).observe(messages);
  addEventListener("wheel", (event) => { if (event.deltaY < 0) follow.checked = false; }, { passive: true });
  addEventListener("touchmove", () => { follow.checked = false; }, { passive: true });

  function apply(change) {
    if (change.how === "reload") { showChanged(); return; }
    if (change.how !== "swap") { window.rekindle.applyChange(change); return; }
    const old = document.getElementById(change.id);
    if (!old) return;
    const content = parse(change.html);
    content.querySelectorAll("details").forEach((one, index) => { if (old.querySelectorAll("details")[index]?.open) one.open = true; });
    prepare(content);
    old.replaceWith(content);
  }

  function showChanged() {
    if (root.querySelector(".changed")) return;
    const bar = document.createElement("p"), link = document.createElement("a");
    bar.className = "changed";
    link.className = "button main";
    link.href = location.pathname + location.search;
    link.textContent = "The session has changed. Load it again";
    bar.append(link);
    messages.append(bar);
  }

  function connect() {
    if (source || document.hidden) return;
    source = new EventSource(`${address}/events?after=${after}`);
    source.addEventListener("message", (event) => {
      const changes = JSON.parse(event.data), position = Number(event.lastEventId);
      if (position >= after || changes.some((change) => change.how === "reload")) {
        changes.forEach(apply);
        after = Math.max(after, position);
        chip.hidden = false;
        followEnd();
      }
      root.dataset.after = String(after);
    });
    source.addEventListener("open", () => root.setAttribute("data-connected", ""));
    source.addEventListener("error", () => root.removeAttribute("data-connected"));
  }
  // A browser has few connections to one server: a tab that nobody sees needs none.
  function disconnect() { source?.close(); source = null; root.removeAttribute("data-connected"); }
  document.addEventListener("visibilitychange", () => { if (document.hidden) disconnect(); else connect(); });
  addEventListener("pagehide", disconnect);
  addEventListener("pageshow", connect);
  follow.addEventListener("change", followEnd);
  follow.closest("label").hidden = false;

  function preparePlaces() {
    root.querySelectorAll("[data-jump]").forEach((one) => { one.hidden = false; });
    markPrompt();
  }
  new MutationObserver(preparePlaces).observe(root.querySelector(".places"), { childList: true, subtree: true });
  openHash();
  preparePlaces();
  connect();
})();
