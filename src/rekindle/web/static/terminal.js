// A terminal in the page. The server keeps the screen and sends the rows that change; keys go there one
// request after the other, so that they arrive in the order in which they were pressed.
"use strict";
(() => {
  const terminal = document.querySelector("[data-terminal]");
  const screen = document.getElementById("screen");
  const typing = terminal.querySelector("textarea");
  const state = document.getElementById("terminal-state");
  const { keys: keysAddress, size: sizeAddress } = terminal.dataset;
  const keyboard = crypto.getRandomValues(new Uint32Array(4)).join("-");
  let modes = { application_keys: false, bracketed_paste: false };

  // -- the screen
  function show(change) {
    modes = change;
    while (screen.childElementCount > change.rows) screen.lastElementChild.remove();
    while (screen.childElementCount < change.rows) screen.append(document.createElement("div"));
    for (const [number, html] of Object.entries(change.changed)) {
      screen.children[number]?.replaceChildren(window.rekindle.parse(html));
    }
  }

  const source = new EventSource(terminal.dataset.screen);
  source.addEventListener("screen", (event) => show(JSON.parse(event.data)));
  source.addEventListener("open", () => { state.textContent = "Attached."; terminal.setAttribute("data-connected", ""); fit(); });
  source.addEventListener("error", () => { state.textContent = "Connecting again …"; terminal.removeAttribute("data-connected"); });
  source.addEventListener("end", (event) => {
    source.close();
    state.textContent = JSON.parse(event.data).error ?? "The process has ended.";
    typing.disabled = true;
  });
  addEventListener("pagehide", () => source.close());

  // -- keys
  let waiting = "", number = 0, isSending = false;

  async function send() {
    if (isSending) return;
    isSending = true;
    while (waiting) {
      const keys = waiting.slice(0, 10000);
      waiting = waiting.slice(keys.length);
      number += 1;
      for (let attempt = 0; ; attempt++) {
        try {
          const answer = await window.rekindle.send(keysAddress, { keys, keyboard, number });
          if (answer.status === 409) { waiting = ""; break; }
          if (!answer.ok) throw new Error(await answer.text());
          const { accepted, total } = await answer.json();
          if (accepted < total) window.rekindle.say("The program does not read its input.");
          break;
        } catch (error) {  // the number tells the server whether it has got these keys already
          if (attempt === 4) { waiting = ""; window.rekindle.say("Keys could not be sent."); break; }
          await new Promise((resolve) => setTimeout(resolve, 300 * (attempt + 1)));
        }
      }
    }
    isSending = false;
  }

  function press(text) {
    if (!keysAddress || typing.disabled) return;
    waiting += text;
    send();
  }

  const cursorKeys = { ArrowUp: "A", ArrowDown: "B", ArrowRight: "C", ArrowLeft: "D", Home: "H", End: "F" };
  const otherKeys = {
    Enter: "\r", Backspace: "\x7f", Tab: "\t", Escape: "\x1b", Delete: "\x1b[3~", Insert: "\x1b[2~",
    PageUp: "\x1b[5~", PageDown: "\x1b[6~", F1: "\x1bOP", F2: "\x1bOQ", F3: "\x1bOR", F4: "\x1bOS",
    F5: "\x1b[15~", F6: "\x1b[17~", F7: "\x1b[18~", F8: "\x1b[19~", F9: "\x1b[20~", F10: "\x1b[21~",
    F11: "\x1b[23~", F12: "\x1b[24~",
  };

  function translate(event) {
    const { key } = event;
    const modifier = 1 + event.shiftKey + 2 * event.altKey + 4 * event.ctrlKey;
    if (key in cursorKeys) {
      if (modifier > 1) return `\x1b[1;${modifier}${cursorKeys[key]}`;
      return (modes.application_keys ? "\x1bO" : "\x1b[") + cursorKeys[key];
    }
    if (key === "Tab" && event.shiftKey) return "\x1b[Z";
    if (key in otherKeys) return (event.altKey ? "\x1b" : "") + otherKeys[key];
    if (event.ctrlKey && !event.altKey && key.length === 1) {
      const code = key.toUpperCase().charCodeAt(0);
      if (code >= 64 && code <= 95) return String.fromCharCode(code - 64);
      if (key === " ") return "\0";
      return key === "/" ? "\x1f" : null;
    }
    if (event.altKey && !event.ctrlKey && key.length === 1) return "\x1b" + key;
    return null;  // the text comes as input
  }

  typing.addEventListener("keydown", (event) => {
    if (event.isComposing || event.metaKey) return;
    const isCopy = event.ctrlKey && ["c", "x"].includes(event.key) && String(getSelection());
    if (isCopy || (event.ctrlKey && event.shiftKey && ["C", "V"].includes(event.key)) || (event.ctrlKey && event.key === "v")) return;
    if (event.ctrlKey && event.key === "]") { event.preventDefault(); typing.blur(); return; }
    const text = translate(event);
    if (text === null) return;
    event.preventDefault();
    event.stopPropagation();
    press(text);
  });
  function takeInput() {
    const text = typing.value;
    typing.value = "";
    if (text) press(text.replaceAll("\n", "\r"));
  }
  typing.addEventListener("input", (event) => { if (!event.isComposing) takeInput(); });
  typing.addEventListener("compositionend", takeInput);
  typing.addEventListener("paste", (event) => {
    event.preventDefault();
    const text = event.clipboardData.getData("text").replaceAll("\r\n", "\r").replaceAll("\n", "\r");
    // What is pasted cannot end the paste by itself.
    const plain = text.replaceAll("\x1b", "");
    press(modes.bracketed_paste ? `\x1b[200~${plain}\x1b[201~` : plain);
  });
  terminal.addEventListener("focus", () => typing.focus({ preventScroll: true }));
  terminal.addEventListener("click", () => { if (!String(getSelection())) typing.focus({ preventScroll: true }); });

  // -- size
  let lastSize = "";
  function fit() {
    if (!sizeAddress) return;
    const probe = document.createElement("span");
    probe.textContent = "x".repeat(100);
    screen.append(probe);
    const { width, height } = probe.getBoundingClientRect();
    probe.remove();
    const style = getComputedStyle(terminal), rowHeight = parseFloat(getComputedStyle(screen).lineHeight) || height;
    const columns = Math.floor((terminal.clientWidth - parseFloat(style.paddingLeft) - parseFloat(style.paddingRight)) / (width / 100));
    const rows = Math.floor((terminal.clientHeight - parseFloat(style.paddingTop) - parseFloat(style.paddingBottom)) / rowHeight);
    const size = `${rows} ${columns}`;
    if (size === lastSize || rows < 2 || columns < 10) return;
    lastSize = size;
    window.rekindle.send(sizeAddress, { rows, columns }).catch(() => { lastSize = ""; });
  }
  let timer = 0;
  new ResizeObserver(() => { clearTimeout(timer); timer = setTimeout(fit, 150); }).observe(terminal);
  typing.focus({ preventScroll: true });
})();
